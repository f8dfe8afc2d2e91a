"""Who may call, how often, and who is never dialled."""

import asyncio
from typing import Any

from protocol.errors import Code, NodeError
from protocol.limits import MAX_CALLS_PER_PEER
from protocol.rpc import Endpoint
from protocol.rpc.endpoint import only_anyone
from protocol.testing import RUN, introduce, local_endpoints, make_node
from protocol.tls import make_certificate
from protocol.units import Address
from tests.protocol.rpc.conftest import Pair, serve
from tests.protocol.rpc.instruments import free_port, refusal
from tests.protocol.rpc.words import Ask, AskMembers, Echo, Frame, Pull, Rare, Speaker, Word


async def test_a_message_for_members_is_refused_from_others(pair: Pair) -> None:
    members: set[str] = set()
    pair.server.audience = lambda peer, audience: audience == "member" and peer in members
    assert (await refusal(pair.caller.request(pair.server.peer_id, AskMembers()))).code is Code.NET_AUDIENCE
    assert await pair.caller.request(pair.server.peer_id, Ask("x")) == Word("X")
    members.add(pair.caller.peer_id)
    assert await pair.caller.request(pair.server.peer_id, AskMembers()) == Rare("for you")


async def test_a_node_that_knows_no_members_serves_anyone_only(pair: Pair) -> None:
    pair.server.audience = only_anyone
    assert (await refusal(pair.caller.send(pair.server.peer_id, Rare()))).code is Code.NET_AUDIENCE


async def test_the_declared_rate_holds_for_each_peer_by_itself() -> None:
    async with local_endpoints(3) as (one, two, server):
        serve(server, Speaker())
        for _ in range(2):
            await one.send(server.peer_id, Rare())
        error = await refusal(one.send(server.peer_id, Rare()))
        assert error.code is Code.NET_RATE
        assert error.retriable
        await two.send(server.peer_id, Rare())


async def test_one_peer_cannot_take_the_places_of_the_others() -> None:
    async with local_endpoints(3) as (one, two, server):
        speaker = Speaker()
        serve(server, speaker)
        speaker.gate.clear()
        kept = [
            asyncio.ensure_future(one.request(server.peer_id, Ask("x"))) for _ in range(MAX_CALLS_PER_PEER)
        ]
        while len(speaker.heard) < MAX_CALLS_PER_PEER:
            await asyncio.sleep(0.01)
        error = await refusal(one.send(server.peer_id, Word("one more")))
        assert error.code is Code.NET_BUSY and error.retriable
        await two.send(server.peer_id, Word("another's"))
        speaker.gate.set()
        assert set(await asyncio.gather(*kept)) == {Word("X")}
        await one.send(server.peer_id, Word("later"))


async def test_a_caller_that_is_not_known_is_refused_until_it_is() -> None:
    async with local_endpoints(1) as (server,):
        serve(server, Speaker())
        stranger = make_node()
        await stranger.start()
        try:
            introduce(stranger, server)
            assert (await refusal(stranger.request(server.peer_id, Ask("x")))).code is Code.NET_UNTRUSTED
            introduce(server, stranger)
            answer = await _patiently(stranger, server)
            assert answer == Word("X")
        finally:
            await stranger.stop()


async def _patiently(caller: Endpoint, server: Endpoint) -> Any:
    """Asks until the caller's back-off lets it connect again."""
    while True:
        try:
            return await caller.request(server.peer_id, Ask("x"))
        except NodeError as error:
            assert error.retriable
            await asyncio.sleep(0.02)


async def test_a_forgotten_peer_is_refused_on_its_open_connection(pair: Pair) -> None:
    await pair.caller.request(pair.server.peer_id, Ask("x"))
    pair.server.trust.forget(pair.caller.peer_id)
    assert (await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))).code is Code.NET_UNTRUSTED


async def test_a_peer_that_is_not_known_is_never_dialled(pair: Pair) -> None:
    pair.caller.trust.forget(pair.server.peer_id)
    assert (await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))).code is Code.NET_UNTRUSTED


async def test_a_server_with_another_certificate_is_not_spoken_to(pair: Pair) -> None:
    other = make_certificate(pair.server.peer_id)
    assert pair.server.address is not None
    pair.caller.trust.learn(pair.server.peer_id, other.certificate_pem, (pair.server.address,))
    assert (await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))).retriable
    assert pair.speaker.heard == []


async def test_a_peer_that_restarted_is_reached_at_its_new_address_and_certificate(pair: Pair) -> None:
    await pair.caller.request(pair.server.peer_id, Ask("x"))
    await pair.server.stop()
    assert (await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))).code is Code.NET_UNREACHABLE
    reborn = Endpoint(
        pair.server.identity,
        make_certificate(pair.server.peer_id),
        pair.server.trust,
        run=RUN,
        boot=b"second".ljust(16),
    )
    serve(reborn, Speaker())
    await reborn.start()
    try:
        introduce(pair.caller, reborn)
        assert await pair.caller.request(reborn.peer_id, Ask("x")) == Word("X")
    finally:
        await reborn.stop()


async def test_the_first_address_that_answers_is_used(pair: Pair) -> None:
    assert pair.server.address is not None
    dead = (Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port()))
    pair.caller.trust.learn(
        pair.server.peer_id, pair.server.tls.certificate_pem, (*dead, pair.server.address)
    )
    assert await pair.caller.request(pair.server.peer_id, Ask("x")) == Word("X")
    pair.caller.trust.learn(pair.server.peer_id, pair.server.tls.certificate_pem, dead)
    assert (await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))).code is Code.NET_UNREACHABLE


async def test_a_stream_goes_on_when_its_peer_adds_an_address(pair: Pair) -> None:
    assert pair.server.address is not None
    frames = pair.caller.stream(pair.server.peer_id, Pull(50, 100_000))
    await anext(frames)
    more = (Address("127.0.0.1", free_port()), pair.server.address)
    pair.caller.trust.learn(pair.server.peer_id, pair.server.tls.certificate_pem, more)
    assert await pair.caller.request(pair.server.peer_id, Echo(b"x")) == Frame(0, b"x")
    assert len([frame async for frame in frames]) == 49
