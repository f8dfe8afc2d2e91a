import asyncio
from collections.abc import AsyncIterator

import pytest

from protocol.identity import Identity
from protocol.paths.choice import Way
from protocol.paths.limits import MAX_STREAMS_PER_PEER
from protocol.paths.pipe import Duplex
from protocol.paths.tunnel import Dialling, Handler, Serving, tunnel_protocol
from protocol.units import Address, PeerId
from tests.protocol.paths.conftest import Pair

ME, PEER = (Identity.ephemeral(bytes([number]) * 32).peer_id for number in range(2))
RELAYED = f"/ip4/203.0.113.9/tcp/1/p2p/{PEER}/p2p-circuit"


class Wire:
    """Streams between two nodes of one process."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.handlers, self.opened, self.way = pair, {}, [], RELAYED
        self.tasks: set[asyncio.Future[None]] = set()

    async def open(self, peer: PeerId, name: str) -> tuple[Duplex, str]:
        if name not in self.handlers:
            raise OSError("no reservation")
        near, far = await self.pair()
        self.opened.append(name)
        handler: Handler = self.handlers[name]
        self.tasks.add(asyncio.ensure_future(handler(ME, self.way, far)))
        return near, self.way

    async def serve(self, name: str, handler: Handler) -> None:
        self.handlers[name] = handler


class Far:
    """The far node's data plane: it says in capitals what one says to it."""

    def __init__(self) -> None:
        self.connections = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while data := await reader.read(1000):
            writer.write(data.upper())
        writer.close()


@pytest.fixture
async def far() -> AsyncIterator[tuple[Far, Address]]:
    there = Far()
    server = await asyncio.start_server(there.take, "127.0.0.1", 0)
    yield there, Address("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()


async def test_a_connection_to_the_local_port_reaches_the_peers_data_plane(
    pair: Pair, far: tuple[Far, Address]
) -> None:
    wire, ways = Wire(pair), []
    await Serving(far[1]).attach(wire)
    dialling = Dialling(wire, lambda *way: ways.append(way), lambda *_: None)
    for plane, way, expected in (
        ("control", RELAYED, Way.RELAYED),
        ("bulk", "/ip4/203.0.113.9/tcp/1", Way.DIRECT),
    ):
        wire.way = way
        address = await dialling.port(PEER, plane)
        assert await dialling.port(PEER, plane) == address, "always the same one"
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"HELLO"
        assert ways[-1] == (PEER, plane, expected, way)
        writer.close()
    assert wire.opened == [tunnel_protocol("control"), tunnel_protocol("bulk")], "a stream for each"
    await dialling.stop()
    await asyncio.gather(*wire.tasks)


async def test_a_peer_that_cannot_be_reached_closes_the_connection_and_is_told(pair: Pair) -> None:
    failures = []
    dialling = Dialling(Wire(pair), lambda *_: None, lambda *failure: failures.append(failure))
    reader, _ = await asyncio.open_connection(*await dialling.port(PEER, "control"))
    with pytest.raises(OSError):
        if await reader.read() == b"":
            raise OSError
    assert failures == [(PEER, "control", "no reservation")]
    await dialling.stop()


async def test_one_peer_takes_only_so_many_streams(pair: Pair, far: tuple[Far, Address]) -> None:
    wire, serving = Wire(pair), Serving(far[1])
    await serving.attach(wire)
    streams = [(await wire.open(PEER, tunnel_protocol("bulk")))[0] for _ in range(MAX_STREAMS_PER_PEER + 1)]
    assert await streams[-1].reader.read() == b"", "the one too many is closed"
    assert serving.refused == 1 and far[0].connections <= MAX_STREAMS_PER_PEER
    streams[0].close()
    await asyncio.wait(wire.tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in [task for task in wire.tasks if task.done()]:
        await task
    for stream in streams:
        stream.close()
    await asyncio.gather(*wire.tasks)
    again, _ = await wire.open(PEER, tunnel_protocol("bulk"))
    again.writer.write(b"\x00\x00\x00\x00\x02hi")
    head = await again.reader.readexactly(5)
    assert head[0] in (0, 1), "after they ended there is room again"
    again.close()
    await asyncio.gather(*wire.tasks)


async def test_a_data_plane_that_is_not_there_ends_the_stream(pair: Pair) -> None:
    wire = Wire(pair)
    await Serving(Address("127.0.0.1", 1)).attach(wire)
    stream, _ = await wire.open(PEER, tunnel_protocol("control"))
    assert await stream.reader.read() == b""


async def test_there_are_two_planes_and_no_more(pair: Pair) -> None:
    with pytest.raises(ValueError):
        await Dialling(Wire(pair), lambda *_: None, lambda *_: None).port(PEER, "third")
