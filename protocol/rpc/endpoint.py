"""A node's end of the data plane: it serves handlers and calls peers."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Protocol, TypeVar, overload

from protocol import limits
from protocol.clock import monotonic
from protocol.envelope import Sealed, seal_raw
from protocol.errors import Code, NodeError
from protocol.identity import Signer, Verifier, verify
from protocol.messages.declaration import Asks
from protocol.messages.registry import Plane, Role, Spec, spec_of
from protocol.messages.wire import decode, decoder, encode
from protocol.rpc.channel import Dial, dial
from protocol.rpc.conversation import both_ways
from protocol.rpc.desk import Desk
from protocol.rpc.grpc_carrier import GrpcCarrier
from protocol.rpc.routes import route_of
from protocol.rpc.server import Router
from protocol.rpc.throttle import Throttle
from protocol.tls import TlsIdentity
from protocol.trust import Trust
from protocol.units import Address, Bytes, PeerId, RunId

ANY_PORT = Address("127.0.0.1", 0)
"""Where an endpoint listens unless told otherwise: loopback, any free port."""

H = TypeVar("H", bound=Callable[..., Any])
R = TypeVar("R")

Audience = Callable[[PeerId, str], bool]
"""Whether a verified peer belongs to ``member``, ``operator`` or ``role:…``."""


class Topics(Protocol):
    """What carries topics: :class:`protocol.gossip.Gossip`."""

    def handle(self, function: Any) -> Any:
        """Subscribes to the topic that the function takes."""
        ...

    async def publish(self, message: Any) -> Sealed[Any]:
        """Publishes to everybody who subscribes."""
        ...


def only_anyone(peer: PeerId, audience: str) -> bool:
    """The audience of a node that knows no members yet: messages for ``anyone`` and no others."""
    return False


def always_direct(peer: PeerId) -> str:
    """The path to every peer of a node that has no relay."""
    return "direct"


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
        upload: Bytes per second for all bulk messages sent together, None for no limit.
        download: Bytes per second for all bulk frames fetched together, None for no limit.
        audience: Who is a member, operator or has a role; a node that is told nothing serves ``anyone`` only.
        verifier: Checks signatures of envelopes.
        dial: Opens connections; gRPC over mutual TLS unless a test puts something in its place.
        clock: Seconds, by which limits are kept.

    Attributes:
        run, audience, gossip, path_of: May be set at any time.
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
        download: Bytes | None = None,
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
        self._gossip: Topics | None = None
        self._topics: list[Any] = []
        self.path_of: Callable[[PeerId], str] = always_direct
        self.throttle = Throttle(upload, clock=clock)
        self._download = Throttle(download, clock=clock)
        self.sent: Counter[str] = Counter()
        self.address: Address | None = None
        self.desk = Desk(self, clock)
        self._sequences: dict[str, int] = {}
        self.carrier = GrpcCarrier(tls, trust, listen, dial)
        self._links = self.carrier.links
        self._router = Router(self.desk, trust)

    @property
    def gossip(self) -> Topics | None:
        """What carries topics; None until it is there."""
        return self._gossip

    @gossip.setter
    def gossip(self, gossip: Topics) -> None:
        """Handlers of topics that came before it subscribe now."""
        self._gossip = gossip
        waiting, self._topics = self._topics, []
        for function in waiting:
            gossip.handle(function)

    # --- serving --------------------------------------------------------------------------------------------------

    def handle(self, function: H) -> H:
        """Serves the message that the function's first parameter names; usable as a decorator and on bound methods.

        ``async def f(message: M, context: Context) -> None`` for a message or topic, ``-> Reply`` for a request;
        with ``stream="replies"`` an async generator ``-> AsyncIterator[Reply]``; with ``stream="requests"`` the
        first parameter is ``messages: AsyncIterator[M]``; with ``"both"``, both. A ``NodeError`` that it raises
        reaches the caller as the same code, sentence and hint; of any other exception the caller learns nothing.

        Raises:
            NodeError: ``E-WIRE-001`` if the function's type does not fit, or the message has a handler already.
        """
        route = route_of(function)
        if route.spec.role is not Role.TOPIC:
            self.desk.add(route)
        elif self._gossip is None:
            self._topics.append(function)
        else:
            self._gossip.handle(function)
        return function

    async def start(self) -> Address:
        """Listens.

        Returns:
            The address with the port that was taken.

        Raises:
            NodeError: ``E-NET-001`` if the port is in use, ``E-NET-002`` if the address is not this machine's.
        """
        self.address = await self.carrier.start(self._router)
        return self.address

    async def stop(self, grace: timedelta = timedelta()) -> None:
        """Accepts no more calls, lets those under way end within ``grace``, then cancels them and closes everything.

        When it returns no task of the endpoint is left. Stopping twice is harmless.
        """
        await self.carrier.stop(grace)
        running = list(self.desk.running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self.desk.close()

    def pack_reply(self, spec: Spec, reply: Any) -> bytes:
        """A handler's reply as it travels; for the desk."""
        if type(reply) is not spec.replies:
            raise TypeError(f"the handler of {spec.name} answered with a {type(reply).__name__}")
        raw = encode(reply)
        self.sent[spec.reply_name] += len(raw)
        return raw

    def name_of(self, message: Any) -> str:
        """The name of a message's class; for the desk."""
        return spec_of(type(message)).name

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
        await link.unary(spec.name, sealed.raw, 1, timeout or limits.SEND_TIMEOUT)

    async def publish(self, message: Any) -> Sealed[Any]:
        """Publishes a topic to everybody who follows it.

        Returns:
            The statement that was published.

        Raises:
            NodeError: ``E-NET-002`` if this node has no gossip yet.
        """
        spec = _spec(message, Role.TOPIC)
        if self._gossip is None:
            raise NodeError(Code.NET_UNREACHABLE, f"This node has no gossip to publish a {spec.name} in.")
        return await self._gossip.publish(message)

    @overload
    async def request(self, peer: PeerId, request: Asks[R], *, timeout: timedelta | None = None) -> R: ...
    @overload
    async def request(self, peer: PeerId, request: object, *, timeout: timedelta | None = None) -> Any: ...

    async def request(self, peer: PeerId, request: Any, *, timeout: timedelta | None = None) -> Any:
        """Asks a peer, within the request's declared time-out unless told otherwise.

        Returns:
            An instance of the request's ``replies`` class.

        Raises:
            NodeError: What the peer's handler raised, or ``E-NET-…`` if it could not be asked, or ``E-WIRE-…`` if
                the answer is not valid.
        """
        spec = _spec(request, Role.REQUEST)
        if spec.stream or spec.asks_stream:
            raise TypeError(f"{spec.name} is a stream: use Endpoint.stream, feed or converse")
        raw = await self._unary(peer, spec, request, timeout or spec.timeout or limits.SEND_TIMEOUT)
        return decode(_replies(spec), raw)

    @overload
    def stream(
        self,
        peer: PeerId,
        request: Asks[R],
        *,
        progress: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[R, None]: ...
    @overload
    def stream(
        self,
        peer: PeerId,
        request: object,
        *,
        progress: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[Any, None]: ...

    async def stream(
        self,
        peer: PeerId,
        request: Any,
        *,
        progress: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Asks a peer for a stream. Each reply has to come within ``progress`` of the one before.

        The call ends when the iterator is exhausted or closed: one who leaves early uses
        ``contextlib.aclosing(endpoint.stream(…))``. Nothing is read ahead of what is asked for, beyond the
        connection's window.

        Args:
            peer: Whom to ask.
            request: The question.
            progress: The longest wait for one reply; the request's declared time-out unless given.
            timeout: The deadline of the whole stream, which the peer is told; none unless given.

        Raises:
            NodeError: As :meth:`request`; ``E-NET-003`` when nothing came for ``progress``.
        """
        spec = _spec(request, Role.REQUEST)
        if spec.asks_stream or not spec.stream:
            raise TypeError(f"{spec.name} is not one question with a stream of replies")
        link = self._links.to(peer, spec.plane)
        raw = self._pack(spec, request, peer)
        if spec.plane is Plane.BULK:
            await self.throttle.take(len(raw))
        version = spec.version if spec.plane is Plane.BULK else 1
        call = await link.open(
            spec.name, raw, version, progress or spec.timeout or limits.SEND_TIMEOUT, timeout
        )
        read, reply_of = call.read, decoder(_replies(spec))
        limited = spec.plane is Plane.BULK and self._download.rate is not None
        try:
            while (frame := await read()) is not None:
                if limited:
                    await self._download.take(len(frame))  # what is not read is not sent: streams push back
                yield reply_of(frame)
        finally:
            call.close()

    @overload
    async def feed(
        self,
        peer: PeerId,
        kind: type[Asks[R]],
        requests: AsyncIterable[Any],
        *,
        progress: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> R: ...
    @overload
    async def feed(
        self,
        peer: PeerId,
        kind: type[Any],
        requests: AsyncIterable[Any],
        *,
        progress: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> Any: ...

    async def feed(
        self,
        peer: PeerId,
        kind: type[Any],
        requests: AsyncIterable[Any],
        *,
        progress: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Sends a stream of requests of one class and returns the one reply.

        The next request is taken from ``requests`` when there is room for it.

        Args:
            peer: Whom to ask.
            kind: The class of the requests, declared with ``stream="requests"``.
            requests: The requests.
            progress: The longest that the peer may take nothing, or, after the last request, say nothing.
            timeout: The deadline of the whole call.

        Raises:
            NodeError: As :meth:`stream`. What ``requests`` raises ends the call and is raised here.
        """
        spec = spec_of(kind)
        if spec.stream or not spec.asks_stream:
            raise TypeError(f"{spec.name} is not a stream of requests with one reply")
        answer = None
        async for reply in self._both(peer, spec, requests, progress, timeout):
            answer = reply
        if answer is None:
            raise NodeError(Code.WIRE_MALFORMED, f"{peer} ended {spec.name} without a reply.", peer=peer)
        return answer

    def converse(
        self,
        peer: PeerId,
        kind: type[Any],
        requests: AsyncIterable[Any],
        *,
        progress: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Sends a stream of requests and receives a stream of replies at the same time.

        Arguments and errors as :meth:`feed`, for a class declared with ``stream="both"``; ``progress`` is also the
        longest wait for one reply. Ends early as :meth:`stream` does.
        """
        spec = spec_of(kind)
        if not spec.stream or not spec.asks_stream:
            raise TypeError(f"{spec.name} is not a stream both ways")
        return self._both(peer, spec, requests, progress, timeout)

    async def _both(
        self,
        peer: PeerId,
        spec: Spec,
        requests: AsyncIterable[Any],
        progress: timedelta | None,
        timeout: timedelta | None,
    ) -> AsyncGenerator[Any, None]:
        link = self._links.to(peer, spec.plane)
        call = await link.open(
            spec.name, None, spec.version, progress or spec.timeout or limits.SEND_TIMEOUT, timeout
        )

        async def pack(request: Any) -> bytes:
            raw = self._pack(spec, request, peer)
            if spec.plane is Plane.BULK:
                await self.throttle.take(len(raw))
            return raw

        async with aclosing(both_ways(call, spec, requests, pack)) as replies:
            async for reply in replies:
                yield reply

    async def _unary(self, peer: PeerId, spec: Spec, message: Any, timeout: timedelta) -> bytes:
        link = self._links.to(peer, spec.plane)
        raw = self._pack(spec, message, peer)
        if spec.plane is Plane.BULK:
            await self.throttle.take(len(raw))
            return await link.unary(spec.name, raw, spec.version, timeout)
        return await link.unary(spec.name, raw, 1, timeout)

    def _pack(self, spec: Spec, message: Any, peer: PeerId) -> bytes:
        """A message or request as it travels: sealed on the control plane, bare on the bulk plane."""
        if spec.plane is Plane.BULK:
            raw = encode(message)
        else:
            raw = seal_raw(
                self.identity,
                self.run,
                message,
                recipient=peer,
                boot=self.boot,
                sequence=self._next(peer),
            )
        self.sent[spec.name] += len(raw)
        return raw

    def _next(self, whom: str) -> int:
        number = self._sequences[whom] = self._sequences.get(whom, 0) + 1
        return number


def _spec(message: Any, role: Role) -> Spec:
    spec = spec_of(type(message))
    if spec.role is not role:
        raise TypeError(f"{spec.name} is declared as a {spec.role}, not as a {role}")
    return spec


def _replies(spec: Spec) -> type[Any]:
    assert spec.replies is not None, "a request has replies"
    return spec.replies
