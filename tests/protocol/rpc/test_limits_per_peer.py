"""How often, and how much at once, one peer may ask."""

import asyncio

import pytest

from protocol import limits, request
from protocol.errors import Code, NodeError
from protocol.messages import spec_of
from protocol.rpc import Context
from protocol.rpc.gate import Gate, Strangers
from protocol.rpc.routes import Route
from protocol.rpc.throttle import RateLimits
from protocol.testing import local_endpoints
from protocol.units import PeerId, Rate
from tests.protocol.rpc.instruments import refusal
from tests.protocol.rpc.words import Word

ANA, BEN = PeerId("ana"), PeerId("ben")


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    now = 0.0
    rates = RateLimits(clock=lambda: now)
    rate = Rate.parse("2/s burst 3")
    assert [rates.allow(ANA, "a.b", rate) for _ in range(4)] == [True, True, True, False]
    now = 0.5
    assert [rates.allow(ANA, "a.b", rate) for _ in range(2)] == [True, False]
    now = 1000.0
    assert [rates.allow(ANA, "a.b", rate) for _ in range(4)] == [True, True, True, False]


def test_peers_and_messages_have_buckets_of_their_own() -> None:
    rates = RateLimits(clock=lambda: 0.0)
    rate = Rate.parse("1/s")
    assert rates.allow(ANA, "a.b", rate)
    assert rates.allow(BEN, "a.b", rate)
    assert rates.allow(ANA, "a.c", rate)
    assert not rates.allow(ANA, "a.b", rate)


def test_the_memory_of_buckets_is_bounded() -> None:
    rates = RateLimits(clock=lambda: 0.0)
    for index in range(20_000):
        rates.allow(PeerId(str(index)), "a.b", Rate.parse("1/s"))
    assert len(rates._buckets) <= 16_384


@request(
    "rpc-test.rush", version=1, max_bytes="1 KiB", rate="1000/s", timeout="5 s", replies=Word, concurrency=4
)
class Rush: ...


class Hall:
    """A handler that holds its callers until the gate opens."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.inside = 0
        self.changed = asyncio.Event()

    async def on_rush(self, message: Rush, context: Context) -> Word:
        self.inside += 1
        self.changed.set()
        await self.gate.wait()
        return Word("done")

    async def until(self, count: int) -> None:
        while self.inside < count:
            self.changed.clear()
            await self.changed.wait()


async def test_a_message_has_so_many_calls_at_once_and_one_peer_at_most_half_of_them() -> None:
    async with local_endpoints(4) as (server, *callers):
        hall = Hall()
        server.handle(hall.on_rush)
        calls = [asyncio.ensure_future(callers[0].request(server.peer_id, Rush())) for _ in range(2)]
        await hall.until(2)
        error = await refusal(callers[0].request(server.peer_id, Rush()))
        assert (error.code, error.retriable, error.message) == (Code.NET_BUSY, True, "rpc-test.rush")
        calls += [asyncio.ensure_future(callers[1].request(server.peer_id, Rush())) for _ in range(2)]
        await hall.until(4)
        assert (await refusal(callers[2].request(server.peer_id, Rush()))).code is Code.NET_BUSY
        hall.gate.set()
        assert await asyncio.gather(*calls) == [Word("done")] * 4
        assert await callers[2].request(server.peer_id, Rush()) == Word("done")


async def test_a_cancelled_call_gives_its_place_back() -> None:
    async with local_endpoints(2) as (server, caller):
        hall = Hall()
        server.handle(hall.on_rush)
        call = asyncio.ensure_future(caller.request(server.peer_id, Rush()))
        await hall.until(1)
        call.cancel()
        while server.desk.running:
            await asyncio.sleep(0.01)
        hall.gate.set()
        for _ in range(10):
            assert await caller.request(server.peer_id, Rush()) == Word("done")


def test_the_memory_of_places_is_bounded_and_a_call_keeps_its_own() -> None:
    gate = Gate(clock=lambda: 0.0)
    route = Route(spec_of(Rush), lambda *_: None)
    first = gate.enter(ANA, route)
    for index in range(17_000):
        peer = PeerId(str(index))
        gate.leave(peer, route, gate.enter(peer, route))
    assert len(gate) <= 16_384
    gate.leave(ANA, route, first)
    assert route.running == 0


def test_only_what_was_wrong_counts_against_a_stranger() -> None:
    now = 0.0
    strangers = Strangers(clock=lambda: now)
    for _ in range(1000):
        strangers.check("10.0.0.1")
    for _ in range(limits.STRANGER_BURST):
        strangers.check("10.0.0.1")
        strangers.charge("10.0.0.1")
    with pytest.raises(NodeError) as caught:
        strangers.check("10.0.0.1")
    assert caught.value.code is Code.NET_RATE
    strangers.check("10.0.0.2")
    now = 1.0
    strangers.check("10.0.0.1")
