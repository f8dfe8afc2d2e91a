"""Calls between real endpoints on loopback: over TLS, authenticated both ways."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace

import psutil
import pytest

from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.messages import spec_of
from protocol.messages.registry import Plane
from protocol.rpc import Context
from protocol.rpc.server import GrpcCaller
from protocol.testing import RUN, introduce, make_node
from protocol.trust import Trust
from protocol.units import RunId
from tests.protocol.rpc.conftest import Pair
from tests.protocol.rpc.instruments import refusal
from tests.protocol.rpc.words import Ask, Echo, Frame, Pull, Rare, Speaker, Spell, Word


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
    letter = seal(author, RUN, Word("psst"), recipient=pair.server.peer_id, boot=bytes(16), sequence=1)
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


async def _ended_task() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task


async def test_a_handler_whose_own_task_was_cancelled_is_a_bug_of_the_handler(pair: Pair) -> None:
    async def on_ask(message: Ask, context: Context) -> Word:
        await _ended_task()
        return Word("")

    async def on_spell(message: Spell, context: Context) -> AsyncIterator[Word]:
        await _ended_task()
        yield Word("")

    pair.caller.handle(on_ask)
    pair.caller.handle(on_spell)
    introduce(pair.server, pair.caller)
    error = await refusal(pair.server.request(pair.caller.peer_id, Ask("x")))
    assert error.code is Code.NET_INTERNAL
    with pytest.raises(NodeError) as caught:
        async for _ in pair.server.stream(pair.caller.peer_id, Spell("x")):
            pass
    assert caught.value.code is Code.NET_INTERNAL


async def test_words_that_are_no_unicode_text_reach_the_caller(pair: Pair) -> None:
    async def on_ask(message: Ask, context: Context) -> Word:
        raise NodeError(Code.STO_FULL, "No room for a\udcff.", fix="Remove b\udcff.")

    pair.caller.handle(on_ask)
    introduce(pair.server, pair.caller)
    error = await refusal(pair.server.request(pair.caller.peer_id, Ask("x")))
    assert (error.code, error.sentence, error.fix) == (Code.STO_FULL, "No room for a?.", "Remove b?.")


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
    for version in (3, 0, 10**30):
        call = link.unary("rpc-test.echo", raw, version, timedelta(seconds=5))
        assert (await refusal(call)).code is Code.NET_VERSION
    assert await link.unary("rpc-test.echo", raw, 2, timedelta(seconds=5))


@pytest.mark.parametrize("said", ["x", "", "-1", "1.0", "²", "9" * 99, b"1"])
def test_a_declared_version_that_is_none_counts_as_zero(said: object) -> None:
    call = SimpleNamespace(auth_context=dict, invocation_metadata=lambda: (("intellect-version", said),))
    assert GrpcCaller(call, Trust()).version == 0


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:4001", "10.0.0.7"),
        ("ipv6:%5B2001:db8::7%5D:4001", "2001:db8::/64"),
        ("ipv6:[2001:db8::9]:4001", "2001:db8::/64"),
        ("unix:/run/x", ""),
    ],
)
def test_callers_are_counted_by_address_and_in_ipv6_by_network(peer: str, address: str) -> None:
    call = SimpleNamespace(auth_context=dict, peer=lambda: peer)
    assert GrpcCaller(call, Trust()).address == address


async def test_sent_bytes_are_counted_by_message(pair: Pair) -> None:
    await pair.caller.request(pair.server.peer_id, Echo(bytes(1000)))
    assert pair.caller.sent["rpc-test.echo"] > 1000
    assert pair.server.sent["rpc-test.frame"] > 1000
    assert dataclasses.is_dataclass(Context)
