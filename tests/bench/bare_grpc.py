"""The peer of the data plane's benchmarks: ``grpc.aio`` over mutual TLS with nothing of ours."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from protocol.identity import Identity
from protocol.tls import make_certificate

_LARGEST = [("grpc.max_receive_message_length", 9 << 20), ("grpc.max_send_message_length", 9 << 20)]

CONTENT = memoryview(os.urandom(48 * 2**20))
"""What streams transfer."""


class BareGrpc:
    """A channel to a server that echoes, and streams."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._ask = channel.unary_unary("/bare/ask")
        self._pull = channel.unary_stream("/bare/pull")
        self._repeat = channel.unary_stream("/bare/repeat")

    async def ask(self, raw: bytes) -> bytes:
        """One call with one answer."""
        answer: bytes = await self._ask(raw, timeout=5)
        return answer

    async def pull(self, size: int, count: int) -> int:
        """Reads a stream of ``count`` messages of ``size`` bytes, parts of ``CONTENT``; how many bytes came."""
        return await self._read(self._pull, size, count)

    async def repeat(self, size: int, count: int) -> int:
        """The same of a server that writes one message again and again, so that it copies nothing."""
        return await self._read(self._repeat, size, count)

    async def _read(self, stream: Any, size: int, count: int) -> int:
        came = 0
        call = stream(b"%d %d" % (size, count))
        while (frame := await call.read()) is not grpc.aio.EOF:
            came += len(frame)
        return came


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self) -> None:
        self._methods = {
            "/bare/ask": grpc.unary_unary_rpc_method_handler(_echo),
            "/bare/pull": grpc.unary_stream_rpc_method_handler(_pull),
            "/bare/repeat": grpc.unary_stream_rpc_method_handler(_repeat),
        }

    def service(self, handler_call_details: Any) -> Any:
        return self._methods.get(handler_call_details.method)


async def _echo(raw: bytes, context: Any) -> bytes:
    return raw


async def _pull(raw: bytes, context: Any) -> None:
    size, count = map(int, raw.split())
    for index in range(count):
        await context.write(bytes(CONTENT[index * size : (index + 1) * size]))


async def _repeat(raw: bytes, context: Any) -> None:
    size, count = map(int, raw.split())
    data = bytes(CONTENT[:size])
    for _ in range(count):
        await context.write(data)


@asynccontextmanager
async def bare_grpc() -> AsyncIterator[BareGrpc]:
    """A started server and a channel to it, on loopback, each with a certificate that the other trusts."""
    here, there = Identity.ephemeral().peer_id, Identity.ephemeral().peer_id
    client, served = make_certificate(here), make_certificate(there)
    server = grpc.aio.server(options=_LARGEST)
    server.add_generic_rpc_handlers((_Handlers(),))
    credentials = grpc.ssl_server_credentials(
        [(served.key_pem, served.certificate_pem)], client.certificate_pem, require_client_auth=True
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    channel = grpc.aio.secure_channel(
        f"127.0.0.1:{port}",
        grpc.ssl_channel_credentials(served.certificate_pem, client.key_pem, client.certificate_pem),
        options=[*_LARGEST, ("grpc.ssl_target_name_override", there), ("grpc.use_local_subchannel_pool", 1)],
    )
    try:
        yield BareGrpc(channel)
    finally:
        await channel.close()
        await server.stop(0)
