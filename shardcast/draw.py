"""Drawing the missing shards of one plan from its holders: one task per holder over one shared allotment."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.rpc import Endpoint
from protocol.units import PeerId
from shardcast.allotment import Allotment
from shardcast.carrier import asking
from shardcast.expect import Plan
from shardcast.messages import AskShards, Frame, Want
from shardcast.pace import Pace
from shardcast.partial import PartFile

_TICK = 0.25
"""Seconds after which idle holders and reserves are looked at again."""
_DULL = 8
"""A holder this many times slower than the best does not count as one drawn from."""
_CROWD = 4
"""Holders at work, dull ones included, per holder that is wanted."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fetch is.

    Attributes:
        name: Of the object.
        bytes: Verified bytes, those of an earlier start included.
        size: Bytes in all.
        shards: Verified shards.
        of: Shards in all.
        holders: Holders at work.
    """

    name: str
    bytes: int
    size: int
    shards: int
    of: int
    holders: int


class Local(Exception):
    """Something failed on this side, so no other holder would help."""

    def __init__(self, error: NodeError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class _Begun:
    """The first bytes of a shard and who sent them."""

    data: bytearray
    senders: set[PeerId]


class Drawing:
    """Draws what is missing.

    Attributes:
        fetched: Bytes that came.
        verified: Verified bytes by holder.
        starved: Whether it gave up because nothing came for too long.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        plan: Plan,
        part: PartFile,
        there: Collection[int],
        refuse: Callable[[PeerId, NodeError], None],
        progress: Callable[[Progress], None] | None,
        *,
        silence: timedelta,
        patience: timedelta,
    ) -> None:
        self.fetched = 0
        self.verified: dict[PeerId, int] = {}
        self.starved = False
        self._endpoint, self._plan, self._part = endpoint, plan, part
        self._refuse, self._progress = refuse, progress
        self._silence, self._patience = silence, patience
        self._book = Allotment({s.index: s.size for s in plan.shards if s.index not in there})
        self._done = plan.size - sum(s.size for s in plan.shards if s.index not in there)
        self._begun: dict[int, _Begun] = {}
        self._unmixed: set[int] = (
            set()
        )  # shards that two holders together got wrong: from one alone next time
        self._workers: dict[asyncio.Task[None], PeerId] = {}
        self._resting: set[PeerId] = set()
        self._change = asyncio.Event()
        self._last = monotonic()

    @property
    def left(self) -> int:
        """Shards still missing."""
        return self._book.left

    async def run(self, holders: Sequence[PeerId], parallel: int) -> None:
        """Draw until nothing is missing, nobody is left to ask, or nothing came for too long.

        Raises:
            Local: When a shard cannot be stored.
        """
        reserve = deque(holders)
        self._last = monotonic()
        try:
            while self._book.left:
                self._call_up(reserve, parallel)
                if not self._workers:
                    return
                if monotonic() - self._last > self._patience.total_seconds():
                    self.starved = True
                    return
                done, _ = await asyncio.wait(
                    self._workers, timeout=_TICK, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    del self._workers[task]
                    task.result()
        finally:
            for task in self._workers:
                task.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
            self._workers.clear()

    def _call_up(self, reserve: deque[PeerId], parallel: int) -> None:
        now = monotonic()
        rates = {holder: self._book.rate(holder, now) for holder in self._workers.values()}
        bar = max(max((r for r in rates.values() if r), default=0.0) / _DULL, 1.0)
        lively = sum(h not in self._resting and (r is None or r >= bar) for h, r in rates.items())
        while reserve and lively < parallel and len(self._workers) < _CROWD * parallel:
            holder = reserve.popleft()
            self._workers[asyncio.create_task(self._work(holder))] = holder
            lively += 1

    async def _work(self, holder: PeerId) -> None:
        pace = Pace(self._patience)
        while self._book.useful(holder):
            batch = self._book.draw(holder, monotonic())
            if not batch:
                await self._changed()
                continue
            before = self.verified.get(holder, 0)
            try:
                await self._draw(holder, batch)
                failure = None
            except NodeError as error:
                failure = error
            finally:
                self._book.end(holder, monotonic())
                self._signal()
            if self.verified.get(holder, 0) > before:
                pace.good()
            if failure is None:
                continue
            if not pace.again(failure):
                self._refuse(holder, failure)
                return
            self._resting.add(holder)
            await pace.pause()
            self._resting.discard(holder)

    async def _draw(self, holder: PeerId, batch: Sequence[int]) -> None:
        begun = {index: self._begun.pop(index, _Begun(bytearray(), set())) for index in batch}
        remaining = deque(batch)
        wanted = tuple(Want(index=index, offset=len(begun[index].data)) for index in batch)
        question = AskShards(name=self._plan.name, digest=self._plan.manifest_digest, wanted=wanted)
        try:
            async with asking(self._endpoint, holder, question, self._silence) as frames:
                async for frame in frames:
                    if not remaining:
                        raise _wrong(holder, "it sends more than was asked for")
                    if frame.index != remaining[0]:
                        raise _wrong(holder, f"it sends shard {frame.index} where {remaining[0]} is due")
                    if await self._take(holder, frame, begun[frame.index]):
                        remaining.popleft()
                        del begun[frame.index]
                        if not set(remaining) & set(self._book.unfinished(holder)):
                            return  # others brought the rest
        except NodeError as error:
            if error.code is Code.SHC_BAD_SHARD:
                begun.pop(remaining[0] if remaining else -1, None)
            raise
        finally:
            for index, piece in begun.items():
                if piece.data and index not in self._unmixed:
                    self._begun[index] = piece
        if remaining:
            raise _wrong(holder, f"its stream ends within shard {remaining[0]}")

    async def _take(self, holder: PeerId, frame: Frame, piece: _Begun) -> bool:
        """Take one frame in; true if its shard is dealt with, for good or ill."""
        shard = self._plan.shards[frame.index]
        if frame.missing:
            self._book.lack(holder, frame.index)
            return True
        if frame.offset != len(piece.data) or not 0 < len(frame.data) <= shard.size - frame.offset:
            raise _wrong(holder, f"it sends other bytes of shard {frame.index} than were due")
        piece.data += frame.data
        piece.senders.add(holder)
        self.fetched += len(frame.data)
        self._book.came(holder, len(frame.data))
        self._last = monotonic()
        if len(piece.data) < shard.size:
            return False
        try:
            right = await asyncio.to_thread(self._part.put, shard, piece.data)
        except NodeError as error:
            raise Local(error) from error
        if not right:
            if piece.senders == {holder}:
                raise _wrong(holder, f"its shard {frame.index} has other bytes than its hash says")
            self._unmixed.add(
                frame.index
            )  # one of several senders lied; who, the next try from one alone shows
            return True
        if self._book.finish(frame.index):
            self._done += shard.size
            self.verified[holder] = self.verified.get(holder, 0) + shard.size
            if self._progress is not None:
                self._progress(self._where())
        return True

    def _where(self) -> Progress:
        of = len(self._plan.shards)
        return Progress(
            self._plan.name, self._done, self._plan.size, of - self._book.left, of, len(self._workers)
        )

    def _signal(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _changed(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._change.wait(), _TICK)


def _wrong(holder: PeerId, why: str) -> NodeError:
    return NodeError(Code.SHC_BAD_SHARD, f"{holder} is left: {why}.", peer=holder)
