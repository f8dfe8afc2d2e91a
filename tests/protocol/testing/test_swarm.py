"""A swarm in memory runs the real handlers: calls, streams, refusals, deadlines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta

import pytest

from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.testing import Swarm
from protocol.testing.fixtures import virtual
from protocol.testing.pipe import WINDOW
from tests.protocol.testing.words import Ask, Ear, Pull, Talk, Word


@virtual
async def test_messages_and_requests_reach_their_handlers_and_take_the_networks_time(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    await alice.send(bob.peer_id, Word("hello"))
    assert await alice.request(bob.peer_id, Ask("what")) == Word("WHAT")
    assert ear.heard == ["hello", "what"]
    assert swarm.time == pytest.approx(0.004)


@virtual
async def test_streams_both_ways_arrive_in_order(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    Ear(bob)

    async def questions() -> AsyncIterator[Talk]:
        for letter in "abc":
            yield Talk(letter)
            await asyncio.sleep(1)

    talk = alice.endpoint.converse(bob.peer_id, Talk, questions())
    assert [answer.text async for answer in talk] == ["A", "B", "C"]
    frames = [frame.index async for frame in alice.stream(bob.peer_id, Pull(20, 1000))]
    assert frames == list(range(20))


@virtual
async def test_a_statement_of_another_is_delivered_as_it_is(swarm: Swarm) -> None:
    alice, bob, carol = swarm.nodes(3)
    ear = Ear(carol)
    statement = seal(alice.identity, swarm.run_id, Word("said alice"))
    await bob.post(carol.peer_id, statement)
    assert ear.heard == ["said alice"]


@virtual
async def test_a_writer_waits_for_its_reader(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    size = 100_000
    async with aclosing(alice.stream(bob.peer_id, Pull(1000, size))) as frames:
        await anext(frames)
        await asyncio.sleep(10)
        assert size * ear.sent <= WINDOW + 2 * size
        for _ in range(30):
            await anext(frames)
        assert ear.sent >= 30
    await asyncio.sleep(1)
    assert ear.sent < 1000  # who leaves early ends the handler
    assert not bob.serving


@virtual
async def test_who_is_not_there_is_refused_at_once_and_who_is_not_trusted_too(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    stranger = swarm.node()
    with pytest.raises(NodeError) as unknown_message:
        await alice.send(bob.peer_id, Word("hello"))
    assert unknown_message.value.code is Code.NET_UNKNOWN_MESSAGE
    Ear(bob)
    bob.trust.forget(stranger.peer_id)
    with pytest.raises(NodeError) as refused:
        await stranger.send(bob.peer_id, Word("hello"))
    assert refused.value.code is Code.NET_UNTRUSTED
    alice.trust.forget(bob.peer_id)
    with pytest.raises(NodeError) as unknown:
        await alice.send(bob.peer_id, Word("hello"))
    assert unknown.value.code is Code.NET_UNTRUSTED
    alice.trust.remember(bob.peer_id)
    await bob.endpoint.stop()
    with pytest.raises(NodeError) as gone:
        await alice.send(bob.peer_id, Word("hello"))
    assert gone.value.code is Code.NET_UNREACHABLE
    assert swarm.time < 1


@virtual
async def test_a_late_answer_is_a_timeout_and_its_handler_is_cancelled(swarm: Swarm) -> None:
    alice, bob = swarm.nodes(2)
    ear = Ear(bob)
    ear.gate.clear()
    with pytest.raises(NodeError) as late:
        await alice.request(bob.peer_id, Ask("what"), timeout=timedelta(seconds=3))
    assert late.value.code is Code.NET_TIMEOUT
    assert swarm.time == pytest.approx(3)
    await asyncio.sleep(1)
    assert ear.cancelled == 1
    asking = asyncio.ensure_future(alice.request(bob.peer_id, Ask("again")))
    await asyncio.sleep(1)
    asking.cancel()
    await asyncio.sleep(1)
    assert ear.cancelled == 2


@virtual
async def test_handlers_errors_limits_and_audiences_are_those_of_the_real_endpoint(swarm: Swarm) -> None:
    alice = swarm.node()
    strict = swarm.node(audience=lambda peer, audience: False)

    async def on_ask(message: Ask, context: object) -> Word:
        raise NodeError(Code.RND_BANNED, "You are banned until Monday.")

    strict.handle(on_ask)
    with pytest.raises(NodeError, match="until Monday") as caught:
        await alice.request(strict.peer_id, Ask("may I"))
    assert (caught.value.code, caught.value.peer) == (Code.RND_BANNED, strict.peer_id)


@virtual
async def test_the_upload_limit_holds_in_virtual_time(swarm: Swarm) -> None:
    alice = swarm.node()
    slow = swarm.node(upload=100_000)
    Ear(slow)
    before = swarm.time
    frames = [frame async for frame in alice.stream(slow.peer_id, Pull(10, 50_000))]
    assert len(frames) == 10
    assert 4.0 < swarm.time - before < 6.0


def test_ed25519_is_the_signature_unless_a_keyed_hash_is_asked_for() -> None:
    for keyed in (False, True):
        with Swarm(seed=3, keyed=keyed) as swarm:
            alice, bob = swarm.nodes(2)
            Ear(bob)
            assert swarm.run(alice.request(bob.peer_id, Ask("x"))) == Word("X")
            assert (len(alice.identity.sign(b"")) == 32) is keyed


def test_many_nodes_are_quickly_there() -> None:
    with Swarm(keyed=True) as swarm:
        nodes = swarm.nodes(300)
        for node in nodes:
            Ear(node)

        async def ring() -> None:
            following = zip(nodes, nodes[1:] + nodes[:1], strict=True)
            await asyncio.gather(*(node.send(next_.peer_id, Word("x")) for node, next_ in following))

        swarm.run(ring())
        assert swarm.network.sent == 600
