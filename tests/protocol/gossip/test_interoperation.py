"""The hosts of the hivemind DHT, a go-libp2p program: it dials ours and is dialled, and passes our topics on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from protocol.directory.p2pd import default_program
from protocol.gossip import host, neighbours
from protocol.identity import Identity, public_key_of
from protocol.messages import field, part
from protocol.messages.wire import runtime_class
from tests.protocol.gossip.conftest import MakeNode
from tests.protocol.gossip.scene import Node
from tests.protocol.gossip.words import News

TOPIC = "gossip-tests.news"


@part
class Connect:
    """p2pd's ConnectRequest."""

    peer: bytes = field(1)
    addrs: tuple[bytes, ...] = field(2, default=())


@part
class PubSub:
    """p2pd's PSRequest."""

    type: int = field(1, kind="uint32")
    topic: str = field(2, default="")
    data: bytes = field(3, default=b"")


@part
class Ask:
    """p2pd's Request: 0 asks who it is, 1 has it connect, 8 is about topics."""

    type: int = field(1, kind="uint32")
    connect: Connect | None = field(2, default=None)
    pubsub: PubSub | None = field(8, default=None)


class Helper:
    """The network helper of hivemind with its own topics switched on, under the key of a node."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self.identity, self._folder, self._socket = identity, folder, folder / "c"
        self._streams: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        key = self._folder / "key"
        key.write_bytes(b"\x08\x01\x12\x40" + self.identity.seed + self.identity.public_key)
        self._process = await asyncio.create_subprocess_exec(
            str(default_program()), "-pubsub", "-tls=1", f"-id={key}", f"-listen=/unix{self._socket}",
            "-hostAddrs=/ip4/127.0.0.1/tcp/0", "-relay=0", "-relayService=0", "-gossipsubHeartbeatInterval=200ms",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            text = line.decode().strip()
            if text.startswith("/ip4/127.0.0.1/tcp/"):
                self.multiaddr = f"{text.split('/p2p/')[0]}/p2p/{self.identity.peer_id}"
                return

    async def stop(self) -> None:
        for stream in self._streams:
            stream.close()
        self._process.kill()
        await self._process.wait()

    async def _ask(self, **what: Any) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        self._streams.append(writer)
        factory: Any = runtime_class(Ask)
        request = factory(**what)
        data = request.SerializeToString()
        writer.write(varint(len(data)) + data)
        answer = await read(reader)
        assert answer.startswith(b"\x08\x00"), answer  # type: OK
        return reader

    async def follow(self) -> None:
        """Subscribe to News; from then on it passes them on."""
        self.heard = await self._ask(type=8, pubsub={"type": 3, "topic": TOPIC})

    async def hears(self) -> bytes:
        return await read(self.heard)

    async def dial(self, node: Node) -> None:
        _, _, host, _, port, _, peer = node.carrier.multiaddrs[0].split("/")
        address = b"\x04" + bytes(map(int, host.split("."))) + b"\x06" + int(port).to_bytes(2)
        await self._ask(type=1, connect={"peer": raw_id(peer), "addrs": [address]})


def raw_id(peer: str) -> bytes:
    return b"\x00\x24\x08\x01\x12\x20" + public_key_of(peer)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


async def read(reader: asyncio.StreamReader) -> bytes:
    length = shift = 0
    while True:
        (byte,) = await reader.readexactly(1)
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return await reader.readexactly(length)


@pytest.fixture
async def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Helper]:
    for module in (neighbours, host):  # it says nothing of our own, so its messages wait until that is sure
        monkeypatch.setattr(module, "HELLO", timedelta(milliseconds=500))
    made = Helper(tmp_path, Identity.ephemeral())
    async with asyncio.timeout(30):
        await made.start()
    yield made
    with contextlib.suppress(ProcessLookupError):
        await made.stop()


async def test_a_message_goes_through_the_hosts_of_hivemind_whoever_dialled(
    node: MakeNode, helper: Helper
) -> None:
    def member(peer: str) -> bool:
        return peer == helper.identity.peer_id

    dials, is_dialled = await node(is_member=member), await node(is_member=member)
    await helper.follow()
    await dials.carrier.connect(helper.multiaddr)
    await helper.dial(is_dialled)
    async with asyncio.timeout(60):
        await dials.carrier.meshed(TOPIC, 1)
        await is_dialled.carrier.meshed(TOPIC, 1)
    sealed = await dials.gossip.publish(News(text="one way"))
    await is_dialled.hears("one way")
    async with asyncio.timeout(60):
        assert sealed.raw in await helper.hears(), (
            "and the other program's own subscribers have it, unchanged"
        )
    await is_dialled.gossip.publish(News(text="and the other"))
    await dials.hears("and the other")
    assert {one.node for one in await dials.carrier.neighbours()} == {helper.identity.peer_id}
