"""Orchestrators of several trainers in one process: real cores, real leases; workers, validators, disks and values are
played. Every deed is a method, so that a seed or Hypothesis can choose."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from blake3 import blake3

from diloco.rounds.leases import Ledger, assign, cut, samples_of, settle, spans_of
from diloco.rounds.values import Elector, Value
from rl.orchestration.books import lease_of, positions_of
from rl.orchestration.events import (
    Abandoned,
    Appealed,
    Asked,
    AskVerdict,
    Broken,
    Certified,
    Delete,
    Effect,
    Event,
    Give,
    Gone,
    Judged,
    Planted,
    Published,
    Save,
    Tell,
    Tick,
    Uploaded,
    Validators,
)
from rl.orchestration.feeding import next_batch
from rl.orchestration.machine import advance, rebuild
from rl.orchestration.rows import TABLES, File, GroupFacts, Kept, Opinion, Work, Worker
from rl.orchestration.rules import Rules
from rl.orchestration.state import State
from tests.rl.orchestration.judge import Judge, insist

SIZE = 4  # positions of a lease

RULES = Rules(
    rounds=0, lease_size=SIZE, window=2, group_size=2, groups_per_work=2, open_works=2, most_waiting=6,
    newcomer_positions=4, trusted_after=6, tries=3, most_workers=6, strikes=2, forgiven_after=5, doubted=2,
    most_refused=4, work_within=timedelta(seconds=10), verdict_within=timedelta(seconds=5),
    appeal_within=timedelta(seconds=20), seen_within=timedelta(seconds=10),
)  # fmt: skip


def first_value(trainers: tuple[str, ...]) -> Value:
    books = assign(Ledger((), (), 0), trainers, SIZE)
    return Value(
        epoch=0, round=-1, previous=bytes(32), base=bytes(32), leases=books.leases, cursor=books.cursor,
        electorate=tuple(Elector(peer=peer) for peer in trainers), beacon=bytes(32),
    )  # fmt: skip


def next_value(
    value: Value, certified: dict[str, int], present: tuple[str, ...], banned: tuple[str, ...]
) -> Value:
    """What the round machine would decide about leases."""
    books = settle(Ledger(value.leases, value.returned, value.cursor), certified, present)
    books = assign(books, sorted(present), SIZE)
    return replace(
        value, round=value.round + 1, leases=books.leases, returned=books.returned, cursor=books.cursor,
        banned=banned, beacon=blake3(value.beacon).digest(),
    )  # fmt: skip


@dataclass
class Trainer:
    """One trainer's process and disk."""

    name: str
    state: State
    rows: dict[tuple[str, str], object] = field(default_factory=dict)
    files: set[bytes] = field(default_factory=set)
    lease: object = None  # that `done` and `used` belong to
    done: int = 0
    used: dict[int, str] = field(default_factory=dict)
    given: dict[str, list[Work]] = field(default_factory=dict)  # what workers believe to hold
    asked: list[tuple[str, bytes]] = field(default_factory=list)

    def is_banned(self, worker: str) -> bool:
        record = self.rows.get(("workers", worker))
        return isinstance(record, Worker) and bool(record.banned)

    def kept(self) -> Kept:
        return Kept.of(tuple(self.rows.values()))  # type: ignore[arg-type]


class World:
    """Trainers, workers and validators.

    Args:
        trainers: How many.
        rules: The rules of all of them.
        step: Positions of an inner step.
    """

    def __init__(self, trainers: int = 1, rules: Rules = RULES, step: int = 2) -> None:
        names = tuple(f"trainer-{number}" for number in range(trainers))
        self.now = 1000.0
        self.rules, self.step = rules, step
        self.judge = Judge(rules)
        self.value = first_value(names)
        self.banned: tuple[str, ...] = ()
        self.made = 0
        self.told: list[Tell] = []
        self.leased: dict[tuple[str, str], Work] = {}
        self.trainers = {
            name: Trainer(name, rebuild(name, rules, self.value, Kept(), self.now)[0]) for name in names
        }
        self.validators: frozenset[str] = frozenset()

    # ---- the rim

    def feed(self, trainer: Trainer, event: Event, most: int | None = None) -> tuple[Effect, ...]:
        """One event; with ``most`` the process dies after so many of its effects."""
        files = dict(trainer.state.kept.files)
        if isinstance(event, Uploaded):
            trainer.files.add(event.digest)
        state, effects = advance(trainer.state, event, self.now)
        carried = effects if most is None else effects[:most]
        for effect in carried:
            self._carry_out(trainer, effect, files)
        if most is not None:
            self.boot(trainer)
            return carried
        trainer.state = state
        for key, file in state.kept.files.items():
            stood = key in files and files[key].state == "accepted" and file.state == "refused"
            insist(
                not stood or trainer.is_banned(file.worker), "an accepted file is refused without a verdict"
            )
        self._check(trainer)
        return effects

    def _carry_out(self, trainer: Trainer, effect: Effect, files: dict[str, File]) -> None:
        match effect:
            case Save(put, gone):
                for key in gone:
                    trainer.rows.pop(key, None)
                for row in put:
                    trainer.rows[(TABLES[type(row)], row.key)] = row
            case Delete(digests):
                for digest in digests:
                    file = files.get(digest.hex())
                    if file is not None and not file.planted and not trainer.is_banned(file.worker):
                        self.judge.deleted(self.value, file)
                    trainer.files.discard(digest)
            case Give(work, _):
                trainer.given.setdefault(work.worker, []).append(work)
                self.leased[(trainer.name, work.key)] = work
            case AskVerdict(validator=validator, digest=digest):
                trainer.asked.append((validator, digest))
            case Tell():
                self.told = [*self.told[-20:], effect]

    def boot(self, trainer: Trainer) -> None:
        """The process begins with what is on its disk; what was trained and is not certified is lost."""
        kept = trainer.kept()
        state, effects = rebuild(trainer.name, self.rules, self.value, kept, self.now)
        files = dict(kept.files)
        for effect in effects:
            self._carry_out(trainer, effect, files)
        trainer.state = state
        trainer.files &= {file.digest for file in trainer.state.kept.files.values()}
        trainer.done, trainer.used, trainer.asked = 0, {}, []
        self.feed(trainer, Validators(self.validators))
        self.feed(trainer, Published(state.policy))

    def _check(self, trainer: Trainer) -> None:
        state = trainer.state
        insist(trainer.kept() == state.kept, "what is on disk is not what the orchestrator knows")
        again, effects = rebuild(trainer.name, self.rules, state.value, trainer.kept(), self.now)
        insist((again.kept, again.wanted) == (state.kept, state.wanted), "rebuilt, the state is another one")
        insist(
            not any(isinstance(effect, Save | Delete) for effect in effects), "a restart changes what is kept"
        )
        for file in state.kept.files.values():
            insist(file.planted or file.digest in trainer.files, "a file that is needed is not on the disk")
        self.judge.bounded(state.kept, len(state.wanted))

    # ---- deeds

    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for trainer in self.trainers.values():
            self.feed(trainer, Tick())

    def validators_are(self, present: frozenset[str]) -> None:
        self.validators = present
        for trainer in self.trainers.values():
            trainer.asked = [each for each in trainer.asked if each[0] in present]
            self.feed(trainer, Validators(present))

    def publish(self) -> None:
        for trainer in self.trainers.values():
            self.feed(trainer, Published(trainer.state.policy))

    def ask(self, trainer: Trainer, worker: str, *, lost: bool = False, most: int | None = None) -> None:
        mine = trainer.given.get(worker, [])
        if lost:
            mine.clear()
        self.feed(trainer, Asked(worker, tuple(work.counter for work in mine)), most)

    def answer(
        self,
        trainer: Trainer,
        worker: str,
        *,
        kind: str = "good",
        twice: bool = False,
        most: int | None = None,
    ) -> None:
        """A worker answers its oldest lease: good, flat, or with a lie."""
        mine = trainer.given.get(worker, [])
        if not mine:
            return
        work = mine.pop(0)
        if kind == "broken":
            self.feed(trainer, Broken(worker, work.counter, "E-RL-001", "It cannot be read."), most)
            return
        self.made += 1
        newest = max(work.version, min(trainer.state.published or 0, trainer.state.policy))
        rewards = (0.5, 0.5) if kind == "flat" else (0.0, 1.0)
        oldest = work.version - 1 if kind == "older" else work.version
        newest = newest + 1 if kind == "newer" else newest
        groups = tuple(
            GroupFacts(position, oldest, newest, rewards[:1] if kind == "short" else rewards, 10)
            for position in (work.positions[:-1] if kind == "partial" else work.positions)
        )
        digest = blake3(self.made.to_bytes(8, "big")).digest()
        version = work.version - 3 if kind == "claim" else work.version
        link = blake3(digest).digest()
        self.feed(trainer, Uploaded(worker, work.counter, digest, 1000, version, groups, link, twice), most)

    def abandon(self, trainer: Trainer, worker: str, most: int | None = None) -> None:
        if mine := trainer.given.get(worker):
            self.feed(trainer, Abandoned(worker, mine.pop(0).counter), most)

    def lose(self, worker: str) -> None:
        for trainer in self.trainers.values():
            trainer.given.pop(worker, None)
            self.feed(trainer, Gone(worker))

    def judge_one(
        self,
        trainer: Trainer,
        accepted: bool,
        strikes: int = 1,
        most: int | None = None,
        unsure: bool = False,
        keen: bool = False,
    ) -> None:
        """The validator that was asked first gives its verdict; a keen one knows what is planted."""
        if trainer.asked:
            validator, digest = trainer.asked.pop(0)
            file = trainer.state.kept.files.get(digest.hex())
            if keen and file is not None and file.planted:
                accepted = False
            opinion = Opinion(validator, True, doubt=strikes == 2)
            if not accepted:
                opinion = Opinion(validator, False, "E-RL-070", "Found.", 0 if unsure else strikes, unsure)
            self.feed(trainer, Judged(digest, opinion), most)

    def plant(self, trainer: Trainer, number: int, most: int | None = None) -> None:
        """A bad file is made from one that was taken."""
        taken = [file for file in trainer.state.kept.files.values() if not file.planted]
        if taken:
            origin = taken[number % len(taken)]
            self.made += 1
            digest = blake3(self.made.to_bytes(8, "big")).digest()
            bad = replace(origin, digest=digest, opinions=(), planted=True)
            self.feed(trainer, Planted(bad, origin.digest, blake3(digest).digest()), most)

    def forget_verdict(self, trainer: Trainer) -> None:
        """A validator stays silent."""
        if trainer.asked:
            trainer.asked.pop(0)

    def appeal(self, trainer: Trainer, number: int) -> None:
        refused = [file for file in trainer.state.kept.files.values() if file.state == "refused"]
        if refused:
            file = refused[number % len(refused)]
            self.feed(trainer, Appealed(file.worker, file.digest))

    def train(self, trainer: Trainer) -> bool:
        """One inner step, if its data are there."""
        lease = lease_of(trainer.state.value, trainer.name)
        if lease is None:
            return False
        if trainer.lease != lease:
            trainer.lease, trainer.done, trainer.used = lease, 0, {}
        if trainer.done >= samples_of(lease):
            return False
        batch = next_batch(trainer.state, lease, trainer.done, self.step)
        if batch is None:
            return False
        if not batch.groups and not any(how == "trained" for how in trainer.used.values()):
            return False  # nothing to give: the round goes on without this trainer
        kept = trainer.state.kept
        groups = {position: digest for digest, position in batch.groups}
        rest = positions_of(cut(cut(spans_of(lease), trainer.done)[1], batch.consumed)[0])
        insist(sum(batch.empties.values()) + len(groups) == batch.consumed, "a batch does not add up")
        for position in rest:
            if position in groups:
                file = kept.files[groups.pop(position).hex()]
                lease_of_work = self.leased[(trainer.name, f"{file.worker}/{file.counter}")]
                banned = bool(kept.workers[file.worker].banned)
                self.judge.fed(self.value, file, position, lease_of_work, banned)
                trainer.used[position] = "trained"
            else:
                place = kept.places.get(str(position))
                self.judge.skipped(list(kept.files.values()), position, place is not None and place.given_up)
                trainer.used[position] = "empty"
        insist(not groups, "a batch has a group that is not of its lease")
        trainer.done += batch.consumed
        return True

    def decide(self, chosen: set[str], present: tuple[str, ...] | None = None) -> None:
        """A round is decided with the contributions of the chosen trainers, as far as they have any."""
        certified: dict[str, int] = {}
        consumed: dict[int, str] = {}
        for name in sorted(chosen):
            trainer = self.trainers[name]
            lease = lease_of(self.value, name)
            if lease is not None and trainer.lease == lease and trainer.done:
                certified[name] = trainer.done
                consumed |= trainer.used
        here = tuple(sorted(self.trainers)) if present is None else present
        self.value = next_value(self.value, certified, here, self.banned)
        self.judge.certified(consumed)
        self.judge.complete(self.value)
        for trainer in self.trainers.values():
            self.feed(trainer, Certified(self.value))
        wanted = [each.position for t in self.trainers.values() for each in t.state.wanted]
        insist(len(wanted) == len(set(wanted)), "two trainers want the same position")

    # ---- when all is well again

    def recover(self, rounds: int = 6) -> None:
        """One honest worker and honest validators live; so many rounds must be trained."""
        self.banned = ()
        self.validators_are(frozenset({"validator-x", "validator-y", "validator-z"}))
        decided = empty = 0
        for turn in range(60 * rounds):
            self.publish()
            for trainer in self.trainers.values():
                for _ in range(3):
                    self.ask(trainer, f"honest-{turn // 40}")
                    self.answer(trainer, f"honest-{turn // 40}")
                while trainer.asked:
                    self.judge_one(trainer, accepted=True, keen=True)
                while self.train(trainer):
                    pass
            ready = {
                name
                for name, trainer in self.trainers.items()
                if trainer.done and trainer.lease == lease_of(self.value, name)
            }
            if len(ready) == len(self.trainers) or turn % 20 == 19:  # without some, as rounds do
                self.decide(ready, tuple(sorted(self.trainers)))
                decided, empty = decided + bool(ready), empty + (not ready)
                if decided >= rounds:
                    break
            self.time_passes(2.0)
        insist(decided >= rounds, f"only {decided} of {rounds} rounds were trained although all is well")
        insist(empty <= 2, f"{empty} rounds trained nothing although all is well")


def play(seed: int, deeds: int = 250, trainers: int = 1) -> World:
    """Deeds drawn from a seed, then calm; raises ``Violation``."""
    draw = random.Random(seed)
    world = World(trainers, replace(RULES, most_waiting=draw.choice([2, 6, 20])), draw.choice([2, 4]))
    world.validators_are(frozenset({"validator-a", "validator-b"}))
    world.publish()
    names = sorted(world.trainers)
    lies = ["older", "newer", "short", "partial", "claim", "broken"]
    honest, refusing, hurry = (
        draw.choice([0.5, 0.9, 1.0]),
        draw.choice([0.05, 0.15, 0.5]),
        draw.choice([0.03, 0.1]),
    )

    def answer(trainer: Trainer, worker: str, most: int | None) -> None:
        kind = draw.choice(["good", "good", "flat"]) if draw.random() < honest else draw.choice(lies)
        world.answer(trainer, worker, kind=kind, twice=draw.random() < 0.3, most=most)

    def decide() -> None:
        gone = names[-1] if len(names) > 1 and draw.random() < 0.3 else None
        world.decide({n for n in names if draw.random() < 0.8}, tuple(n for n in names if n != gone))
        if draw.random() < 0.8:
            world.publish()

    for _ in range(deeds):
        trainer = world.trainers[draw.choice(names)]
        worker = f"worker-{draw.randrange(4)}"
        most = draw.randrange(4) if draw.random() < 0.1 else None
        weighted: list[tuple[float, Callable[[], object]]] = [
            (0.2, partial(world.ask, trainer, worker, lost=draw.random() < 0.1, most=most)),
            (0.2, partial(answer, trainer, worker, most)),
            (
                0.2,
                partial(
                    world.judge_one,
                    trainer,
                    draw.random() >= refusing,
                    draw.choice([0, 1, 2, 9]),
                    most,
                    draw.random() < 0.2,
                ),
            ),
            (0.04, partial(world.forget_verdict, trainer)),
            (0.1, partial(world.train, trainer)),
            (hurry, decide),
            (0.03, partial(world.abandon, trainer, worker, most)),
            (0.04, partial(world.time_passes, draw.choice([0.5, 4.0, 12.0]))),
            (0.02, partial(world.lose, worker)),
            (0.03, partial(world.appeal, trainer, draw.randrange(8))),
            (0.02, partial(world.plant, trainer, draw.randrange(8), most)),
            (
                0.02,
                partial(
                    world.validators_are, frozenset(f"validator-{x}" for x in "abc" if draw.random() < 0.6)
                ),
            ),
            (0.02, partial(world.boot, trainer)),
        ]
        draw.choices([deed for _, deed in weighted], [weight for weight, _ in weighted])[0]()
    world.recover()
    return world
