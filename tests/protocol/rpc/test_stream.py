"""Streams: in order, throttled, and never stuck."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from datetime import timedelta

import pytest

from protocol import limits
from protocol.errors import Code, NodeError
from protocol.messages.wire import encode
from protocol.rpc import Context, Throttle
from protocol.rpc.carrier import KnownCaller
from protocol.testing import Swarm, local_endpoints
from protocol.units import Bytes
from tests.protocol.rpc.conftest import Pair, serve
from tests.protocol.rpc.words import Frame, Pull, Speaker, Spell, Word

SOON = timedelta(milliseconds=200)


async def test_a_bulk_stream_arrives_whole_and_in_order(pair: Pair) -> None:
    frames = [frame async for frame in pair.caller.stream(pair.server.peer_id, Pull(20, 100_000))]
    assert [frame.index for frame in frames] == list(range(20))
    assert all(frame.data == bytes(100_000) for frame in frames)
    assert pair.speaker.heard[0][1].sealed is None
    assert pair.speaker.heard[0][1].sender == pair.caller.peer_id


async def test_a_control_stream_arrives(pair: Pair) -> None:
    words = [word async for word in pair.caller.stream(pair.server.peer_id, Spell("abc"))]
    assert words == [Word("a"), Word("b"), Word("c")]


async def test_an_error_ends_a_stream_after_what_came_before_it(pair: Pair) -> None:
    words = []
    with pytest.raises(NodeError) as caught:
        async for word in pair.caller.stream(pair.server.peer_id, Spell("bad")):
            words.append(word.text)
    assert words == ["b", "a", "d"]
    assert caught.value.code is Code.RND_BANNED


async def test_a_stream_that_stands_still_is_a_time_out(pair: Pair) -> None:
    pair.speaker.gate.clear()
    got = 0
    with pytest.raises(NodeError) as caught:
        async for _ in pair.caller.stream(pair.server.peer_id, Pull(5, 10), progress=SOON):
            got += 1
    assert got == 1
    assert caught.value.code is Code.NET_TIMEOUT
    await pair.speaker.left.wait()


def test_a_reader_that_takes_its_time_is_no_time_out() -> None:
    with Swarm(seed=1) as swarm:  # where time passes only when everybody waits
        alice, bob = swarm.nodes(2)
        serve(bob.endpoint, Speaker())

        async def read() -> int:
            got = 0
            async for _ in alice.stream(bob.peer_id, Pull(5, 10), progress=SOON):
                got += 1
                if got == 2:
                    await asyncio.sleep(3 * SOON.total_seconds())
            return got

        assert swarm.run(read()) == 5


async def test_leaving_a_stream_early_ends_its_handler(pair: Pair) -> None:
    async with aclosing(pair.caller.stream(pair.server.peer_id, Pull(1_000_000, 10_000))) as frames:
        async for _ in frames:
            break
    await pair.speaker.left.wait()


async def test_a_peer_that_stops_ends_the_stream_with_an_error(pair: Pair) -> None:
    pair.speaker.gate.clear()
    with pytest.raises(NodeError) as caught:
        async for _ in pair.caller.stream(pair.server.peer_id, Pull(5, 10)):
            await pair.server.stop()
    assert caught.value.code is Code.NET_UNREACHABLE


async def test_a_reader_that_takes_nothing_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALL", SOON)
    async with aclosing(pair.caller.stream(pair.server.peer_id, Pull(10_000, 2**20))) as frames:
        async for _ in frames:
            break
        await pair.speaker.left.wait()  # nobody reads, and the handler ends all the same


async def test_memory_of_a_stream_is_bounded_by_its_window(pair: Pair) -> None:
    async with aclosing(pair.caller.stream(pair.server.peer_id, Pull(1000, 2**20))) as frames:
        async for _ in frames:
            break
        sent = -1
        while sent != pair.server.sent["rpc-test.frame"]:  # until the server stands still
            sent = pair.server.sent["rpc-test.frame"]
            await asyncio.sleep(0.1)
        assert sent < 100 * 2**20


async def test_the_upload_limit_is_shared_by_all_streams() -> None:
    async with local_endpoints(2, upload=Bytes.parse("20 MB")) as (caller, server):
        serve(server, Speaker())

        async def pull() -> None:
            async for _ in caller.stream(server.peer_id, Pull(10, 50_000)):
                pass

        await asyncio.gather(pull(), pull())
        assert server.throttle.taken == server.sent["rpc-test.frame"] >= 2 * 10 * 50_000
        assert caller.throttle.taken == caller.sent["rpc-test.pull"]


async def test_control_messages_never_wait_for_the_upload_limit() -> None:
    async with local_endpoints(2, upload=Bytes(1)) as (caller, server):
        serve(server, Speaker())
        for _ in range(10):
            await caller.send(server.peer_id, Word("at once"))


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


async def test_a_throttle_spaces_bytes_at_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    throttle = Throttle(1000, clock=clock)
    for _ in range(11):
        await throttle.take(500)
    assert clock.now - 100.0 == pytest.approx(10 * 0.5 - 0.05)
    assert throttle.taken == 5500


async def test_a_throttle_saves_up_no_more_than_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    throttle = Throttle(1000, clock=clock)
    await throttle.take(1000)
    clock.now += 3600
    await throttle.take(1000)
    await throttle.take(1000)
    assert sum(clock.slept) == pytest.approx(1.0 - 0.05)


async def test_a_cancelled_wait_gives_its_place_back() -> None:
    throttle = Throttle(1000)
    await throttle.take(1_000_000)
    waiting = asyncio.ensure_future(throttle.take(1_000_000))
    await asyncio.sleep(0)
    assert throttle.taken == 2_000_000
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert throttle.taken == 1_000_000


async def test_no_limit_never_waits_and_a_limit_of_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    await Throttle(None, clock=clock).take(10**12)
    assert clock.slept == []
    with pytest.raises(ValueError):
        Throttle(0)


@pytest.mark.parametrize("speaking", [True, False], ids=["while-it-writes", "while-its-handler-waits"])
def test_a_call_of_a_process_that_ended_is_cleared_away_without_a_word(
    own_log: pytest.LogCaptureFixture, speaking: bool
) -> None:
    stands = asyncio.Event()

    async def stand(_: bytes = b"") -> None:
        stands.set()
        await asyncio.Event().wait()

    async def on_pull(message: Pull, context: Context) -> AsyncIterator[Frame]:
        try:
            if not speaking:
                await stand()
            yield Frame(0, b"")
        finally:
            await asyncio.sleep(0)

    async def questions() -> AsyncIterator[bytes]:
        yield encode(Pull(1, 1))

    with Swarm(seed=1) as swarm:
        alice, bob = swarm.nodes(2)
        bob.handle(on_pull)
        desk = bob.endpoint.desk
        route = desk.find("rpc-test.pull")
        assert route is not None
        call = desk.converse(route, questions(), KnownCaller(alice.peer_id), stand)

        async def begin() -> asyncio.Task[None]:
            task = asyncio.ensure_future(call)
            await stands.wait()
            return task

        with closing(asyncio.new_event_loop()) as loop:
            task = loop.run_until_complete(begin())
        assert route.running == 1
        call.close()  # what Python does with a task when nothing runs it any more
        assert route.running == 0 and not desk.running
    assert not task.done() and not own_log.records
