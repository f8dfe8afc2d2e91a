"""The served side of gRPC: calls become questions to the desk."""

import ipaddress
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio

from protocol.errors import Code, NodeError
from protocol.rpc.channel import METHOD_PREFIX, VERSION_KEY
from protocol.rpc.desk import Context, Desk
from protocol.rpc.faults import abort
from protocol.rpc.routes import Route
from protocol.trust import Trust
from protocol.units import PeerId

__all__ = ["Context", "GrpcCaller", "Router"]

_Call = Any  # grpc.aio.ServicerContext, which has no types here


class GrpcCaller:
    """Who makes a gRPC call; what is rarely asked is only read when it is."""

    __slots__ = ("_call", "peer")

    def __init__(self, call: _Call, trust: Trust) -> None:
        self._call = call
        self.peer: PeerId | None = None
        for certificate in call.auth_context().get("x509_pem_cert", ()):
            self.peer = trust.peer_of_certificate(certificate)
            break

    @property
    def address(self) -> str:
        """The caller's address without port; of IPv6 the /64 that one network is given."""
        text = unquote(self._call.peer()).partition(":")[2].rpartition(":")[0].strip("[]")
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return text
        if address.version == 6:
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(address)

    @property
    def version(self) -> int:
        """The declared version; 1 where none was, 0 for what is no version."""
        for key, value in self._call.invocation_metadata() or ():
            if key == VERSION_KEY:
                text = value if isinstance(value, str) else ""
                return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        return 1

    def time_left(self) -> float | None:
        """Seconds until the caller's deadline."""
        left: float | None = self._call.time_remaining()
        return left


class Router(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the method of a call among the desk's handlers, which may be added while it serves."""

    def __init__(self, desk: Desk, trust: Trust) -> None:
        self._desk = desk
        self._trust = trust
        self._methods: dict[str, Any] = {}

    def service(self, handler_call_details: Any) -> Any:
        """Answers which handler a call has; None is answered with UNIMPLEMENTED."""
        path = handler_call_details.method
        method = self._methods.get(path)
        if method is None and path.startswith(METHOD_PREFIX):
            route = self._desk.find(path[len(METHOD_PREFIX) :])
            if route is not None:
                method = self._methods[path] = self._method(route)
        return method

    def _method(self, route: Route) -> Any:
        desk, trust, spec = self._desk, self._trust, route.spec

        async def unary(_: Any, call: _Call) -> bytes:
            try:
                return await desk.answer(route, None, GrpcCaller(call, trust), partial(_read, call))
            except NodeError as error:
                failure = error
            await abort(call, failure)
            raise AssertionError("abort raises")

        async def stream(_: Any, call: _Call) -> None:
            try:
                await desk.converse(route, _all(call), GrpcCaller(call, trust), call.write)
                return
            except NodeError as error:
                failure = error
            await abort(call, failure)

        # A handler that takes a stream is entered when a call's headers are there, and reads: so the desk says who may
        # speak before megabytes come, and whoever never ends its question waits in one of its own few places.
        if spec.asks_stream or spec.stream:
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.stream_unary_rpc_method_handler(unary)


async def _read(call: _Call) -> bytes | None:
    try:
        raw = await call.read()
    except grpc.aio.BaseError as error:  # the server stopped meanwhile
        raise NodeError(Code.NET_UNREACHABLE, "The node stops.") from error
    return None if raw is grpc.aio.EOF else raw


async def _all(call: _Call) -> AsyncIterator[bytes]:
    while (raw := await _read(call)) is not None:
        yield raw
