"""Calls between real endpoints on loopback: over TLS, authenticated both ways."""

import asyncio
import dataclasses
import gc
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Self

import psutil
import pytest

from protocol import limits
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.messages import spec_of
from protocol.messages.registry import Plane
from protocol.rpc import Context, Endpoint
from protocol.rpc.endpoint import only_anyone
from protocol.testing import RUN, introduce, local_endpoints, make_node
from protocol.tls import make_certificate
from protocol.units import Address, RunId
from tests.protocol.rpc.conftest import Pair, serve
from tests.protocol.rpc.words import Ask, AskMembers, Echo, Frame, Pull, Rare, Speaker, Spell, Word


async def refusal(call: Any) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await call
    return caught.value


async def test_a_message_arrives_with_its_verified_sender(pair: Pair) -> None:
    await pair.caller.send(pair.server.peer_id, Word("hello"))
    ((message, context),) = pair.speaker.heard
    assert message == Word("hello")
    assert context.sender == context.peer == pair.caller.peer_id
    assert context.sealed is not None
    assert context.sealed.recipient == pair.server.peer_id
    assert context.version == 1


async def test_a_request_is_answered(pair: Pair) -> None:
    assert await pair.caller.request(pair.server.peer_id, Ask("hello")) == Word("HELLO")


async def test_a_bulk_request_is_answered_over_a_second_connection(pair: Pair) -> None:
    await pair.caller.request(pair.server.peer_id, Ask("hello"))
    assert await pair.caller.request(pair.server.peer_id, Echo(bytes(2**20))) == Frame(0, bytes(2**20))
    assert pair.server.address is not None
    remote = [end.raddr.port for end in psutil.Process().net_connections("tcp") if end.raddr]
    assert remote.count(pair.server.address.port) == 2


async def test_the_largest_declared_message_passes(pair: Pair) -> None:
    largest = int(spec_of(Echo).max_bytes) - 8
    assert len((await pair.caller.request(pair.server.peer_id, Echo(bytes(largest)))).data) == largest
    error = await refusal(pair.caller.request(pair.server.peer_id, Echo(bytes(largest + 100))))
    assert error.code is Code.WIRE_TOO_LARGE


async def test_a_statement_is_delivered_as_it_is_whoever_made_it(pair: Pair) -> None:
    author = Identity.ephemeral()
    statement = seal(author, RUN, Word("I vote"))
    await pair.caller.post(pair.server.peer_id, statement)
    await pair.caller.post(pair.server.peer_id, statement)
    (_, context), _ = pair.speaker.heard
    assert context.sealed == statement
    assert context.sender == author.peer_id
    assert context.peer == pair.caller.peer_id


async def test_what_was_addressed_to_one_peer_is_not_taken_from_another(pair: Pair) -> None:
    author = Identity.ephemeral()
    letter = seal(author, RUN, Word("psst"), recipient=pair.server.peer_id, sequence=1)
    error = await refusal(pair.caller.post(pair.server.peer_id, letter))
    assert error.code is Code.WIRE_WRONG_RECIPIENT
    assert pair.speaker.heard == []


async def test_an_addressed_message_is_taken_once(pair: Pair) -> None:
    identity = pair.caller.identity
    letter = seal(
        identity, RUN, Word("once"), recipient=pair.server.peer_id, boot=pair.caller.boot, sequence=99
    )
    await pair.caller.post(pair.server.peer_id, letter)
    assert (await refusal(pair.caller.post(pair.server.peer_id, letter))).code is Code.WIRE_REPLAY
    assert len(pair.speaker.heard) == 1


async def test_a_message_of_another_run_is_refused(pair: Pair) -> None:
    pair.caller.run = RunId("00" * 32)
    assert (await refusal(pair.caller.send(pair.server.peer_id, Word("x")))).code is Code.WIRE_WRONG_RUN
    pair.caller.run = RUN
    await pair.caller.send(pair.server.peer_id, Word("x"))


async def test_an_error_of_a_handler_reaches_the_caller_as_the_same_code(pair: Pair) -> None:
    error = await refusal(pair.caller.request(pair.server.peer_id, Ask("banned")))
    assert (error.code, error.sentence) == (Code.RND_BANNED, "You are banned until Monday.")
    assert error.peer == pair.server.peer_id


async def test_a_bug_in_a_handler_tells_the_caller_nothing(pair: Pair) -> None:
    error = await refusal(pair.caller.request(pair.server.peer_id, Ask("bug")))
    assert error.code is Code.NET_INTERNAL
    assert "42" not in str(error)
    assert await pair.caller.request(pair.server.peer_id, Ask("next")) == Word("NEXT")


async def test_a_message_that_a_peer_does_not_handle_is_unknown(pair: Pair) -> None:
    introduce(pair.server, pair.caller)
    assert (
        await refusal(pair.server.request(pair.caller.peer_id, Ask("x")))
    ).code is Code.NET_UNKNOWN_MESSAGE


async def test_another_peers_words_are_printed_safely(pair: Pair) -> None:
    speaker = Speaker()

    async def rude(message: Pull, context: Context) -> AsyncIterator[Frame]:
        raise NodeError(Code.RND_CHUNK, "\x1b[31mred\n" + "x" * 10_000)
        yield Frame(0, b"")

    pair.caller.handle(rude)
    introduce(pair.server, pair.caller)
    with pytest.raises(NodeError) as caught:
        async for _ in pair.server.stream(pair.caller.peer_id, Pull(1, 1)):
            pass
    assert caught.value.code is Code.RND_CHUNK
    assert caught.value.sentence.isprintable()
    assert len(caught.value.sentence) < 500
    assert speaker.heard == []


async def test_a_slow_answer_is_a_time_out(pair: Pair) -> None:
    pair.speaker.gate.clear()
    call = pair.caller.request(pair.server.peer_id, Ask("x"), timeout=timedelta(milliseconds=200))
    assert (await refusal(call)).code is Code.NET_TIMEOUT
    await pair.speaker.left.wait()  # and the handler is cancelled with it


async def test_a_cancelled_caller_cancels_the_handler(pair: Pair) -> None:
    pair.speaker.gate.clear()
    task = asyncio.ensure_future(pair.caller.request(pair.server.peer_id, Ask("x")))
    await pair.speaker.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await pair.speaker.left.wait()


# --- who may ------------------------------------------------------------------------------------------------------


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
        boot=b"second",
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
    dead = (Address("127.0.0.1", _free_port()), Address("127.0.0.1", _free_port()))
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
    more = (Address("127.0.0.1", _free_port()), pair.server.address)
    pair.caller.trust.learn(pair.server.peer_id, pair.server.tls.certificate_pem, more)
    assert await pair.caller.request(pair.server.peer_id, Echo(b"x")) == Frame(0, b"x")
    assert len([frame async for frame in frames]) == 49


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- starting and stopping ----------------------------------------------------------------------------------------


async def test_a_port_in_use_is_one_clear_error(pair: Pair) -> None:
    assert pair.server.address is not None
    second = make_node(listen=pair.server.address)
    error = await refusal(second.start())
    assert error.code is Code.NET_PORT_IN_USE
    assert str(pair.server.address.port) in error.sentence
    await second.stop()


async def test_an_address_of_another_machine_is_one_clear_error() -> None:
    node = make_node(listen=Address("192.0.2.1", 0))
    assert (await refusal(node.start())).code is Code.NET_UNREACHABLE


async def test_a_dead_peer_is_unreachable_at_once_and_again(pair: Pair) -> None:
    await pair.server.stop()
    async with asyncio.timeout(5):  # the declared time-out alone would be 5 s for each call
        for _ in range(20):
            assert (
                await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))
            ).code is Code.NET_UNREACHABLE


async def test_a_peer_that_accepts_and_says_nothing_is_unreachable(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT", timedelta(milliseconds=200))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1])
        pair.caller.trust.learn(pair.server.peer_id, pair.server.tls.certificate_pem, (address,))
        call = pair.caller.request(pair.server.peer_id, Ask("x"), timeout=timedelta(minutes=1))
        assert (await refusal(call)).code is Code.NET_UNREACHABLE


async def test_a_call_to_a_peer_whose_process_stands_still_ends_without_its_deadline(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEEPALIVE_CONTROL", timedelta(milliseconds=200))
    async with Wire(pair.server) as wire:
        pair.caller.trust.learn(pair.server.peer_id, pair.server.tls.certificate_pem, (wire.address,))
        assert await pair.caller.request(pair.server.peer_id, Ask("x")) == Word("X")
        wire.flows.clear()
        call = pair.caller.request(pair.server.peer_id, Ask("x"), timeout=timedelta(minutes=1))
        assert (await refusal(call)).code is Code.NET_UNREACHABLE


class Wire:
    """A way to an endpoint that can stop passing bytes on, as a stopped process does, with its connections open."""

    def __init__(self, server: Endpoint) -> None:
        assert server.address is not None
        self._behind = server.address
        self.flows = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.flows.set()
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._behind)
        self._tasks += [
            asyncio.ensure_future(self._copy(reader, far_writer)),
            asyncio.ensure_future(self._copy(far_reader, writer)),
        ]

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            await self.flows.wait()
            target.write(data)
        target.close()

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.close()


async def test_a_call_under_way_ends_when_the_peer_stops(pair: Pair) -> None:
    pair.speaker.gate.clear()
    task = asyncio.ensure_future(pair.caller.request(pair.server.peer_id, Ask("x")))
    await pair.speaker.entered.wait()
    await pair.server.stop()
    assert (await refusal(task)).code is Code.NET_UNREACHABLE
    assert pair.speaker.left.is_set()


async def test_a_call_under_way_may_end_within_the_grace(pair: Pair) -> None:
    pair.speaker.gate.clear()
    task = asyncio.ensure_future(pair.caller.request(pair.server.peer_id, Ask("x")))
    await pair.speaker.entered.wait()
    stopping = asyncio.ensure_future(pair.server.stop(timedelta(seconds=30)))
    await asyncio.sleep(0)
    pair.speaker.gate.set()
    assert await task == Word("X")
    await stopping


async def test_a_call_of_a_stopped_endpoint_ends_with_an_error(pair: Pair) -> None:
    pair.speaker.gate.clear()
    task = asyncio.ensure_future(pair.caller.request(pair.server.peer_id, Ask("x")))
    await pair.speaker.entered.wait()
    await pair.caller.stop()
    assert (await refusal(task)).code is Code.NET_UNREACHABLE
    assert (await refusal(pair.caller.request(pair.server.peer_id, Ask("x")))).code is Code.NET_UNREACHABLE


async def test_stopping_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    async with local_endpoints(3) as (one, two, three):
        speaker = Speaker()
        serve(two, speaker)
        speaker.gate.clear()
        calls = [asyncio.ensure_future(one.request(two.peer_id, Ask("x"))) for _ in range(5)]
        stream = two.stream(three.peer_id, Spell("abc"))
        await speaker.entered.wait()
        two.trust.forget(three.peer_id)
        await two.stop()
        await two.stop()
        await asyncio.gather(*calls, return_exceptions=True)
        await stream.aclose()
    gc.collect()
    assert asyncio.all_tasks() - before == set()


# --- handlers -----------------------------------------------------------------------------------------------------


def test_a_handler_that_does_not_fit_its_message_is_refused() -> None:
    async def no_hints(message, context):  # type: ignore[no-untyped-def]
        return None

    async def no_context(message: Ask) -> Word:
        return Word("")

    async def wrong_reply(message: Ask, context: Context) -> Frame:
        return Frame(0, b"")

    async def no_stream(message: Spell, context: Context) -> Word:
        return Word("")

    def not_async(message: Ask, context: Context) -> Word:
        return Word("")

    async def not_a_message(message: str, context: Context) -> None: ...

    node = make_node()
    for handler in (no_hints, no_context, wrong_reply, no_stream, not_async, not_a_message):
        with pytest.raises(NodeError) as caught:
            node.handle(handler)
        assert caught.value.code is Code.WIRE_DECLARATION


def test_a_message_has_one_handler() -> None:
    node = make_node()
    node.handle(Speaker().on_ask)
    with pytest.raises(NodeError) as caught:
        node.handle(Speaker().on_ask)
    assert caught.value.code is Code.WIRE_DECLARATION


async def test_an_answer_of_another_class_is_a_bug_of_the_handler(pair: Pair) -> None:
    async def confused(message: Ask, context: Context) -> Word:
        return Rare("oops")  # type: ignore[return-value]

    pair.caller.handle(confused)
    introduce(pair.server, pair.caller)
    assert (await refusal(pair.server.request(pair.caller.peer_id, Ask("x")))).code is Code.NET_INTERNAL


async def test_a_bulk_version_too_far_away_is_refused(pair: Pair) -> None:
    link = pair.caller._links.to(pair.server.peer_id, Plane.BULK)
    raw = b"\x0a\x01x"
    for version, code in (("3", Code.NET_VERSION), ("x", Code.NET_VERSION), ("9" * 99, Code.NET_VERSION)):
        call = link.unary("rpc-test.echo", raw, (("intellect-version", version),), timedelta(seconds=5))
        assert (await refusal(call)).code is code
    assert await link.unary("rpc-test.echo", raw, (("intellect-version", "2"),), timedelta(seconds=5))


async def test_sent_bytes_are_counted_by_message(pair: Pair) -> None:
    await pair.caller.request(pair.server.peer_id, Echo(bytes(1000)))
    assert pair.caller.sent["rpc-test.echo"] > 1000
    assert pair.server.sent["rpc-test.frame"] > 1000
    assert dataclasses.is_dataclass(Context)
