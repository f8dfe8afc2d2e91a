import asyncio
import os

import pytest

from protocol.paths.limits import CHUNK, MAX_WINDOW
from protocol.paths.pipe import Duplex, carry
from tests.protocol.paths.conftest import Pair


async def tunnel(pair: Pair) -> tuple[Duplex, Duplex, asyncio.Future[object]]:
    """The two applications' ends of a tunnel, and what ends when the tunnel does."""
    near, near_local = await pair()
    far, far_local = await pair()
    near_stream, far_stream = await pair()
    both = asyncio.gather(carry(near_local, near_stream), carry(far_local, far_stream))
    return near, far, both


async def test_bytes_arrive_in_order_both_ways(pair: Pair) -> None:
    near, far, _ = await tunnel(pair)
    data = os.urandom(3 * 10**6)

    async def send(end: Duplex) -> None:
        end.writer.write(data)
        await end.writer.drain()

    got = await asyncio.gather(
        near.reader.readexactly(len(data)), far.reader.readexactly(len(data)), send(near), send(far)
    )
    assert got[:2] == [data, data]


async def test_what_was_said_last_arrives_before_the_end(pair: Pair) -> None:
    near, far, both = await tunnel(pair)
    near.writer.write(b"x" * 300_000)
    near.writer.close()
    assert await far.reader.read(-1) == b"x" * 300_000
    await both


async def test_who_does_not_read_makes_the_writer_wait(pair: Pair) -> None:
    near, _, _ = await tunnel(pair)
    written = 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            while True:
                near.writer.write(bytes(int(CHUNK)))
                await near.writer.drain()
                written += int(CHUNK)
    assert written < MAX_WINDOW, "the buffers on the way are bounded, whatever is to be sent"


@pytest.mark.parametrize(
    "frame",
    [
        b"\x02\x00\x00\x00\x00",  # no such kind
        b"\x00\xff\xff\xff\xff",  # too large
        b"\x01\x00\x00\x00\x08" + (10**9).to_bytes(8, "big"),  # delivered what was never sent
        b"\x01\x00\x01\x00\x01" + bytes(65537),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00",
    ],
)
async def test_a_stream_that_breaks_the_rules_ends(pair: Pair, frame: bytes) -> None:
    local, application = await pair()
    stream, other = await pair()
    carried = asyncio.ensure_future(carry(local, stream))
    other.writer.write(frame)
    if len(frame) < 5:
        other.writer.close()
    async with asyncio.timeout(60):
        await carried
        assert await application.reader.read() == b""


async def test_one_who_ignores_the_window_is_cut_off(pair: Pair) -> None:
    local, _ = await pair()  # nobody reads what arrives
    stream, other = await pair()
    carried = asyncio.ensure_future(carry(local, stream))
    frame = b"\x00" + int(CHUNK).to_bytes(4, "big") + bytes(int(CHUNK))
    sent = 0
    async with asyncio.timeout(60):
        with pytest.raises(OSError):
            while True:
                other.writer.write(frame)
                await other.writer.drain()
                sent += int(CHUNK)
        await carried
    assert sent < 2 * MAX_WINDOW
