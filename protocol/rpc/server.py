"""The served side: who calls, whether it may, and the handler that answers."""

import asyncio
import inspect
import logging
import types
import typing
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from protocol import limits
from protocol.envelope import Sealed, unseal
from protocol.errors import Code, NodeError
from protocol.messages.fields import SPEC
from protocol.messages.registry import Plane, Role, Spec, spec_of
from protocol.messages.wire import decode
from protocol.rpc.channel import METHOD_PREFIX, VERSION_KEY
from protocol.rpc.faults import abort
from protocol.rpc.progress import ProgressTimer
from protocol.units import PeerId

if TYPE_CHECKING:
    from protocol.rpc.endpoint import Endpoint

_log = logging.getLogger(__name__)

_Call = Any  # grpc.aio.ServicerContext, which has no types here


@dataclass(frozen=True)
class Context:
    """What a handler knows of a message besides its contents.

    Attributes:
        sender: Who says it, verified: the signer of the envelope; on the bulk plane the peer at the connection.
        peer: Who delivered it over its authenticated connection. For a statement that was passed on this is not
            the sender; for everything else it is. Audience and rate are those of this peer.
        sealed: The envelope that came, on the control plane; None on the bulk plane.
        version: The version of the message that the sender speaks.
    """

    sender: PeerId
    peer: PeerId
    sealed: Sealed[Any] | None
    version: int


@dataclass(frozen=True)
class Route:
    """A handler and the message it takes."""

    spec: Spec
    function: Callable[[Any, Context], Any]


def route_of(function: Callable[..., Any]) -> Route:
    """The message class that a handler takes, from its type hints.

    Raises:
        NodeError: ``E-WIRE-001`` if it is not ``async def f(message: M, context: Context) -> reply``, or does not
            answer with what the request declares.
    """
    where = getattr(function, "__qualname__", repr(function))
    parameters = list(inspect.signature(function).parameters.values())
    hints = typing.get_type_hints(getattr(function, "__func__", function))
    cls = hints.get(parameters[0].name) if len(parameters) == 2 else None
    if not isinstance(cls, type) or SPEC not in vars(cls):
        raise _bad(where, "takes a message with a type hint, and a Context")
    spec = spec_of(cls)
    if spec.role is Role.PART:
        raise _bad(where, f"cannot take {spec.name}, which is only a part of messages")
    answer = hints.get("return")
    if spec.stream:
        if not inspect.isasyncgenfunction(function) or typing.get_args(answer)[:1] != (spec.replies,):
            raise _bad(where, f"is an async generator -> AsyncIterator[{_name(spec.replies)}]")
    else:
        wanted = spec.replies if spec.replies is not None else types.NoneType
        if not inspect.iscoroutinefunction(function) or answer is not wanted:
            raise _bad(where, f"is an async function -> {_name(spec.replies)}")
    return Route(spec, function)


def _name(cls: type[Any] | None) -> str:
    return "None" if cls is None else cls.__name__


def _bad(where: str, what: str) -> NodeError:
    return NodeError(Code.WIRE_DECLARATION, f"The handler {where} does not fit: a handler for it {what}.")


class Router(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a call, checks the call, runs the handler, answers."""

    def __init__(self, endpoint: "Endpoint") -> None:
        self._endpoint = endpoint
        self._methods: dict[str, Any] = {}
        self._calls: Counter[PeerId] = Counter()
        self.running: set[asyncio.Task[Any]] = set()

    def add(self, route: Route) -> None:
        """Serves a message.

        Raises:
            NodeError: ``E-WIRE-001`` if the message has a handler already.
        """
        method = METHOD_PREFIX + route.spec.name
        if method in self._methods:
            raise NodeError(Code.WIRE_DECLARATION, f"The message {route.spec.name} has two handlers.")
        if route.spec.stream:

            async def stream(raw: bytes, call: _Call) -> None:
                await self._guarded(self._stream, route, raw, call)

            self._methods[method] = grpc.unary_stream_rpc_method_handler(stream)
        else:

            async def unary(raw: bytes, call: _Call) -> bytes:
                answer: bytes = await self._guarded(self._unary, route, raw, call)
                return answer

            self._methods[method] = grpc.unary_unary_rpc_method_handler(unary)

    def service(self, handler_call_details: Any) -> Any:
        """Answers which handler a call has; None is answered with UNIMPLEMENTED."""
        return self._methods.get(handler_call_details.method)

    async def _guarded(
        self, answer: Callable[[Route, bytes, _Call, PeerId], Any], route: Route, raw: bytes, call: _Call
    ) -> Any:
        task, name = asyncio.current_task(), route.spec.name
        assert task is not None
        self.running.add(task)
        try:
            peer = self._peer_of(call)
            with self._place(peer):
                return await answer(route, raw, call, peer)
        except NodeError as error:
            failure = error
        except Exception:
            _log.exception("the handler of %s failed", name)
            failure = NodeError(Code.NET_INTERNAL, f"The peer failed while it handled {name}.")
        finally:
            self.running.discard(task)
        await abort(call, failure)

    @contextmanager
    def _place(self, peer: PeerId) -> Iterator[None]:
        """One of the calls that a peer may have open here at the same time."""
        if self._calls[peer] >= limits.MAX_CALLS_OF_PEER:
            raise NodeError(Code.NET_RATE, f"{self._calls[peer]} calls of {peer} are open already.")
        self._calls[peer] += 1
        try:
            yield
        finally:
            self._calls[peer] -= 1
            if not self._calls[peer]:
                del self._calls[peer]

    async def _unary(self, route: Route, raw: bytes, call: _Call, peer: PeerId) -> bytes:
        message, context = self._admit(route.spec, raw, call, peer)
        reply = await route.function(message, context)
        if route.spec.replies is None:
            return b""
        answer = self._endpoint.pack_reply(route.spec, reply)
        if route.spec.plane is Plane.BULK:
            await self._endpoint.throttle.take(len(answer))
        return answer

    async def _stream(self, route: Route, raw: bytes, call: _Call, peer: PeerId) -> None:
        message, context = self._admit(route.spec, raw, call, peer)
        replies: AsyncIterator[Any] = route.function(message, context)
        throttle = self._endpoint.throttle if route.spec.plane is Plane.BULK else None
        task = asyncio.current_task()
        assert task is not None
        timer = ProgressTimer(limits.STALL, task.cancel)
        try:
            async for reply in replies:
                frame = self._endpoint.pack_reply(route.spec, reply)
                if throttle is not None:
                    await throttle.take(len(frame))
                timer.begin()
                await call.write(frame)
                timer.end()
        except asyncio.CancelledError:
            if not timer.has_expired or task.uncancel() > 0:
                raise
            raise NodeError(
                Code.NET_TIMEOUT,
                f"Nothing of {route.spec.name} was read for {limits.STALL.total_seconds():g} s.",
            ) from None
        finally:
            timer.stop()
            await replies.aclose()  # type: ignore[attr-defined]

    def _admit(self, spec: Spec, raw: bytes, call: _Call, peer: PeerId) -> tuple[Any, Context]:
        endpoint = self._endpoint
        if spec.audience != "anyone" and not endpoint.audience(peer, spec.audience):
            raise NodeError(
                Code.NET_AUDIENCE, f"{spec.name} is for {spec.audience} only, and {peer} is none."
            )
        if spec.rate is not None and not endpoint.rates.allow(peer, spec.name, spec.rate):
            raise NodeError(Code.NET_RATE, f"{spec.name} came more often than {spec.rate}.")
        if spec.plane is Plane.BULK:
            version = _declared_version(call, spec)
            return decode(spec.cls, raw), Context(peer, peer, None, version)
        sealed: Sealed[Any] = unseal(
            raw, run=endpoint.run, expect=spec.cls, me=endpoint.peer_id, verifier=endpoint.verifier
        )
        if sealed.recipient is not None:
            if sealed.sender != peer:
                raise NodeError(
                    Code.WIRE_WRONG_RECIPIENT, f"{peer} delivered what {sealed.sender} said to one peer."
                )
            endpoint.replay.accept(sealed)
        elif spec.role is Role.REQUEST:
            raise NodeError(Code.WIRE_WRONG_RECIPIENT, f"The request {spec.name} is addressed to nobody.")
        return sealed.message, Context(sealed.sender, peer, sealed, sealed.version)

    def _peer_of(self, call: _Call) -> PeerId:
        for certificate in call.auth_context().get("x509_pem_cert", ()):
            peer = self._endpoint.trust.peer_of_certificate(certificate)
            if peer is not None:
                return peer
        raise NodeError(Code.NET_UNTRUSTED, "The certificate of the caller is not known here, or no longer.")


def _declared_version(call: _Call, spec: Spec) -> int:
    version = spec.version
    for key, value in call.invocation_metadata() or ():
        if key == VERSION_KEY:
            text = value if isinstance(value, str) else ""
            version = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not spec.understands(version):
        raise NodeError(
            Code.NET_VERSION,
            f"A {spec.name} of version {version} came; this node speaks version {spec.version}.",
        )
    return version
