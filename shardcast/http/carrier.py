"""The carrier over HTTP: each shard is one GET of its own immutable address, read straight into its piece."""

import asyncio
import http.client
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

from protocol.errors import Code, NodeError
from shardcast import limits
from shardcast.carrier import Arrival
from shardcast.http.source import THREADS, Link, Source
from shardcast.piece import Piece, wrong

_REPORT = 0.1
"""Seconds between two reports of one piece."""
_PASSED_ON = 0.01
"""The same where bytes are passed on as they come."""
_STEP = 64 * limits.KIB
"""Bytes of one read at least; up to 1 MiB while that takes less than 10 ms."""


class HttpCarrier:
    """Fetches shards from servers. Used in one event loop; `close` ends idle connections.

    Args:
        sources: By URL, which is what holders are called; more may be added while it is used.
        silence: How long a source may bring nothing.
        passed_on: Whether somebody waits for every byte.
    """

    lanes = limits.HTTP_LANES
    batch = (
        1  # as many requests on one connection would save one round trip, several connections save it as well
    )

    def __init__(self, sources: Mapping[str, Source], silence: timedelta, *, passed_on: bool = False) -> None:
        self._sources = sources
        self._silence = silence.total_seconds()
        self._report = _PASSED_ON if passed_on else _REPORT
        self._idle: dict[str, list[Link]] = {}

    @asynccontextmanager
    async def draw(self, holder: str, pieces: Sequence[Piece]) -> AsyncIterator[AsyncIterator[Arrival]]:
        """See :class:`shardcast.carrier.Carrier`."""
        idle = self._idle.setdefault(holder, [])
        link = idle.pop() if idle else Link(self._sources[holder], self._silence)
        transfer = _Transfer(link, pieces, self._report)
        arrivals = self._arrivals(transfer)
        try:
            async with aclosing(arrivals):
                yield arrivals
        finally:
            if transfer.over:
                await _joined(transfer.work)
            if not transfer.work.done():
                link.abort()
                await _joined(transfer.work)
            elif transfer.work.exception() is None:
                idle.append(link)
            else:
                link.close()

    def close(self) -> None:
        """End every idle connection."""
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()

    async def _arrivals(self, transfer: "_Transfer") -> AsyncGenerator[Arrival, None]:
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    arrival = await transfer.next()
            except TimeoutError:
                url = transfer.link.source.url
                raise NodeError(Code.NET_TIMEOUT, f"{url} is silent for too long.", peer=url) from None
            if arrival is None:
                return
            yield arrival


async def _joined(work: "asyncio.Future[None]") -> None:
    """Wait for a thread that was told to end; it writes into memory that others get next."""
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError:
            cancelled = True
    if not work.cancelled():
        work.exception()
    if cancelled:
        raise asyncio.CancelledError


class _Transfer:
    """One draw in a thread, and what it reports to the event loop."""

    def __init__(self, link: Link, pieces: Sequence[Piece], every: float) -> None:
        self.link = link
        self._pieces, self._every = pieces, every
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._arrivals: list[Arrival] = []
        self.over = False  # the last piece is there: the thread ends in a moment
        self.work = self._loop.run_in_executor(THREADS, self._run)
        self.work.add_done_callback(lambda _: self._news.set())

    async def next(self) -> Arrival | None:
        """What came next; None at the end. Raises what the thread raised."""
        while not self._arrivals:
            if self.work.done():
                self.work.result()
                return None
            self._news.clear()
            await self._news.wait()
        return self._arrivals.pop(0)

    def _report(self, arrival: Arrival) -> None:
        self._arrivals.append(arrival)
        self._news.set()

    def _run(self) -> None:
        for piece in self._pieces:
            try:
                self._fetch(piece)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self.link.failed(error) from error

    def _fetch(self, piece: Piece) -> None:
        shard, url = piece.shard, self.link.source.url
        start = piece.have
        response = self.link.get(f"/shards/{shard.digest.hex()}", start=start)
        if response.status == 200:
            start = 0  # it does not know ranges, and sends all
        if response.length != shard.size - start:
            self.link.close()
            raise wrong(url, f"its shard {shard.index} has not the {shard.size} bytes that it should")
        if start == 0 and piece.have:
            self._skip(response, piece.have)
        room, at, step = piece.room, 0, _STEP
        last = before = time.monotonic()
        end = len(room)
        while at < end:
            count = self.link.read_into(response, room[at : at + step])
            if not count:
                raise ConnectionResetError(f"the stream ends within shard {shard.index}")
            at += count
            piece.advance(count)
            now = time.monotonic()
            step = min(2 * step, 16 * _STEP) if now - before < _PASSED_ON else max(step // 2, _STEP)
            before = now
            if now - last >= self._every and at < end:
                self._loop.call_soon_threadsafe(self._report, Arrival(shard.index))
                last = now
        room.release()  # so that the memory may go to the next piece
        piece.store()
        self.over = piece is self._pieces[-1]
        self._loop.call_soon_threadsafe(self._report, Arrival(shard.index, whole=True))

    @staticmethod
    def _skip(response: http.client.HTTPResponse, count: int) -> None:
        while count:
            data = response.read(min(count, limits.FRAME))
            if not data:
                raise ConnectionResetError("the stream ends too early")
            count -= len(data)
