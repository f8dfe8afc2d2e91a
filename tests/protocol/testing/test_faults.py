"""Every fault that a swarm can make, and what the real endpoints make of it."""

import asyncio
from contextlib import aclosing, suppress
from datetime import timedelta

import pytest

from protocol.errors import Code, NodeError
from protocol.testing import PERFECT, Conditions, Host, Swarm
from protocol.testing.fixtures import virtual
from protocol.units import Bytes
from tests.protocol.testing.words import Ask, Ear, Pull, Word

COUNT = 400


async def outcomes(caller: Host, callee: Host, count: int = COUNT) -> list[Code | None]:
    """How that many sends ended that began a millisecond after one another."""

    async def one(number: int) -> Code | None:
        await asyncio.sleep(number / 1000)
        try:
            await caller.send(callee.peer_id, Word(str(number)), timeout=timedelta(seconds=2))
        except NodeError as error:
            return error.code
        return None

    return list(await asyncio.gather(*map(one, range(count))))


@virtual
async def test_delay_and_jitter_keep_the_order(swarm: Swarm) -> None:
    swarm.network.conditions = Conditions(
        delay=timedelta(milliseconds=100), jitter=timedelta(milliseconds=50)
    )
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    assert await outcomes(alice, bob) == [None] * COUNT
    assert ear.heard == [str(number) for number in range(COUNT)]
    assert 0.4 + 0.2 < swarm.time < 0.4 + 0.4


@virtual
async def test_what_is_lost_ends_with_its_deadline(swarm: Swarm) -> None:
    swarm.network.conditions = Conditions(loss=0.2)
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    ended = await outcomes(alice, bob)
    assert set(ended) == {None, Code.NET_TIMEOUT}
    assert 0.25 < ended.count(Code.NET_TIMEOUT) / COUNT < 0.47  # of each pair of pieces one may be lost
    assert ended.count(None) < len(ear.heard) < COUNT  # some were heard whose acknowledgement was lost


@virtual
async def test_what_comes_twice_is_handled_once(swarm: Swarm) -> None:
    swarm.network.conditions = Conditions(duplication=1.0)
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    assert await outcomes(alice, bob) == [None] * COUNT
    assert await alice.request(bob.peer_id, Ask("what")) == Word("WHAT")
    await asyncio.sleep(1)
    assert len(ear.heard) == len(set(ear.heard)) == COUNT + 1
    assert swarm.network.counts["duplicated"] == COUNT + 1


@virtual
async def test_reordered_messages_overtake_one_another_and_are_all_heard(swarm: Swarm) -> None:
    swarm.network.conditions = Conditions(reordering=0.5, held_back=timedelta(milliseconds=30))
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    assert await outcomes(alice, bob) == [None] * COUNT
    assert ear.heard != sorted(ear.heard, key=int)
    assert sorted(ear.heard, key=int) == [str(number) for number in range(COUNT)]


@virtual
async def test_a_flipped_bit_is_refused_and_never_heard(swarm: Swarm) -> None:
    swarm.network.conditions = Conditions(corruption=0.5)
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    ended = await outcomes(alice, bob)
    assert Code.WIRE_SIGNATURE in ended
    assert Code.NET_UNREACHABLE in ended  # a broken answer: its connection broke
    codes = {code for code in ended if code is not None}
    assert all(str(code).startswith(("E-WIRE", "E-NET")) for code in codes)
    assert ended.count(None) <= len(ear.heard) < COUNT
    assert set(ear.heard) <= {str(number) for number in range(COUNT)}


@virtual
async def test_a_partition_cuts_and_healing_joins(swarm: Swarm) -> None:
    alice, bob, carol = swarm.nodes(3)
    for node in (alice, bob, carol):
        Ear(node)
    swarm.network.partition([alice, bob], [carol])
    await alice.send(bob.peer_id, Word("same side"))
    for one, other in ((alice, carol), (carol, bob)):
        with pytest.raises(NodeError) as cut:
            await one.send(other.peer_id, Word("hello"), timeout=timedelta(seconds=1))
        assert cut.value.code is Code.NET_TIMEOUT
    swarm.network.heal()
    await alice.send(carol.peer_id, Word("hello"))
    swarm.network.block(bob, alice)
    with pytest.raises(NodeError):
        await alice.send(bob.peer_id, Word("no answer"), timeout=timedelta(seconds=1))
    assert "no answer" in bob_heard(bob)


def bob_heard(bob: Host) -> list[str]:
    route = bob.endpoint.desk.find("swarm-test.word")
    assert route is not None
    heard: list[str] = route.function.__self__.heard
    return heard


@virtual
async def test_a_lost_frame_stalls_its_stream_alone(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    Ear(bob)
    swarm.network.towards(bob, alice, Conditions(loss=0.02))
    stalled = complete = 0
    for _ in range(40):
        got = []
        try:
            async with aclosing(
                alice.stream(bob.peer_id, Pull(20, 100), progress=timedelta(seconds=2))
            ) as frames:
                async for frame in frames:
                    got.append(frame.index)
            complete += 1
        except NodeError as error:
            assert error.code is Code.NET_TIMEOUT
            stalled += 1
        assert got == list(range(len(got)))
    assert stalled > 5 and complete > 5
    swarm.network.towards(bob, alice, PERFECT)
    await asyncio.sleep(120)
    assert not bob.serving


@virtual
async def test_a_paused_node_does_nothing_and_catches_up(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(swarm.time)
            await asyncio.sleep(1)

    bob.spawn(tick())
    await asyncio.sleep(2.5)
    bob.pause()
    with pytest.raises(NodeError) as silent:
        await alice.send(bob.peer_id, Word("are you there"), timeout=timedelta(seconds=5))
    assert silent.value.code is Code.NET_TIMEOUT
    patient = asyncio.ensure_future(
        alice.request(bob.peer_id, Ask("patiently"), timeout=timedelta(seconds=60))
    )
    await asyncio.sleep(10)
    assert (len(ticks), ear.heard) == (3, [])
    bob.resume()
    assert await patient == Word("PATIENTLY")
    assert "are you there" not in ear.heard  # its caller had left
    assert len(ticks) == 4


@virtual
async def test_a_killed_nodes_connections_break_and_nothing_of_it_runs_again(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    ear.gate.clear()
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("cleaned up")

    bob.spawn(work())
    asking = asyncio.ensure_future(alice.request(bob.peer_id, Ask("what")))
    await asyncio.sleep(1)
    bob.kill()
    with pytest.raises(NodeError) as broken:
        await asking
    assert broken.value.code is Code.NET_UNREACHABLE
    with pytest.raises(NodeError) as refused:
        await alice.send(bob.peer_id, Word("hello"))
    assert refused.value.code is Code.NET_UNREACHABLE
    assert swarm.time < 2
    await asyncio.sleep(200)
    assert not ended


@virtual
async def test_a_node_without_power_says_nothing(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    Ear(bob)
    bob.kill(silently=True)
    with pytest.raises(NodeError) as silent:
        await alice.send(bob.peer_id, Word("hello"), timeout=timedelta(seconds=7))
    assert silent.value.code is Code.NET_TIMEOUT
    assert swarm.time == pytest.approx(7)


@virtual
async def test_a_restarted_node_is_found_again_under_a_new_boot_number(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    Ear(bob)
    Ear(alice)
    await alice.send(bob.peer_id, Word("before"))
    await bob.send(alice.peer_id, Word("before"))
    old = bob.endpoint.boot
    bob.restart()
    ear = Ear(bob)
    assert bob.endpoint.boot != old
    await alice.send(bob.peer_id, Word("after"))
    await bob.send(alice.peer_id, Word("after"))
    assert ear.heard == ["after"]


@virtual
async def test_a_callers_death_cancels_what_it_asked_for(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    ear.gate.clear()
    alice.spawn(alice.request(bob.peer_id, Ask("what")))
    await asyncio.sleep(1)
    alice.kill()
    await asyncio.sleep(1)
    assert ear.cancelled == 1


@virtual
async def test_clocks_can_be_wrong_and_disks_slow(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    bob.skew = timedelta(hours=1)
    assert bob.wall() - alice.wall() == 3600
    bob.disk = timedelta(seconds=4)

    async def write() -> float:
        await asyncio.to_thread(lambda: None)
        return swarm.time

    assert await alice.spawn(write()) == pytest.approx(0)
    assert await bob.spawn(write()) == pytest.approx(4)


@virtual
async def test_bandwidth_is_shared_by_what_one_node_sends_in_bulk(swarm: Swarm) -> None:
    swarm.network.conditions = Conditions(bandwidth=Bytes.parse("1 MB"))
    alice, bob, carol = swarm.nodes(3)
    Ear(bob)

    async def pull(node: Host) -> None:
        async for _ in node.stream(bob.peer_id, Pull(10, 100_000)):
            pass

    beats: list[float] = []

    async def beat() -> None:
        with suppress(asyncio.CancelledError):
            while True:
                began = swarm.time
                await alice.send(bob.peer_id, Word("beat"))
                beats.append(swarm.time - began)
                await asyncio.sleep(0.1)

    beating = asyncio.ensure_future(beat())
    await asyncio.gather(pull(alice), pull(carol))
    beating.cancel()
    assert 1.9 < swarm.time < 2.2
    assert max(beats) < 0.1  # control does not queue behind bulk


def test_shares_are_shares() -> None:
    with pytest.raises(ValueError, match="loss"):
        Conditions(loss=1.5)
    with pytest.raises(ValueError, match="before it was sent"):
        Conditions(delay=timedelta(seconds=-1))
