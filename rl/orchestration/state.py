"""What an orchestrator knows: the newest certified value, its rows, and what a restart may forget."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from diloco.rounds.values import Value
from rl.orchestration.books import Open, Wanted, plan, policy_of
from rl.orchestration.events import Effect
from rl.orchestration.rows import File, GroupFacts, Kept, Place, Row, Work, Worker
from rl.orchestration.rules import Rules
from rl.work.standing import Standing
from rl.work.window import in_window, oldest_in_window

Holder = Work | File
_FEWEST_RECENT = 8  # leases, before their rate of abandoned ones says anything


@dataclass(frozen=True)
class State:
    """An orchestrator's state; ``value`` and ``kept`` are what ``rebuild`` restores.

    Attributes:
        me: This trainer.
        rules: What the run fixes.
        value: The newest certified value.
        wanted: The positions that this trainer needs, in order; a function of the value.
        kept: The rows.
        published: The newest policy version that workers can have; None before the first.
        timers: When what is waited for is overdue, seconds, by kind and key.
        asked: Until when each validator has time, by file and validator.
        silent: How often each validator let that time pass, by file and validator.
        seen: When each worker last asked.
        validators: Those that are there.
    """

    me: str
    rules: Rules
    value: Value
    wanted: tuple[Wanted, ...]
    kept: Kept = field(default_factory=Kept)
    published: int | None = None
    timers: Mapping[tuple[str, str], float] = field(default_factory=dict)
    asked: Mapping[tuple[str, str], float] = field(default_factory=dict)
    silent: Mapping[tuple[str, str], int] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)
    validators: frozenset[str] = frozenset()

    @property
    def policy(self) -> int:
        """The version of the policy that the running round trains, and the round's number."""
        return policy_of(self.value)

    def oldest(self, number: int) -> int:
        """The oldest policy version that may be trained on in a round."""
        return oldest_in_window(number, self.rules.window)

    # ---- changes

    def with_row(self, row: Row) -> "State":
        """With a row added or replaced."""
        return replace(self, kept=self.kept.with_row(row))

    def without(self, row: Row) -> "State":
        """Without a row."""
        kinds = {Work: "works", File: "files", Place: "places", Worker: "workers"}
        return replace(self, kept=self.kept.without(kinds[type(row)], row.key))

    def with_timer(self, kind: str, key: str, now: float, within: timedelta) -> "State":
        """With a time from now on after which something is overdue."""
        return replace(self, timers={**self.timers, (kind, key): now + within.total_seconds()})

    def at_value(self, value: Value) -> "State":
        """With another newest value, and what follows from it alone."""
        rules = self.rules
        wanted = plan(value, self.me, ahead=rules.window, lease_size=rules.lease_size, rounds=rules.rounds)
        return replace(self, value=value, wanted=wanted)

    # ---- questions

    @property
    def next_number(self) -> int:
        """The number that the next acknowledged file gets, from 1."""
        tally = self.kept.tallies.get("tally")
        return 1 if tally is None else tally.acknowledged + 1

    def record(self, worker: str) -> Worker:
        """What a worker has done so far."""
        return self.kept.workers.get(worker) or Worker(worker)

    def place(self, position: int) -> Place:
        """What is remembered of a position."""
        return self.kept.places.get(str(position)) or Place(position)

    def standing(self, record: Worker) -> Standing:
        """How far a worker is believed: suspicious with a strike, a doubt, or many leases that it does not answer."""
        if record.banned:
            return Standing.BANNED
        unanswered = sum(end != "a" for end in record.recent)
        often = unanswered >= self.rules.abandon_rate * len(record.recent)
        if record.strikes or record.doubted or (len(record.recent) >= _FEWEST_RECENT and often):
            return Standing.SUSPICIOUS
        return Standing.NEW if record.accepted < self.rules.trusted_after else Standing.ESTABLISHED

    def rounds_of(self) -> dict[int, int]:
        """For each wanted position the round that is to train on it."""
        return {each.position: each.round for each in self.wanted}

    def counts(self, position: int, oldest: int, newest: int, rounds: Mapping[int, int]) -> bool:
        """Whether work of these policy versions can be trained on when the position's turn comes."""
        number = rounds.get(position)
        if number is None or oldest < self.place(position).floor:
            return False
        return all(in_window(each, number, self.rules.window) for each in (oldest, newest))

    def holders(self) -> dict[int, Holder]:
        """What is to become of each wanted position: an accepted file, else a waiting one, else an open lease."""
        rounds = self.rounds_of()
        held: dict[int, Holder] = {}
        rank = {"accepted": 0, "waiting": 1}
        files = [file for file in self.kept.files.values() if file.state in rank and not file.planted]
        for file in sorted(files, key=lambda file: (rank[file.state], -file.version, file.key)):
            for group in file.groups:
                if self.counts(group.position, group.oldest, group.newest, rounds):
                    held.setdefault(group.position, file)
        for work in self.kept.works.values():
            for position in () if work.late else work.positions:
                if self.counts(position, work.version, work.version, rounds):
                    held.setdefault(position, work)
        return held

    def works_of(self, worker: str) -> list[Work]:
        """A worker's open leases, in counter order."""
        return sorted(
            (work for work in self.kept.works.values() if work.worker == worker),
            key=lambda work: work.counter,
        )

    def unjudged(self, worker: str) -> int:
        """Positions that a worker has in time or has sent, and about which no verdict has come."""
        waiting = [f for f in self.kept.files.values() if f.worker == worker and f.state == "waiting"]
        working = [work for work in self.works_of(worker) if not work.late]
        return sum(len(work.positions) for work in working) + sum(len(file.groups) for file in waiting)

    def pool(self, now: float) -> int:
        """Workers that have asked of late or have an open lease in time."""
        since = now - self.rules.seen_within.total_seconds()
        lately = {worker for worker, at in self.seen.items() if at >= since}
        return len(lately | {work.worker for work in self.kept.works.values() if not work.late})


Step = tuple[State, list[Effect]]


def group_of(file: File, position: int) -> GroupFacts:
    """The group of a position in a file that has one."""
    return next(group for group in file.groups if group.position == position)


def fail(state: State, position: int, worker: str) -> State:
    """One more failed attempt at a position; after the last one allowed it is given up."""
    if position not in Open(state.value):
        return state
    place = state.place(position)
    tries = place.tries + 1
    failed = (*(name for name in place.failed if name != worker), worker)[-4:]
    place = replace(place, tries=tries, failed=failed)
    return state.with_row(replace(place, given_up=place.given_up or tries >= state.rules.tries))
