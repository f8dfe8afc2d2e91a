"""The groups of the next inner step: waited for a bounded time, and always with a reason that can be shown."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from diloco.member.setting import Emit
from diloco.rounds.values import Lease
from diloco.rounds.waiting import Waiting
from rl.orchestration.books import lease_of
from rl.orchestration.desk import Orchestrator
from rl.orchestration.feeding import next_batch
from rl.orchestration.waiting import nothing_in, waiting_for
from rl.rollouts.record import Group

_LOOK = timedelta(
    seconds=1
)  # what it waits for is looked at so often without news, as time alone may change it


@dataclass(frozen=True)
class Portion:
    """The data of one inner step.

    Attributes:
        groups: What is trained on, in position order; none where nothing up to the end of the lease is worth it.
        consumed: Positions of the lease that are used up with it.
        empties: Of these, those with nothing trained, by reason.
    """

    groups: tuple[Group, ...]
    consumed: int
    empties: Mapping[str, int]


class Feed:
    """Waits for groups on behalf of one trainer. For one event loop; one call of ``next`` at a time.

    Args:
        desk: The orchestrator.
        emit: The event log.
    """

    def __init__(self, desk: Orchestrator, emit: Emit) -> None:
        self._desk, self._emit = desk, emit
        self._stopping = asyncio.Event()
        self.waiting: Waiting | None = None
        """What is waited for now, for whoever shows it."""

    def stop(self) -> None:
        """End the running ``next``, which then gives nothing."""
        self._stopping.set()

    async def next(
        self, lease: Lease, round_number: int, *, done: int, size: int, patience: timedelta
    ) -> Portion | None:
        """The groups of the next inner step of a lease; None when the time is over, or the round, or somebody stops it.

        Args:
            lease: This trainer's lease.
            round_number: The round that trains on it.
            done: Positions of it that are used up.
            size: Positions of a step.
            patience: How long to wait at most.
        """
        self._stopping.clear()
        until = self._desk.now + patience.total_seconds()
        try:
            while self._desk.state.policy <= round_number:
                changed = self._desk.changed
                if self._desk.state.policy == round_number:
                    if lease_of(self._desk.state.value, self._desk.state.me) != lease:
                        return None
                    if (portion := await self._portion(lease, done, size)) is not None:
                        return portion
                    self._say(waiting_for(self._desk.state, lease, done, size, self._desk.now, until))
                now = self._desk.now
                if now >= until:
                    if self.waiting is not None:
                        reason, sentence = self.waiting.reason, self.waiting.sentence
                        self._emit("rollouts.timeout", reason=reason, sentence=sentence)
                    return None
                if await self._news(changed, min(until - now, _LOOK.total_seconds())):
                    return None
            return None
        finally:
            self.waiting = None

    async def _portion(self, lease: Lease, done: int, size: int) -> Portion | None:
        """The next step's groups, if all are there."""
        while (batch := next_batch(self._desk.state, lease, done, size)) is not None:
            if not batch.groups:
                self._say(nothing_in(lease, batch, self._desk.state.policy))
                return Portion((), batch.consumed, batch.empties)
            groups = await self._desk.groups(batch.groups)
            if groups is not None and next_batch(self._desk.state, lease, done, size) == batch:
                return Portion(groups, batch.consumed, batch.empties)
        return None

    async def _news(self, changed: asyncio.Event, seconds: float) -> bool:
        """Wait for a change, for so long; whether somebody stops it."""
        waits = [asyncio.ensure_future(event.wait()) for event in (changed, self._stopping)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each
        return self._stopping.is_set()

    def _say(self, said: Waiting) -> None:
        """Write what is waited for when it is another thing than before; numbers alone are no news."""
        if self.waiting is None or (self.waiting.reason, self.waiting.missing) != (said.reason, said.missing):
            self._emit(
                "rollouts.waiting", reason=said.reason, sentence=said.sentence, missing=list(said.missing)
            )
        self.waiting = said
