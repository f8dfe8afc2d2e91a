"""Drawing the missing shards of one object from its holders: a few tasks over one shared allotment.

Each task is a *hand* that draws from one holder. A carrier says how many hands may draw from one holder at once;
several holders get one each, a single one gets them all. Now and then a holder that was not heard yet takes
the place of the slowest.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from shardcast import limits
from shardcast.allotment import Allotment
from shardcast.carrier import Arrival, Carrier
from shardcast.manifest import Shard
from shardcast.pace import Pace
from shardcast.partial import PartFile
from shardcast.piece import Piece, wrong

_TICK = 0.25
"""Seconds after which idle hands and reserves are looked at again."""
_DULL = 8
"""A holder this many times slower than the best does not count as one drawn from."""
_CROWD = 4
"""Hands at work, dull ones included, per hand that is wanted."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fetch is.

    Attributes:
        name: Of the object.
        bytes: Verified bytes, those of an earlier start included.
        size: Bytes in all.
        shards: Verified shards.
        of: Shards in all, as far as they are known.
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


class Watcher(Protocol):
    """Who wants to see pieces while they come, for instance to pass them on."""

    def coming(self, piece: Piece) -> None:
        """A piece is drawn now; it may hold bytes already. Called again when another holder goes on with it."""
        ...

    def grew(self, piece: Piece) -> None:
        """More bytes are there, or the verdict is."""
        ...


class _Hand(NamedTuple):
    holder: str
    lane: int


class Drawing:
    """Draws what is missing. Shards may be added while it runs, until it is sealed.

    Args:
        carrier: By which way.
        name: Of the object, for messages.
        size: Bytes of the object.
        part: Where verified shards go.
        refuse: Told of holders that are left.
        progress: Called after every shard, in the event loop.
        patience: How long nothing may come while something is missing.
        watcher: Sees pieces while they come.

    Attributes:
        fetched: Bytes that came.
        verified: Verified bytes by holder.
        starved: Whether it gave up because nothing came for too long.
    """

    def __init__(
        self,
        carrier: Carrier,
        name: str,
        size: int,
        part: PartFile,
        refuse: Callable[[str, NodeError], None],
        progress: Callable[[Progress], None] | None,
        *,
        patience: timedelta,
        watcher: Watcher | None = None,
    ) -> None:
        self.fetched = 0
        self.verified: dict[str, int] = {}
        self.starved = False
        self._carrier, self._name, self._size, self._part = carrier, name, size, part
        self._refuse, self._progress, self._watcher = refuse, progress, watcher
        self._patience = patience
        self._shards: list[Shard] = []
        self._sealed = False
        self._book = Allotment({}, carrier.batch)
        self._done = 0
        self._spare: list[bytearray] = []
        self._begun: dict[int, Piece] = {}
        self._unmixed: set[int] = (
            set()
        )  # shards that two holders got wrong together: from one alone next time
        self._hands: dict[asyncio.Task[None], _Hand] = {}
        self._left_behind: dict[str, NodeError] = {}  # holders refused, with the reason
        self._reserve: deque[str] = deque()
        self._resting: set[_Hand] = set()
        self._relieved: set[_Hand] = set()  # hands that make room for a holder that was not heard yet
        self._change = asyncio.Event()
        self._last = monotonic()
        self._explored = monotonic()

    @property
    def left(self) -> int:
        """Shards still missing, of those that are known."""
        return self._book.left

    def add(self, shards: Iterable[Shard], there: Collection[int] = ()) -> None:
        """Say which shards follow in order, and which of them are there already."""
        if not self._book.left:
            self._last = monotonic()  # nothing was missing until now
        for shard in shards:
            self._shards.append(shard)
            if shard.index in there:
                self._done += shard.size
            else:
                self._book.add(shard.index, shard.size)
        self._signal()

    def seal(self) -> None:
        """Say that no more shards follow."""
        self._sealed = True
        self._signal()

    def offer(self, holder: str) -> None:
        """One more holder may be asked; one that is known already changes nothing."""
        known = {hand.holder for hand in self._hands.values()} | self._left_behind.keys() | set(self._reserve)
        if holder not in known and len(known) < limits.MAX_HOLDERS:
            self._reserve.append(holder)
            self._signal()

    async def run(self, holders: Sequence[str], parallel: int) -> None:
        """Draw until nothing is missing, nobody is left to ask, or nothing came for too long.

        Raises:
            Local: When a shard cannot be stored.
        """
        self._reserve.extend(holder for holder in holders if holder not in self._reserve)
        self._last = self._explored = monotonic()
        try:
            while self._book.left or not self._sealed:
                self._call_up(parallel)
                if not self._book.left:
                    await self._changed()
                    self._last = monotonic()
                    self._reap()
                    continue
                if not self._hands:
                    return
                if monotonic() - self._last > self._patience.total_seconds():
                    self.starved = True
                    return
                change = asyncio.ensure_future(self._change.wait())
                await asyncio.wait((*self._hands, change), timeout=_TICK, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                self._reap()
        finally:
            for task in self._hands:
                task.cancel()
            await asyncio.gather(*self._hands, return_exceptions=True)
            self._hands.clear()
            for piece in self._begun.values():
                self._settle(piece, False)

    def _reap(self) -> None:
        for task in [task for task in self._hands if task.done()]:
            hand = self._hands.pop(task)
            task.result()
            failure = self._left_behind.get(hand.holder)
            if failure is not None and not any(h.holder == hand.holder for h in self._hands.values()):
                self._refuse(hand.holder, failure)

    def _call_up(self, parallel: int) -> None:
        now = monotonic()
        rates = {hand: self._book.rate(hand, now) for hand in self._hands.values()}
        bar = max(max((r for r in rates.values() if r), default=0.0) / _DULL, 1.0)
        lively = [h for h, r in rates.items() if h not in self._resting and (r is None or r >= bar)]
        wanted = parallel - len(lively)
        spare = [hand for hand in lively if hand.lane and hand not in self._relieved]
        if wanted <= 0 and self._reserve and spare:
            self._relieved.add(spare[-1])  # another holder is worth more than one more hand at the same
            wanted = 1
        elif wanted <= 0 and self._reserve and now - self._explored > limits.EXPLORE.total_seconds():
            self._explored, wanted = now, 1  # one that was not heard yet may be faster than all of these
            known = {hand: rate for hand, rate in rates.items() if rate is not None}
            if known:
                self._relieved.add(min(known, key=lambda hand: known[hand]))
        while wanted > 0 and len(self._hands) < _CROWD * parallel:
            if self._reserve:
                hand = _Hand(self._reserve.popleft(), 0)
            elif (again := self._another_lane(lively)) is not None:
                hand = again
            else:
                break
            self._hands[asyncio.create_task(self._work(hand))] = hand
            lively.append(hand)
            wanted -= 1

    def _another_lane(self, lively: Iterable[_Hand]) -> _Hand | None:
        """One more hand for the holder that has the fewest, if it may have one."""
        taken: dict[str, set[int]] = {hand.holder: set() for hand in lively}
        for hand in self._hands.values():
            taken.setdefault(hand.holder, set()).add(hand.lane)
        lanes = range(self._carrier.lanes)
        free = {h: t for h, t in taken.items() if len(t) < len(lanes) and h not in self._left_behind}
        if not free:
            return None
        holder = min(free, key=lambda h: len(free[h]))
        return _Hand(holder, min(set(lanes) - free[holder]))

    async def _work(self, hand: _Hand) -> None:
        pace = Pace(self._patience)
        while (not self._sealed or self._book.useful(hand)) and hand.holder not in self._left_behind:
            if hand in self._relieved:
                self._relieved.discard(hand)
                if not hand.lane:
                    self._reserve.append(hand.holder)
                return
            batch = self._book.draw(hand, monotonic())
            if not batch:
                await self._changed()  # who left instead would be called up again at once, and again
                continue
            before = self.verified.get(hand.holder, 0)
            try:
                await self._draw(hand, batch)
                failure = None
            except NodeError as error:
                failure = error
            finally:
                self._book.end(hand, monotonic())
                self._signal()
            if self.verified.get(hand.holder, 0) > before:
                pace.good()
            if failure is None:
                continue
            if not pace.again(failure):
                self._left_behind[hand.holder] = failure
                return
            self._resting.add(hand)
            await pace.pause()
            self._resting.discard(hand)

    async def _draw(self, hand: _Hand, batch: Sequence[int]) -> None:
        pieces = {index: self._begun.pop(index, self._piece(index)) for index in batch}
        left = deque(batch)
        if self._watcher is not None:
            for piece in pieces.values():
                self._watcher.coming(piece)
        try:
            async with self._carrier.draw(hand.holder, tuple(pieces.values())) as arrivals:
                async for arrival in arrivals:
                    if self._take(hand, arrival, pieces[arrival.index]):
                        left.remove(arrival.index)
                        del pieces[arrival.index]
                        if not set(left) & set(self._book.unfinished(hand)):
                            return  # others brought the rest
        except NodeError as error:
            if error.code is Code.SHC_BAD_SHARD and left:
                self._settle(pieces.pop(left[0]), False)
            raise
        finally:
            for index, piece in pieces.items():
                if piece.have and not piece.whole and index not in self._unmixed:
                    self._begun[index] = piece
                else:
                    self._settle(piece, False)
        if left:
            raise wrong(hand.holder, f"its stream ends within shard {left[0]}")

    def _take(self, hand: _Hand, arrival: Arrival, piece: Piece) -> bool:
        """Take note of what came; true if its shard is dealt with, for good or ill."""
        shard = piece.shard
        if arrival.missing:
            self._book.lack(hand, arrival.index)
            return True
        piece.senders.add(hand.holder)
        size = piece.have - piece.counted  # may be more than was reported yet
        piece.counted += size
        self.fetched += size
        self._book.came(hand, size)
        self._last = monotonic()
        if self._watcher is not None:
            self._watcher.grew(piece)
        if not arrival.whole:
            return False
        if isinstance(piece.stored, NodeError):
            raise Local(piece.stored) from piece.stored
        if not piece.stored:
            if piece.senders == {hand.holder}:
                raise wrong(hand.holder, f"its shard {shard.index} has other bytes than its hash says")
            self._unmixed.add(shard.index)  # one of several lied; who, the next try from one alone shows
            self._settle(piece, False)
            return True
        if self._book.finish(shard.index):
            self._done += shard.size
            self.verified[hand.holder] = self.verified.get(hand.holder, 0) + shard.size
            if self._progress is not None:
                self._progress(self._where())
        self._settle(piece, True)
        return True

    def _piece(self, index: int) -> Piece:
        return Piece(self._shards[index], self._spare, self._part.put)

    def _settle(self, piece: Piece, verdict: bool) -> None:
        piece.verdict = verdict
        if self._watcher is not None:
            self._watcher.grew(piece)
        if verdict:
            piece.give_back()

    def _where(self) -> Progress:
        of = len(self._shards)
        holders = len({hand.holder for hand in self._hands.values()})
        return Progress(self._name, self._done, self._size, of - self._book.left, of, holders)

    def _signal(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _changed(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_TICK):  # wait_for may swallow being cancelled
                await self._change.wait()
