import asyncio
import json
from datetime import timedelta

import pytest

from protocol.identity import Identity
from protocol.paths import punch
from protocol.paths.limits import PUNCHES_FROM_ONE
from protocol.paths.pipe import Duplex
from protocol.paths.punch import PROTOCOL, Punching, accept, invite
from protocol.units import PeerId
from tests.protocol.paths.conftest import Pair

ME, PEER = (Identity.ephemeral(bytes([number]) * 32).peer_id for number in range(2))
HERE = "127.0.0.1"


@pytest.fixture
def crossing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that cross, as they do on a network with delay; on loopback the first is refused at once.

    The lab's tests open real ones.
    """
    waiting: dict[frozenset[int], Duplex] = {}
    lock = asyncio.Lock()

    async def open_one(hole: punch.Hole) -> tuple[Duplex, str]:
        ports = frozenset((hole.socket.getsockname()[1], hole.port))
        hole.socket.close()
        async with lock:
            if ports not in waiting:
                ours, waiting[ports] = await pair()
            else:
                ours = waiting.pop(ports)
        return ours, f"/ip4/{hole.host}/tcp/{hole.port}"

    monkeypatch.setattr(punch, "_open", open_one)


@pytest.mark.usefixtures("crossing")
async def test_both_sides_open_one_connection(pair: Pair) -> None:
    near, far = await pair()
    (one, way), (other, back) = await asyncio.gather(invite(near, HERE, "control"), accept(far, HERE))
    one.writer.write(b"hello")
    assert await other.reader.readexactly(5) == b"hello"
    assert way.startswith(f"/ip4/{HERE}/tcp/") and back.startswith(f"/ip4/{HERE}/tcp/") and way != back
    one.close()
    other.close()


@pytest.mark.parametrize(
    "words",
    [
        b"", b"\n", b"[]\n", b"{}\n", b"\xff\n", b'{"host": "example.org", "port": 5000}\n',
        b'{"host": "127.0.0.1", "port": 22}\n', b'{"host": "127.0.0.1", "port": true}\n', b"x" * 2000 + b"\n",
    ],
)  # fmt: skip
async def test_an_invitation_that_is_none_opens_nothing(pair: Pair, words: bytes) -> None:
    near, far = await pair()
    near.writer.write(words)
    near.writer.write_eof()
    with pytest.raises((OSError, ValueError)):
        await accept(far, HERE)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.9.9.9", "0.0.0.0", "224.0.0.1", "255.255.255.255", "169.254.169.254", "::1", "1"],
)
async def test_an_invitation_to_this_machine_or_to_none_opens_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    async def opened(hole: punch.Hole) -> tuple[Duplex, str]:
        raise AssertionError(f"a connection to {hole.host}")

    monkeypatch.setattr(punch, "_open", opened)
    near, far = await pair()
    near.writer.write(json.dumps({"host": host, "port": 5000}).encode() + b'\n{"go": true}\n')
    with pytest.raises(ValueError):
        await accept(far, "203.0.113.7")


class Streams:
    """Streams to a peer that handles them, if there is one."""

    def __init__(self, pair: Pair, there: Punching | None) -> None:
        self.pair, self.there, self.opened, self.tasks = pair, there, 0, []

    async def open(self, peer: PeerId, name: str) -> tuple[Duplex, str]:
        assert name == PROTOCOL
        self.opened += 1
        if self.there is None:
            raise OSError("it does not know the protocol")
        near, far = await self.pair()
        self.tasks.append(asyncio.ensure_future(self.there.follow(ME, "/p2p-circuit", far)))
        return near, "/p2p-circuit"

    async def serve(self, name: str, handler: object) -> None:
        raise NotImplementedError


async def test_a_node_that_needs_no_hole_makes_none(pair: Pair) -> None:
    streams = Streams(pair, None)
    assert (
        await Punching(streams, lambda: "", lambda *_: asyncio.sleep(0), lambda: 0.0).punch(PEER, "bulk")
        is None
    )
    assert streams.opened == 0


async def test_after_a_failure_the_relay_is_used_for_a_while(pair: Pair) -> None:
    now, streams = [0.0], Streams(pair, None)
    punching = Punching(streams, lambda: HERE, lambda *_: asyncio.sleep(0), lambda: now[0])
    tried = []
    for when in (0.0, 10.0, 1000.0):
        now[0] = when
        assert await punching.punch(PEER, "control") is None
        tried.append(streams.opened)
    assert tried == [1, 1, 2]


@pytest.mark.usefixtures("crossing")
async def test_one_peers_invitations_are_bounded(pair: Pair) -> None:
    taken: list[str] = []

    async def take(peer: PeerId, way: str, connection: Duplex) -> None:
        taken.append(way)
        connection.close()

    there = Punching(Streams(pair, None), lambda: HERE, take, lambda: 0.0)
    streams = Streams(pair, there)
    here = Punching(streams, lambda: HERE, take, lambda: 0.0)
    for _ in range(PUNCHES_FROM_ONE):
        opened = await here.punch(PEER, "control")
        assert opened is not None
        opened[0].close()
    assert await here.punch(PEER, "control") is None
    await asyncio.gather(*streams.tasks)
    assert len(taken) == PUNCHES_FROM_ONE


async def test_what_never_opens_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(punch, "PUNCH", timedelta(seconds=0.3))
    near, far = await pair()
    far.writer.write(json.dumps({"host": HERE, "port": 1025}).encode() + b"\n")
    with pytest.raises(TimeoutError):
        await invite(near, HERE, "control")
