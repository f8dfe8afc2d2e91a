"""What a hostile peer may answer: the caller gets a reason, in bounded memory and time, and goes on."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
import pytest

from protocol.errors import Code
from protocol.rpc import Endpoint
from protocol.rpc.channel import METHOD_PREFIX
from protocol.rpc.faults import CODE_KEY, FIX_KEY, RETRY_KEY
from protocol.testing import local_endpoints
from protocol.testing.local import introduce, make_node
from protocol.units import Address
from tests.protocol.rpc.conftest import serve
from tests.protocol.rpc.instruments import refusal
from tests.protocol.rpc.words import Ask, Pull, Speaker, Word

_HUGE = [("grpc.max_send_message_length", -1)]


class _Answers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, answer: Any) -> None:
        self._method = grpc.stream_stream_rpc_method_handler(answer)

    def service(self, handler_call_details: Any) -> Any:
        assert handler_call_details.method.startswith(METHOD_PREFIX)
        return self._method


@asynccontextmanager
async def answered_by(answer: Any) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """A caller, and a peer known to it whose calls all end up in ``answer(questions, call)``."""
    hostile = make_node()
    async with local_endpoints(2) as (caller, honest):
        serve(honest, Speaker())
        server = grpc.aio.server(options=_HUGE)
        server.add_generic_rpc_handlers((_Answers(answer),))
        pair = [(hostile.tls.key_pem, hostile.tls.certificate_pem)]
        credentials = grpc.ssl_server_credentials(pair, caller.tls.certificate_pem, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        introduce(caller, hostile, Address("127.0.0.1", port))
        try:
            yield caller, hostile
            assert await caller.request(honest.peer_id, Ask("x")) == Word("X")
        finally:
            await server.stop(None)


async def first(stream: Any) -> Any:
    async for frame in stream:
        return frame


@pytest.mark.parametrize(
    ("raw", "codes"),
    [
        (b"\xff" * 300, {Code.WIRE_MALFORMED}),
        (secrets.token_bytes(300), {Code.WIRE_MALFORMED, Code.WIRE_INVALID}),
        (b"\x0a\xff\xff\xff\xff\x0f", {Code.WIRE_MALFORMED}),
        (bytes(2**20), {Code.WIRE_TOO_LARGE, Code.WIRE_MALFORMED}),
        (bytes(2**25), {Code.WIRE_TOO_LARGE}),
    ],
    ids=["no protobuf", "chance", "a length of 2**32 - 1", "beyond its class", "beyond the transport"],
)
async def test_answers_that_are_none_are_refused(raw: bytes, codes: set[Code]) -> None:
    async def answer(_: Any, call: Any) -> None:
        await call.read()
        await call.write(raw)

    async with answered_by(answer) as (caller, hostile):
        assert (await refusal(caller.request(hostile.peer_id, Ask("x")))).code in codes
        assert (await refusal(first(caller.stream(hostile.peer_id, Pull(1, 1))))).code in codes


async def test_a_decompression_bomb_in_an_answer_is_not_inflated() -> None:
    async def answer(_: Any, call: Any) -> None:
        call.set_compression(grpc.Compression.Gzip)
        await call.read()
        await call.write(bytes(2**25))  # a few kilobytes on the wire

    async with answered_by(answer) as (caller, hostile):
        for asked in (
            caller.request(hostile.peer_id, Ask("x")),
            first(caller.stream(hostile.peer_id, Pull(1, 1))),
        ):
            error = await refusal(asked)
            assert error.code is Code.NET_INTERNAL and "gzip" in error.sentence


@pytest.mark.parametrize("count", [0, 2])
async def test_a_call_that_ends_well_with_no_answer_or_two_is_none(count: int) -> None:
    async def answer(_: Any, call: Any) -> None:
        await call.read()
        for _ in range(count):
            await call.write(b"")

    async with answered_by(answer) as (caller, hostile):
        error = await refusal(caller.request(hostile.peer_id, Ask("x"), timeout=timedelta(seconds=1)))
        assert error.code in (Code.WIRE_MALFORMED, Code.NET_TIMEOUT)


@pytest.mark.parametrize(
    "said",
    [
        {CODE_KEY: "E-NOT-000", RETRY_KEY: "1"},
        {CODE_KEY: "", RETRY_KEY: "perhaps", FIX_KEY: b"\xff\xfe"},
        {CODE_KEY: "E-NET-010", FIX_KEY: b"x" * 4000},
        {CODE_KEY: "\x1b[31m"},
    ],
)
async def test_a_refusal_of_nonsense_is_a_reason_that_can_be_printed(said: dict[str, Any]) -> None:
    async def answer(_: Any, call: Any) -> None:
        await call.abort(grpc.StatusCode.ABORTED, "\x1b[31m" + "long " * 500, tuple(said.items()))

    async with answered_by(answer) as (caller, hostile):
        error = await refusal(caller.request(hostile.peer_id, Ask("x")))
        assert str(error).isprintable() and len(str(error)) < 2000
