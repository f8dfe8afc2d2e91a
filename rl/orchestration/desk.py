"""The rim around the orchestrator's machine: its rows, its files, its clock, and what it says to the outside."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from diloco.member.setting import Emit
from diloco.rounds.values import Value
from diloco.rounds.waiting import Waiting
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.identity import Signer
from protocol.units import Digest, PeerId
from rl.orchestration.audits import Audits
from rl.orchestration.events import (
    Abandoned,
    Appealed,
    Asked,
    AskVerdict,
    Ban,
    Broken,
    Certified,
    Delete,
    Dispute,
    Distrust,
    Effect,
    Event,
    Found,
    Give,
    Gone,
    Judged,
    Lift,
    Lost,
    Planted,
    Published,
    Receipt,
    Report,
    Save,
    Tell,
    Tick,
    Uploaded,
    Validators,
)
from rl.orchestration.folder import Folder
from rl.orchestration.leasing import may_send, no_lease
from rl.orchestration.machine import advance, rebuild
from rl.orchestration.moving import moved
from rl.orchestration.opening import check_provenance, facts_of
from rl.orchestration.queue import Queue, queue_of
from rl.orchestration.rows import File, Opinion, Work
from rl.orchestration.rules import Rules
from rl.orchestration.state import State
from rl.orchestration.store import Store
from rl.orchestration.telling import told
from rl.rollouts.files import store as store_file
from rl.rollouts.parquet import encode
from rl.rollouts.reading import Reader
from rl.rollouts.record import Group, Provenance
from rl.rollouts.signing import Signed
from rl.validation.planting import plant

Outward = AskVerdict | Report | Ban | Lift | Dispute | Distrust
"""What others are to be told or asked."""

_ATTEMPTS = 64
"""Bad files that are made until one is drawn to be audited."""


class Orchestrator:
    """One trainer's orchestrator. For one event loop; only ``receive``, ``found`` and ``groups`` wait for anything.

    Args:
        me: This trainer, which signs what it plants.
        rules: What the run fixes.
        value: The newest certified value.
        store: Its rows.
        folder: Its files.
        reader: Reads strangers' files.
        expected: What the provenance of the answer to a lease must be.
        outward: Carries out what is for others; does not wait.
        emit: The event log.
        audits: Its audit chains.
        clock: Seconds, monotonic.

    Raises:
        NodeError: A storage error.
    """

    def __init__(
        self,
        me: Signer,
        rules: Rules,
        value: Value,
        *,
        store: Store,
        folder: Folder,
        reader: Reader,
        expected: Callable[[Work], Provenance],
        audits: Audits,
        outward: Callable[[Outward], None],
        emit: Emit,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._me, self._store, self._folder, self._reader = me, store, folder, reader
        self._expected, self._outward, self._emit = expected, outward, emit
        self._audits, self._clock = audits, clock
        self._changed = asyncio.Event()
        self._queue: Queue | None = None
        self.state, effects = rebuild(me.peer_id, rules, value, store.load(), clock())
        self._save(effects)
        self._carry_out(effects, self.state)
        missing = folder.tidy([file.digest for file in self.state.kept.files.values()])
        if missing:
            self._feed(Lost(missing))

    @property
    def now(self) -> float:
        """Seconds on the clock of every deadline here."""
        return self._clock()

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change of the state; whoever waits takes it anew each time."""
        return self._changed

    # ---- what happens

    def ask(self, worker: PeerId, holding: tuple[int, ...] = (), most: int = 1_000_000) -> Give | Waiting:
        """Work for a worker, or why it has to wait.

        Raises:
            NodeError: ``E-RL-004`` for a worker that is banned; a storage error, after which nothing was given.
        """
        for effect in self._feed(Asked(worker, holding, most)):
            if isinstance(effect, Give):
                return effect
            if isinstance(effect, Tell):
                if effect.waiting.reason == "banned":
                    raise NodeError(Code.RL_NO_WORK, effect.waiting.sentence, peer=worker)
                return effect.waiting
        raise AssertionError("a worker that asks is answered")

    def abandon(self, worker: PeerId, counter: int, reason: str) -> None:
        """A worker gives a lease back."""
        self._feed(Abandoned(worker, counter, reason))
        self._emit("work.abandoned", worker=worker, counter=counter, reason=reason)

    def gone(self, worker: PeerId) -> None:
        """A worker is not there any more."""
        self._feed(Gone(worker))

    def begin_upload(self, worker: PeerId, counter: int, nbytes: int) -> Waiting | None:
        """Room for the answer to a lease, which is then written to ``Folder.coming``; or why its turn is not yet.

        Raises:
            NodeError: ``E-RL-005`` when it is not taken at all; ``STO_FULL`` without room.
        """
        refused = may_send(self.state, worker, counter, nbytes)
        if refused is not None and refused.phase == "refused":
            raise NodeError(Code.RL_LEASE, refused.sentence, peer=worker)
        if refused is None:
            self._folder.reserve(self._folder.coming(worker, counter), nbytes)
        return refused

    async def receive(self, worker: PeerId, counter: int) -> Receipt:
        """Take the whole file at ``Folder.coming``, with its marker, as the answer to a lease.

        Raises:
            NodeError: A storage error, after which the worker may send again.
        """
        path = self._folder.coming(worker, counter)
        work = self.state.kept.works.get(f"{worker}/{counter}")
        try:
            if work is None:
                self._folder.drop(path)
                return Receipt(worker, counter, False, "no-lease", no_lease(counter))
            nbytes = path.stat().st_size
            provenance, groups, signed = await self._reader.read(path)
            check_provenance(provenance, self._expected(work), worker)
        except FileNotFoundError:
            return Receipt(worker, counter, False, "missing", "Nothing came.")
        except NodeError as error:
            if error.code.startswith("E-STO"):
                raise
            self._folder.drop(path)
            return self._receipt(Broken(worker, counter, str(error.code), error.sentence))
        self._folder.take(path, signed.digest)
        facts = tuple(facts_of(group) for group in groups)
        number = self.state.next_number
        event = Uploaded(
            worker, counter, signed.digest, nbytes, provenance.version, facts,
            self._audits.link(number), self._audits.twice(number, signed.digest),
        )  # fmt: skip
        return self._receipt(event)

    async def found(self, path: Path) -> None:
        """Take over a file that was fetched from another trainer, with its marker.

        Args:
            path: Where it lies, in the folder's ``coming``; it does not stay there.

        Raises:
            NodeError: It cannot be read, is not what a worker makes for this run, or a storage error.
        """
        nbytes = path.stat().st_size
        try:
            provenance, groups, signed = await self._reader.read(path)
            facts = tuple(facts_of(group) for group in groups)
            work = Work(provenance.worker, provenance.counter, provenance.version, ())
            due = replace(self._expected(work), trainer=provenance.trainer)
            check_provenance(provenance, due, provenance.worker)
            for version in {each for one in facts for each in (one.oldest, one.newest)}:
                self._expected(replace(work, version=version))  # it has to be known here, too
        except NodeError:
            self._folder.drop(path)
            raise
        if signed.digest.hex() in self.state.kept.files:
            self._folder.drop(path)
            return
        self._folder.take(path, signed.digest)
        number = self.state.next_number
        file = File(
            signed.digest, provenance.worker, provenance.counter, provenance.version, nbytes, facts,
            trainer=provenance.trainer, wanted=2 if self._audits.twice(number, signed.digest) else 1,
        )  # fmt: skip
        self._feed(Found(file, self._audits.link(number)))

    async def plant(self, digest: bytes) -> None:
        """Where the hidden chain draws it, have a bad file judged that was made from a taken one.

        It passes every cheap check, and is given a number and a link like any other: one by which its validator has to
        run the model.

        Raises:
            NodeError: The file cannot be read, or a storage error.
        """
        file = self.state.kept.files.get(digest.hex())
        if file is None or not self._audits.planted(file.number, Digest(digest)):
            return
        provenance, groups, _ = await self._reader.read(self._folder.path(digest))
        for attempt in range(_ATTEMPTS):
            bad = plant(groups, self._audits.seed(file.number, attempt))
            if bad is None:
                return
            data = await asyncio.to_thread(encode, provenance, bad)
            signed = Signed.make(self._me, data)
            number = self.state.next_number  # from here on nothing is waited for, so it stays the next one
            if self._audits.audited(number, signed.digest, file.standing):
                store_file(self._folder.path(signed.digest), data, signed)
                facts = tuple(facts_of(group) for group in bad)
                planted = replace(
                    file, digest=signed.digest, nbytes=len(data), groups=facts, opinions=(), planted=True
                )
                self._feed(Planted(planted, digest, self._audits.link(number)))
                return

    def judged(self, digest: bytes, opinion: Opinion) -> None:
        """A validator's verdict, whose signature has been checked."""
        self._feed(Judged(digest, opinion))

    def appeal(self, worker: PeerId, digest: bytes) -> None:
        """A worker has a refused file judged again."""
        self._feed(Appealed(worker, digest))

    def certified(self, value: Value) -> tuple[int, ...]:
        """A newer value is certified; the positions that fell to this trainer by it, and that it has nothing of."""
        before = self.state.wanted
        self._feed(Certified(value))
        return moved(before, self.state)

    def published(self, version: int) -> None:
        """Workers can have a policy version."""
        self._feed(Published(version))

    def validators(self, present: frozenset[str]) -> None:
        """Which validators are there."""
        if present != self.state.validators:
            self._feed(Validators(present))

    def tick(self) -> None:
        """Time has passed; to be called about once a second. How rollouts stand is told when it has changed."""
        self._feed(Tick())
        queue = queue_of(self.state, self._clock())
        if queue != self._queue:
            self._queue = queue
            self._emit("rollouts.queue", **asdict(queue))

    # ---- what is asked

    async def groups(self, wanted: tuple[tuple[bytes, int], ...]) -> tuple[Group, ...] | None:
        """The groups of a batch, in its order; None when a file cannot be read, whose positions are made again.

        Args:
            wanted: Digest of the file and position of each.
        """
        found: dict[tuple[bytes, int], Group] = {}
        for digest in dict.fromkeys(digest for digest, _ in wanted):
            try:
                _, groups, signed = await self._reader.read(self._folder.path(digest))
            except NodeError as error:
                self._emit("rollout.lost", file=digest.hex(), code=str(error.code), reason=error.sentence)
                self._feed(Lost((digest,)))
                return None
            assert signed.digest == digest
            found |= {(digest, group.position): group for group in groups}
        return tuple(found[each] for each in wanted)

    # ---- the machine

    def _receipt(self, event: Event) -> Receipt:
        return next(effect for effect in self._feed(event) if isinstance(effect, Receipt))

    def _feed(self, event: Event) -> tuple[Effect, ...]:
        """One event. When its rows cannot be written, it has not happened."""
        before = self.state
        state, effects = advance(before, event, self._clock())
        self._save(effects)
        changed = state is not before
        self.state = state
        self._carry_out(effects, before)
        if changed:
            self._changed.set()
            self._changed = asyncio.Event()
        return effects

    def _save(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, Save):
                self._store.save(effect.put, effect.gone)

    def _carry_out(self, effects: tuple[Effect, ...], before: State) -> None:
        for effect in effects:
            if (event := told(effect, before, self.state)) is not None:
                self._emit(event[0], **event[1])
            match effect:
                case Save(gone=gone):
                    for kind, key in gone:
                        if kind == "works":  # what has come of its answer is of no use any more
                            worker, counter = key.rsplit("/", 1)
                            self._folder.drop(self._folder.coming(worker, int(counter)))
                case Ban():
                    self._folder.keep_evidence(effect.evidence)
                    self._outward(effect)
                case Delete(digests):
                    self._folder.delete(digests)
                case AskVerdict() | Report() | Lift() | Dispute() | Distrust():
                    self._outward(effect)
