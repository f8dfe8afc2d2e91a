"""Neighbours that mean harm: what they send goes no further, they are cut off, and the others notice nothing.

A hostile neighbour is a real host whose own rules are taken away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import trio

from protocol.gossip import host, neighbours
from protocol.gossip.limits import MAX_CONTROL, MAX_FRAME, MAX_REMEMBERED
from protocol.gossip.router import SeenMessages
from tests.protocol.gossip.conftest import MakeNode
from tests.protocol.gossip.scene import Node, chain
from tests.protocol.gossip.words import News

TOPIC = "gossip-tests.news"
PUBSUB = "/meshsub/1.1.0"


async def trio_makes(node: Node, name: str, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Runs a coroutine function in the host's loop, with the host as first argument."""
    host = node.carrier._host
    setattr(host, name, lambda *given: work(host, *given))
    return await node.carrier._call(name, *arguments)


async def write_raw(host: Any, victim: str, data: bytes, protocol: str = PUBSUB) -> None:
    """Opens a stream as a neighbour does and writes these bytes to it."""
    (peer,) = [one for one in host._host.get_connected_peers() if one.to_base58() == victim]
    stream = await host._host.new_stream(peer, [protocol])
    await stream.write(data)


def host_of(node: Node) -> str:
    return node.carrier.multiaddrs[0].rpartition("/p2p/")[2]


async def cuts_off(victim: Node, villain: Node, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while any(one.host == host_of(villain) for one in await victim.carrier.neighbours()):
            await asyncio.sleep(0.02)


async def is_a_neighbour(victim: Node, other: Node) -> bool:
    return any(one.host == host_of(other) and one.node for one in await victim.carrier.neighbours())


@pytest.fixture
async def trio_of(node: MakeNode) -> tuple[Node, Node, Node]:
    """A villain, its victim, and a friend of the victim, connected in this order."""
    villain, victim, friend = await node(), await node(), await node()
    await chain([villain, victim, friend])
    return villain, victim, friend


async def test_bad_envelopes_go_no_further_and_cut_their_neighbour_off(
    trio_of: tuple[Node, Node, Node],
) -> None:
    villain, victim, friend = trio_of
    sealed = await villain.gossip.publish(News(text="the last good word"))
    await friend.hears("the last good word")
    for number in range(6):
        forged = sealed.raw[:5] + bytes([sealed.raw[5] ^ (number + 1)]) + sealed.raw[6:]
        await villain.carrier.publish(TOPIC, forged)
    await cuts_off(victim, villain)
    await victim.gossip.publish(News(text="still here"))
    await friend.hears("still here")
    assert friend.heard == ["the last good word", "still here"]
    assert await is_a_neighbour(friend, victim), "the friend was never shown the bad ones"
    await villain.connect(victim)
    await cuts_off(victim, villain)


GARBAGE = {
    "no protobuf": b"\x05\xff\xff\xff\xff\xff",
    "larger than a frame may be": b"\x80\x80\x80\x80\x08",
    "a length without end": b"\xff" * 11,
    "random bytes": bytes(range(255, 0, -1)) * 8,
    "deep groups": b"\xc8\x01" + b"\x0b" * 200,
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_ends_its_stream_and_in_the_end_its_neighbour(
    trio_of: tuple[Node, Node, Node], data: bytes
) -> None:
    villain, victim, friend = trio_of
    for _ in range(6):  # five faults that fade a little in between are not quite enough
        await trio_makes(villain, "misbehave", write_raw, host_of(victim), data)
    await cuts_off(victim, villain)
    await victim.gossip.publish(News(text="still here"))
    await friend.hears("still here")


async def test_a_flood_is_not_looked_at_and_cuts_its_neighbour_off(trio_of: tuple[Node, Node, Node]) -> None:
    villain, victim, friend = trio_of

    sealed = await villain.gossip.publish(News(text="one"))

    async def flood(host: Any) -> None:
        frames: list[bytes] = []
        send = host._router.send_rpc
        host._router.send_rpc = lambda peer, rpc, priority=False: frames.append(rpc.SerializeToString())
        await host.publish(TOPIC, sealed.raw)
        host._router.send_rpc = send
        many = (
            max(frames, key=len) * 400
        )  # protobuf joins the messages of frames that are written one behind the other
        length = bytes([len(many) & 127 | 128, len(many) >> 7 & 127 | 128, len(many) >> 14])
        for _ in range(5):
            with suppress(Exception):  # it is cut off in the middle
                await write_raw(host, host_of(victim), length + many)

    await trio_makes(villain, "misbehave", flood)
    await cuts_off(victim, villain)
    await victim.gossip.publish(News(text="still here"))
    await friend.hears("still here")


async def test_a_host_that_does_not_say_whose_it_is_is_not_heard_and_not_kept(
    node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "HELLO", timedelta(milliseconds=500))
    stranger, victim = await node(), await node()

    async def silent(host: Any) -> None:
        async def nothing(peer: Any) -> None:
            pass

        host._say_hello = nothing

    await trio_makes(stranger, "keep_silent", silent)
    await stranger.connect(victim)
    await stranger.gossip.publish(News(text="from nobody"))
    await cuts_off(victim, stranger)
    assert victim.heard == []


async def stop_reading(host: Any) -> None:
    async def forever(stream: Any, *rest: Any) -> None:
        await trio.sleep_forever()

    for connections in host._host.get_network().connections.values():
        for connection in connections:
            connection.muxed_conn.secured_conn.read = forever


async def connections_with(host: Any, whom: str) -> set[Any]:
    found = host._host.get_network().connections.items()
    return {each for peer, connections in found if peer.to_base58() == whom for each in connections}


async def fill_buffers(host: Any, of: str) -> None:
    async def forever(data: bytes) -> None:
        await trio.sleep_forever()

    for peer, connections in host._host.get_network().connections.items():
        for connection in connections:
            if peer.to_base58() == of:
                connection.muxed_conn.secured_conn.write = forever


@pytest.mark.parametrize("writes", [True, False], ids=["which can be written to", "whose buffers are full"])
async def test_a_neighbour_that_gives_no_sign_of_life_is_dropped_and_the_others_are_not(
    trio_of: tuple[Node, Node, Node], monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    villain, victim, friend = trio_of
    await trio_makes(villain, "stop_reading", stop_reading)
    if not writes:
        monkeypatch.setattr(host, "STOP", timedelta(seconds=0.5))
        await trio_makes(victim, "fill_buffers", fill_buffers, host_of(villain))
    connections = await trio_makes(victim, "connections", connections_with, host_of(villain))
    for name in ("PING", "PONG"):
        monkeypatch.setattr(host, name, timedelta(seconds=1))
    async with asyncio.timeout(60):  # it may come back, by another connection
        while connections & await trio_makes(victim, "connections", connections_with, host_of(villain)):
            await asyncio.sleep(0.05)
    assert await is_a_neighbour(victim, friend)
    await victim.gossip.publish(News(text="still here"))
    await friend.hears("still here")


async def test_a_neighbour_that_never_reads_holds_up_nobody_and_costs_little(
    trio_of: tuple[Node, Node, Node],
) -> None:
    villain, victim, friend = trio_of
    await trio_makes(villain, "stop_reading", stop_reading)
    for number in range(80):
        await victim.gossip.publish(News(text=f"{number:20000}"))
        await friend.hears(f"{number:20000}")

    async def longest_queue(host: Any) -> int:
        return max(len(queue._queue) for queue in host._relay.peer_queues.values())

    assert await trio_makes(victim, "longest_queue", longest_queue) == 32, "and what is more is dropped"


async def test_what_the_router_is_told_of_topics_that_do_not_exist_is_forgotten(
    trio_of: tuple[Node, Node, Node],
) -> None:
    villain, victim, _ = trio_of

    async def chatter(host: Any) -> None:
        (peer,) = host._host.get_connected_peers()
        for number in range(300):
            topic = TOPIC if number == 299 else f"no such topic {number}"
            await host._router.emit_ihave(topic, [bytes(16) + bytes([n]) for n in range(200)], peer)
            await host._router.emit_graft(topic, peer)
            await host._router.emit_prune(topic, peer, False, False)

    await trio_makes(villain, "chatter", chatter)
    await victim.gossip.publish(News(text="after the chatter"))

    async def remembered(host: Any) -> list[int]:
        router = host._router
        tables = (router.ihave_message_limits, router.graft_flood_tracking)
        return [len(topics) for table in tables for topics in table.values()] + [len(router.back_off)]

    counts = await trio_makes(victim, "remembered", remembered)
    assert all(count <= 1 for count in counts)


def test_the_duplicate_cache_is_bounded() -> None:
    seen = SeenMessages()
    for number in range(MAX_REMEMBERED + 100):
        assert seen.add(number.to_bytes(8))
    assert seen.length() == MAX_REMEMBERED
    assert not seen.has((0).to_bytes(8)) and seen.has((MAX_REMEMBERED + 99).to_bytes(8))
    assert not seen.add((MAX_REMEMBERED + 99).to_bytes(8))


def test_bounds_fit_together() -> None:
    assert MAX_CONTROL * 100 < MAX_FRAME
