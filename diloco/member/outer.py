"""The outer state of a member over its life: restored, advanced by decided rounds, trained on, evaluated.

Whoever changes the state or computes on it holds the workers: an outer step interrupts training, which goes on after
it from where it was.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from diloco.member.applying import Applied, Applying
from diloco.member.holding import Holding
from diloco.member.repairing import Repairing
from diloco.member.restoring import Restoring
from diloco.member.setting import Setting, Tasks, Trainer
from diloco.member.training import Training
from diloco.parameters import changed
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Contribution, Event, StateReady, Tick, Trained
from diloco.rounds.state import State
from diloco.rounds.values import Value
from diloco.store.ledger import Ledger
from protocol.errors import Code, NodeError
from protocol.units import PeerId

_PAUSE = 0.5


class Outer:
    """Keeps the outer state at the machine's round, and the workers at work on it.

    Args:
        setting: The member's setting.
        tasks: Where background work runs.
        trainer: The workers.
        training: Drives them through leases.
        holding: Gets the bytes of decided rounds.
        applying: Takes outer steps.
        restoring: Restores the state from disk and peers.
        repairing: Mends the state in memory.
        ledger: Where certified values go.
        state: The round machine's state now.
        holders: Who may hold the bytes of a round, best first.
        post: Gives the machine an event.

    Attributes:
        reached: The round whose state is in memory and was reported; -1 before.
        finished: Set when the run's last round is applied.
    """

    def __init__(
        self,
        setting: Setting,
        tasks: Tasks,
        trainer: Trainer,
        training: Training,
        holding: Holding,
        applying: Applying,
        restoring: Restoring,
        repairing: Repairing,
        ledger: Ledger,
        *,
        state: Callable[[], State],
        holders: Callable[[int], list[PeerId]],
        post: Callable[[Event], None],
    ) -> None:
        self._setting, self._tasks, self._trainer, self._training = setting, tasks, trainer, training
        self._holding, self._applying, self._restoring = holding, applying, restoring
        self._repairing = repairing
        self._ledger = ledger
        self._state, self._holders, self._post = state, holders, post
        self._workers = asyncio.Lock()
        self._decided: asyncio.Queue[Certified] = asyncio.Queue()
        self._unstored: deque[tuple[Certified, bool]] = deque()  # and whether it takes the place of others
        self._applied: Applied | None = None
        self._evaluating = False
        self._evaluated = -1
        self.reached = -1
        self.finished = asyncio.Event()

    def begin(self, applied: Applied) -> None:
        """The state was restored; the machine's first round starts from it."""
        self._applied = applied
        self._report(applied, 0.0)
        self._ready()

    def decide(self, certified: Certified) -> None:
        """Queue a decided round."""
        self._unstored.append((certified, False))
        self._decided.put_nowait(certified)

    async def run(self) -> None:
        """Apply decided rounds until cancelled."""
        while True:
            certified = await self._decided.get()
            async with self._workers:
                await self._training.interrupt()
                await self._apply(certified.value)
            if self._decided.empty():
                self._ready()

    def _ready(self) -> None:
        assert self._applied is not None
        self._post(StateReady(self._applied.round, self._applied.digest))

    # ---- the state

    async def _apply(self, value: Value) -> None:
        clock = self._setting.clock
        began = clock()
        await self._store()
        while self._stands(value) and (self._applied is None or self._applied.round <= value.round):
            here = self._applied
            if here is not None and here.round == value.round and here.digest != value.base:
                self._say_diverged(value.round, value.base)
                await self._restore()
                break
            try:
                chunks = await self._holding.gather(value, None, self._holders(value.round))
                self._applied = await asyncio.to_thread(self._applying.apply, value.round, chunks)
            except NodeError as error:
                self._setting.emit(
                    "apply.waits", code=str(error.code), round=value.round, reason=error.sentence
                )
                await self._restore()
        if self._applied is None or not self._stands(value):
            return
        await self._holding.settle(value.round)
        await asyncio.to_thread(self._restoring.offer, value)
        self._report(self._applied, clock() - began)

    def _stands(self, value: Value) -> bool:
        """Whether no new epoch has begun since a value was decided; `renew` goes where that one says."""
        return value.epoch == self._state().epoch

    async def _store(self) -> None:
        """Put all certificates into the ledger, however long the disk is full: nobody applies what it cannot keep."""
        while self._unstored:
            try:
                link, over = self._unstored[0]
                self._ledger.append(link, over=over)
                self._unstored.popleft()
            except NodeError as error:
                if error.code != Code.STO_FULL:
                    raise
                self._setting.emit("ledger.waits", code=str(error.code), reason=error.sentence)
                await asyncio.sleep(_PAUSE)

    def renew(self, certified: Certified, behind: Sequence[Certified]) -> None:
        """Queue the beginning of a new epoch, and what leads to it in place of this member's own links."""
        links = (*behind, certified)
        first = links[0]
        common = first.value.round + (0 if first.votes or first.named else 1)
        beside = bool(behind) or self._has_another(first.named)
        self._unstored.extend((link, bool(behind) and link is first) for link in links)
        self._tasks.spawn(self._restate(certified.value, common if beside else None), "new epoch")

    def _has_another(self, named: Certified | None) -> bool:
        """Whether this member went on from another value than the one that a reset names for the same round."""
        if named is None:
            return False
        kept = (self._ledger.get(named.value.round), *(link for link, _ in self._unstored if link.votes))
        return any(
            c is not None and c.value.round == named.value.round and c.digest != named.digest for c in kept
        )

    async def _restate(self, value: Value, common: int | None) -> None:
        """Report the state that a new epoch begins from; restore it where this member was ahead or beside.

        Args:
            value: The value that begins the epoch.
            common: The newest round whose state is that of both sides, where this member was on the other one.
        """
        async with self._workers:
            await self._training.interrupt()
            await self._store()
            if common is not None:
                self._restoring.forget_after(common)
            if (
                common is not None
                or self._applied is None
                or self._applied.round != value.round + 1
                or self._applied.digest != (value.base or self._applied.digest)
            ):
                await self._restore(value.base or None)
        self._ready()

    async def resync(self, base: bytes) -> None:
        """This member's state differs from the quorum's: restore it anew (rule 12)."""
        self._say_diverged(self._state().round, base)
        async with self._workers:
            await self._training.interrupt()
            if not await self._repaired(base):
                await self._restore(base)
        self._ready()

    async def _repaired(self, base: bytes) -> bool:
        """Whether the chunks that differ could be had from members that are at the same round."""
        number = self._state().round
        try:
            self._applied = await self._repairing.repair(number, base, self._holders(number))
            return True
        except NodeError as error:
            self._setting.emit("repair.failed", code=str(error.code), round=number, reason=error.sentence)
            return False

    def _say_diverged(self, round_number: int, base: bytes) -> None:
        self._setting.emit("diverged", code=str(Code.RND_DIVERGED), round=round_number, base=base.hex())

    async def _restore(self, base: bytes | None = None) -> None:
        """Restore the state after the tip, however long it takes; with the workers held."""
        while True:
            self._applied = None  # what is in memory may be older from here on
            await self._store()  # all that was decided: the way to the tip leads over it
            tip = self._state().value
            try:
                self._applied = await self._restoring.restore(tip, self._holders(tip.round), base)
                return
            except NodeError as error:
                self._setting.emit(
                    "restore.waits", code=str(error.code), round=tip.round + 1, reason=error.sentence
                )
                await asyncio.sleep(_PAUSE)
                if self._state().value is not tip:
                    base = None  # the quorum has gone on meanwhile

    def _report(self, applied: Applied, seconds: float) -> None:
        self.reached = applied.round
        self._setting.emit(
            "apply", round=applied.round, digest=applied.digest.hex(), parameters=applied.parameters.hex(),
            momentum=applied.momentum.hex(), seconds=seconds,
        )  # fmt: skip
        rounds, state = self._setting.bytes_sent()
        self._setting.emit("bytes", round=applied.round, rounds=rounds, state=state, total=rounds + state)

    # ---- work on it

    def work(self) -> None:
        """Give the workers what is due: an evaluation, a lease, or the end."""
        state = self._state()
        if state.base is None or self._training.running or self._workers.locked() or self._evaluating:
            return
        if state.finished:
            if not self.finished.is_set():
                self.finished.set()
                self._tasks.spawn(self._finish(), "finishing")
            return
        lease = state.lease
        if lease is None or state.contribution is not None or state.value.paused:
            return
        share = self._training.share
        if state.leaving:
            if share is not None and share.lease == lease and share.samples > 0:
                self._training.conclude(state.round)
            else:
                self._post(Trained(lease.start, Contribution()))
        elif self._evaluated < state.round and self._evaluates(state):
            self._evaluated, self._evaluating = state.round, True
            self._tasks.spawn(self._evaluate(state.round), "evaluation")
        else:
            inner = changed(self._setting.genesis.sections, state.value.parameters).inner
            self._training.begin(lease, state.round, inner.lr)

    def _evaluates(self, state: State) -> bool:
        """One voter evaluates each round, in turn."""
        voters = [e.peer for e in state.value.electorate]
        return bool(voters) and voters[state.round % len(voters)] == self._setting.me

    async def _evaluate(self, round_number: int) -> None:
        try:
            async with self._workers:
                loss = await self._trainer.evaluate()
            if loss is not None:
                self._setting.emit("evaluation", round=round_number, loss=loss)
        except NodeError as error:
            self._setting.emit(
                "evaluation.failed", round=round_number, code=str(error.code), reason=error.sentence
            )
        finally:
            self._evaluating = False
        self._post(Tick())

    async def _finish(self) -> None:
        assert self._applied is not None
        await self._evaluate(self._applied.round)
        self._setting.emit(
            "run.finished", round=self._applied.round, digest=self._applied.digest.hex(),
            parameters=self._applied.parameters.hex(), momentum=self._applied.momentum.hex(),
        )  # fmt: skip
