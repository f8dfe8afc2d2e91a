"""Carries the bytes of one connection inside a stream: frames one way, acknowledgements the other.

A frame is one byte of kind, four of length, big-endian, and that many bytes: kind 0 is data, kind 1 the number of data
bytes that the receiver has delivered so far, eight bytes. What is under way is bounded by :mod:`protocol.paths.window`,
so is what either end holds, and whoever does not read makes the other end's reader wait, not its memory grow.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from protocol.paths.limits import CHUNK, LINGER, MAX_WINDOW
from protocol.paths.window import Window

_DATA, _DELIVERED = 0, 1
_HEAD = 5


@dataclass(frozen=True)
class Duplex:
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """Ends it without waiting for what is unsent: the end of one side of a tunnel is the end of all."""
        with contextlib.suppress(AttributeError):  # of a transport that was closed and has ended since
            self.writer.transport.abort()


async def carry(local: Duplex, stream: Duplex, *, clock: Callable[[], float] = time.monotonic) -> Window:
    """Carries a local connection inside a stream until either ends, then closes both.

    Returns:
        The window, which knows how much was sent and delivered.
    """
    carrier = _Carrier(local, stream, clock)
    tasks = [asyncio.ensure_future(part) for part in (carrier.outward(), carrier.inward(), carrier.deliver())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(Exception):
            await asyncio.gather(*tasks, return_exceptions=True)
        local.close()
        stream.close()
    return carrier.window


class _Carrier:
    def __init__(self, local: Duplex, stream: Duplex, clock: Callable[[], float]) -> None:
        self._local, self._stream, self._clock = local, stream, clock
        self.window = Window(clock())
        self._acknowledged = asyncio.Event()
        self._arrived = asyncio.Event()
        self._received = self._delivered = 0
        # to have drained means that the kernel has it
        local.writer.transport.set_write_buffer_limits(high=0)
        stream.writer.transport.set_write_buffer_limits(high=int(CHUNK))

    async def outward(self) -> None:
        """From the local connection into the stream."""
        while True:
            while (room := self.window.room()) <= 0:
                self._acknowledged.clear()
                await self._acknowledged.wait()
            data = await self._local.reader.read(min(int(CHUNK), room))
            if not data:
                break
            self.window.send(len(data), self._clock())
            await self._write(_DATA, data)
        async with asyncio.timeout(LINGER.total_seconds()):  # what was said last is to arrive
            while self.window.delivered < self.window.sent:
                self._acknowledged.clear()
                await self._acknowledged.wait()

    async def inward(self) -> None:
        """From the stream: data for the local connection, and what the other end delivered."""
        reader = self._stream.reader
        while True:
            try:
                head = await reader.readexactly(_HEAD)
                kind, size = head[0], int.from_bytes(head[1:], "big")
                if kind > _DELIVERED or size > CHUNK:
                    return
                data = await reader.readexactly(size)
            except (asyncio.IncompleteReadError, OSError):
                async with asyncio.timeout(LINGER.total_seconds()):
                    await self._local.writer.drain()
                return
            if kind == _DELIVERED:
                try:
                    self.window.acknowledge(int.from_bytes(data, "big"), self._clock())
                except ValueError:
                    return
                self._acknowledged.set()
                continue
            self._received += size
            if self._received - self._delivered > MAX_WINDOW + CHUNK:
                return  # it does not keep to what it may have under way
            self._local.writer.write(data)
            self._arrived.set()

    async def deliver(self) -> None:
        """Tells the other end what the local connection has taken."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            so_far = self._received
            try:
                await self._local.writer.drain()
                self._delivered = so_far
                await self._write(_DELIVERED, so_far.to_bytes(8, "big"))
            except OSError:
                return

    async def _write(self, kind: int, data: bytes) -> None:
        self._stream.writer.write(bytes((kind,)) + len(data).to_bytes(4, "big") + data)
        await self._stream.writer.drain()
