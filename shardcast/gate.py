"""How many a node serves at once: a few places, given in order of asking, so that its own work hardly slows.

Shards ride on whatever upload limit the endpoint has; the gate bounds disk reads, hashing and memory.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from datetime import timedelta

from protocol.errors import Code, NodeError
from shardcast import limits


class Place:
    """The right to send, lost when the receiver leaves a frame unread for too long."""

    def __init__(self, free: asyncio.Semaphore, stall: timedelta) -> None:
        self._free = free
        self._stall = stall.total_seconds()
        self._timer: asyncio.TimerHandle | None = None
        self._held = True

    def handing_over(self) -> None:
        """Begin to hand a frame over; from now on the receiver is waited for."""
        self._timer = asyncio.get_running_loop().call_later(self._stall, self.give_up)

    def handed_over(self) -> None:
        """The frame was taken.

        Raises:
            NodeError: SHC_BUSY, when that took so long that the place went to another.
        """
        if self._timer is not None:
            self._timer.cancel()
        if not self._held:
            raise NodeError(Code.SHC_BUSY, "The stream was read too slowly and lost its place.")

    def give_up(self) -> None:
        """Let the next one in; a second time changes nothing."""
        if self._timer is not None:
            self._timer.cancel()
        if self._held:
            self._held = False
            self._free.release()


class Gate:
    """Lets a few streams through at once and a few of one peer.

    Args:
        places: Streams at once.
        per_peer: Streams that one peer may have, waiting ones included.
        waiting: Requests that may wait.
        patience: How long one waits before it is told to come back.
        stall: How long a receiver may leave a frame unread.
    """

    def __init__(
        self,
        places: int,
        *,
        per_peer: int = limits.STREAMS_PER_CLIENT,
        waiting: int = limits.MAX_WAITING,
        patience: timedelta = limits.QUEUE_WAIT,
        stall: timedelta = limits.STALL,
    ) -> None:
        self._free = asyncio.Semaphore(places)
        self._per_peer = per_peer
        self._room = waiting
        self._patience = patience
        self._stall = stall
        self._streams: Counter[Hashable] = Counter()
        self.serving = 0
        self.most = 0

    @contextlib.asynccontextmanager
    async def admit(self, peer: Hashable) -> AsyncIterator[Place]:
        """Wait for a place, in order of asking.

        Raises:
            NodeError: SHC_BUSY, when there was none in time, too many wait, or the peer has its share already.
        """
        if self._streams[peer] >= self._per_peer or self._room <= 0:
            raise NodeError(Code.SHC_BUSY, "As many streams are open as may be.")
        self._streams[peer] += 1
        try:
            place = await self._wait()
            self.serving += 1
            self.most = max(self.most, self.serving)
            try:
                yield place
            finally:
                self.serving -= 1
                place.give_up()
        finally:
            self._streams[peer] -= 1
            if not self._streams[peer]:
                del self._streams[peer]

    async def _wait(self) -> Place:
        self._room -= 1
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                await self._free.acquire()
        except TimeoutError:
            raise NodeError(Code.SHC_BUSY, "All places are taken.") from None
        finally:
            self._room += 1
        return Place(self._free, self._stall)
