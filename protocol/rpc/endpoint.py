"""A node's end of the data plane: it serves handlers and calls peers."""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any, TypeVar

import grpc
import grpc.aio

from protocol import limits
from protocol.clock import monotonic
from protocol.envelope import ReplayWindow, Sealed, seal
from protocol.errors import Code, NodeError
from protocol.identity import Signer, Verifier, verify
from protocol.messages.registry import Plane, Role, Spec, spec_of
from protocol.messages.wire import decode, encode
from protocol.rpc.channel import VERSION_KEY, Dial, Link, Links, common_options, dial, milliseconds
from protocol.rpc.server import Router, route_of
from protocol.rpc.throttle import RateLimits, Throttle
from protocol.tls import TlsIdentity
from protocol.trust import Trust
from protocol.units import Address, Bytes, PeerId, RunId

ANY_PORT = Address("127.0.0.1", 0)
"""Where an endpoint listens unless told otherwise: loopback, any free port."""

H = TypeVar("H", bound=Callable[..., Any])

Audience = Callable[[PeerId, str], bool]
"""Whether a verified peer belongs to ``member``, ``operator`` or ``role:…``."""


def only_anyone(peer: PeerId, audience: str) -> bool:
    """The audience of a node that knows no members yet: messages for ``anyone`` and no others."""
    return False


class Endpoint:
    """Serves this node's handlers to trusted peers and calls theirs. Used from one event loop.

    Control messages and requests travel sealed, over one connection per peer. Replies are not: a reply belongs to
    its call, on a connection whose certificate the peer's key has signed, and nobody else is to be shown it; what
    has to be shown is a statement inside it. Bulk messages are not sealed either (their contents are verified by
    hash); they have a second connection and the upload limit.

    Args:
        identity: Who this node is; it signs control messages.
        tls: The certificate that peers find in this node's record.
        trust: Whom to let connect; it may change while this serves.
        run: The run; None until a joiner learns it, then set :attr:`run`.
        boot: This process's boot number, 16 random bytes.
        listen: Where to listen; port 0 takes any free one.
        upload: Bytes per second for all bulk messages together, None for no limit.
        audience: Who is a member, operator or has a role; a node that is told nothing serves ``anyone`` only.
        verifier: Checks signatures of envelopes.
        dial: Opens connections.
        clock: Seconds, by which limits are kept.

    Attributes:
        run, audience: May be set at any time.
        throttle: The upload limit.
        sent: Bytes of messages sent so far, by message name (envelopes included, framing and TLS not).
    """

    def __init__(
        self,
        identity: Signer,
        tls: TlsIdentity,
        trust: Trust,
        *,
        run: RunId | None,
        boot: bytes,
        listen: Address = ANY_PORT,
        upload: Bytes | None = None,
        audience: Audience = only_anyone,
        verifier: Verifier = verify,
        dial: Dial = dial,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.identity = identity
        self.peer_id = identity.peer_id
        self.tls = tls
        self.trust = trust
        self.run = run
        self.boot = boot
        self.listen = listen
        self.audience = audience
        self.verifier = verifier
        self.throttle = Throttle(upload, clock=clock)
        self.rates = RateLimits(clock=clock)
        self.replay = ReplayWindow()
        self.sent: Counter[str] = Counter()
        self.address: Address | None = None
        self._sequences: Counter[PeerId] = Counter()
        self._links = Links(trust, tls, dial)
        self._router = Router(self)
        self._server: grpc.aio.Server | None = None

    # --- serving --------------------------------------------------------------------------------------------------

    def handle(self, function: H) -> H:
        """Serves the message that the function's first parameter names; usable as a decorator and on bound methods.

        ``async def f(message: M, context: Context) -> None`` for a message, ``-> Reply`` for a request, an async
        generator ``-> AsyncIterator[Reply]`` for a request with ``stream=True``. A ``NodeError`` that it raises
        reaches the caller as the same code and sentence; of any other exception the caller learns nothing.

        Raises:
            NodeError: ``E-WIRE-001`` if the function's type does not fit, or the message has a handler already.
        """
        self._router.add(route_of(function))
        return function

    async def start(self) -> Address:
        """Listens.

        Returns:
            The address with the port that was taken.

        Raises:
            NodeError: ``E-NET-001`` if the port is in use, ``E-NET-002`` if the address is not this machine's.
        """
        _check_free(self.listen)
        options = [
            *common_options(limits.KEEPALIVE_BULK),
            ("grpc.so_reuseport", 0),  # else a second node would take the same port without a word
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.server_handshake_timeout_ms", milliseconds(limits.CONNECT_TIMEOUT) * 2),
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=limits.MAX_CALLS)
        server.add_generic_rpc_handlers((self._router,))
        try:
            port = server.add_secure_port(str(self.listen), self._credentials())
        except RuntimeError as error:
            raise NodeError(
                Code.NET_PORT_IN_USE, f"The node cannot listen at {self.listen}: {error}."
            ) from error
        await server.start()
        self._server = server
        self.address = Address(self.listen.host, port)
        return self.address

    def _credentials(self) -> grpc.ServerCredentials:
        pair = [(self.tls.key_pem, self.tls.certificate_pem)]
        given = -1

        def current(first: bool = False) -> Any:
            nonlocal given
            version = self.trust.version
            if version == given and not first:
                return None  # nothing changed
            given = version
            return grpc.ssl_server_certificate_configuration(
                pair, self.tls.certificate_pem + self.trust.pem_bundle()
            )

        return grpc.dynamic_ssl_server_credentials(
            current(first=True), current, require_client_authentication=True
        )

    async def stop(self, grace: timedelta = timedelta()) -> None:
        """Accepts no more calls, lets those under way end within ``grace``, then cancels them and closes everything.

        When it returns no task of the endpoint is left. Stopping twice is harmless.
        """
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace.total_seconds())
        running = list(self._router.running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._links.stop()

    def pack_reply(self, spec: Spec, reply: Any) -> bytes:
        """A handler's reply as it travels; for the router."""
        if type(reply) is not spec.replies:
            raise TypeError(f"the handler of {spec.name} answered with a {type(reply).__name__}")
        raw = encode(reply)
        self.sent[spec_of(type(reply)).name] += len(raw)
        return raw

    # --- calling --------------------------------------------------------------------------------------------------

    async def send(self, peer: PeerId, message: Any, *, timeout: timedelta | None = None) -> None:
        """Tells a peer something, and returns when its handler has returned.

        Raises:
            NodeError: What the peer's handler raised, or ``E-NET-…`` if it could not be told.
        """
        spec = _spec(message, Role.MESSAGE)
        await self._unary(peer, spec, message, timeout or limits.SEND_TIMEOUT)

    async def post(self, peer: PeerId, sealed: Sealed[Any], *, timeout: timedelta | None = None) -> None:
        """Delivers a statement, one's own or another's, as it is.

        Raises:
            NodeError: As :meth:`send`.
        """
        spec = _spec(sealed.message, Role.MESSAGE)
        if sealed.recipient is not None and sealed.recipient != peer:
            raise NodeError(
                Code.WIRE_WRONG_RECIPIENT, f"A {spec.name} for {sealed.recipient} is not for {peer}."
            )
        self.sent[spec.name] += len(sealed.raw)
        link = self._links.to(peer, Plane.CONTROL)
        await link.unary(spec.name, sealed.raw, (), timeout or limits.SEND_TIMEOUT)

    async def request(self, peer: PeerId, request: Any, *, timeout: timedelta | None = None) -> Any:
        """Asks a peer, within the request's declared time-out unless told otherwise.

        Returns:
            An instance of the request's ``replies`` class.

        Raises:
            NodeError: What the peer's handler raised, or ``E-NET-…`` if it could not be asked, or ``E-WIRE-…`` if
                the answer is not valid.
        """
        spec = _spec(request, Role.REQUEST)
        if spec.stream:
            raise TypeError(f"{spec.name} is answered by a stream: use Endpoint.stream")
        raw = await self._unary(peer, spec, request, timeout or spec.timeout or limits.SEND_TIMEOUT)
        return decode(_replies(spec), raw)

    async def stream(
        self, peer: PeerId, request: Any, *, progress: timedelta | None = None
    ) -> AsyncGenerator[Any, None]:
        """Asks a peer for a stream. Each reply has to come within ``progress`` of the one before.

        The call ends when the iterator is exhausted or closed: one who leaves early uses
        ``contextlib.aclosing(endpoint.stream(…))``.

        Raises:
            NodeError: As :meth:`request`; ``E-NET-003`` when nothing came for ``progress``.
        """
        spec = _spec(request, Role.REQUEST)
        if not spec.stream:
            raise TypeError(f"{spec.name} is answered once: use Endpoint.request")
        replies = _replies(spec)
        link, raw = await self._prepare(peer, spec, request)
        stream = await link.open_stream(
            spec.name, raw, _metadata(spec), progress or spec.timeout or limits.SEND_TIMEOUT
        )
        try:
            while (frame := await stream.read()) is not None:
                yield decode(replies, frame)
        finally:
            stream.close()

    async def _unary(self, peer: PeerId, spec: Spec, message: Any, timeout: timedelta) -> bytes:
        link, raw = await self._prepare(peer, spec, message)
        return await link.unary(spec.name, raw, _metadata(spec), timeout)

    async def _prepare(self, peer: PeerId, spec: Spec, message: Any) -> tuple[Link, bytes]:
        link = self._links.to(peer, spec.plane)
        raw = self._pack(spec, message, peer)
        if spec.plane is Plane.BULK:
            await self.throttle.take(len(raw))
        return link, raw

    def _pack(self, spec: Spec, message: Any, peer: PeerId) -> bytes:
        """A message or request as it travels: sealed on the control plane, bare on the bulk plane."""
        if spec.plane is Plane.BULK:
            raw = encode(message)
        else:
            self._sequences[peer] += 1
            raw = seal(
                self.identity,
                self.run,
                message,
                recipient=peer,
                boot=self.boot,
                sequence=self._sequences[peer],
            ).raw
        self.sent[spec_of(type(message)).name] += len(raw)
        return raw


def _spec(message: Any, role: Role) -> Spec:
    spec = spec_of(type(message))
    if spec.role is not role:
        raise TypeError(f"{spec.name} is declared as a {spec.role}, not as a {role}")
    return spec


def _replies(spec: Spec) -> type[Any]:
    assert spec.replies is not None, "a request has replies"
    return spec.replies


def _metadata(spec: Spec) -> tuple[tuple[str, str], ...]:
    return ((VERSION_KEY, str(spec.version)),) if spec.plane is Plane.BULK else ()


def _check_free(address: Address) -> None:
    """Tells a taken port from a wrong address, which gRPC's own error does not."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise NodeError(
                    Code.NET_PORT_IN_USE, f"Port {address.port} of {address.host} is in use."
                ) from error
            raise NodeError(
                Code.NET_UNREACHABLE,
                f"The node cannot listen at {address}: {error.strerror}.",
                fix="Use an address of this machine in the run file's [network] section.",
            ) from error
