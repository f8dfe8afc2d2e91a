"""How many a node serves at once: a few places, given in order of asking, so that its own work hardly slows.

Shards ride on whatever upload limit the endpoint has, and the endpoint ends a stream that is not read; the gate bounds
disk reads, hashing and memory.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from datetime import timedelta

from protocol.errors import Code, NodeError
from shardcast import limits


class Gate:
    """Lets a few streams through at once and a few of one peer.

    Args:
        places: Streams at once.
        per_peer: Streams that one peer may have, waiting ones included.
        waiting: Requests that may wait.
        patience: How long one waits before it is told to come back.

    Attributes:
        serving: Streams let through at the moment.
        most: The most there ever were at once.
    """

    def __init__(
        self,
        places: int,
        *,
        per_peer: int = limits.STREAMS_PER_CLIENT,
        waiting: int = limits.MAX_WAITING,
        patience: timedelta = limits.QUEUE_WAIT,
    ) -> None:
        self._free = asyncio.Semaphore(places)
        self._per_peer = per_peer
        self._room = waiting
        self._patience = patience
        self._streams: Counter[Hashable] = Counter()
        self.serving = 0
        self.most = 0

    @contextlib.asynccontextmanager
    async def admit(self, peer: Hashable) -> AsyncIterator[None]:
        """Wait for a place, in order of asking, and hold it.

        Raises:
            NodeError: SHC_BUSY, when there was none in time, too many wait, or the peer has its share already.
        """
        if self._streams[peer] >= self._per_peer or self._room <= 0:
            raise NodeError(Code.SHC_BUSY, "As many streams are open as may be.")
        self._streams[peer] += 1
        try:
            await self._wait()
            self.serving += 1
            self.most = max(self.most, self.serving)
            try:
                yield
            finally:
                self.serving -= 1
                self._free.release()
        finally:
            self._streams[peer] -= 1
            if not self._streams[peer]:
                del self._streams[peer]

    async def _wait(self) -> None:
        self._room -= 1
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                await self._free.acquire()
        except TimeoutError:
            raise NodeError(Code.SHC_BUSY, "All places are taken.") from None
        finally:
            self._room += 1
