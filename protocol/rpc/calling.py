"""The calling side of a node's end of the data plane: messages told, requests asked, streams both ways."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Any, TypeVar, overload

from protocol import limits
from protocol.envelope import Sealed, seal_raw
from protocol.errors import Code, NodeError
from protocol.identity import Signer
from protocol.messages.declaration import Asks
from protocol.messages.registry import Plane, Role, Spec, spec_of
from protocol.messages.wire import decode, decoder, encode
from protocol.rpc.channel import Links
from protocol.rpc.conversation import both_ways
from protocol.rpc.throttle import Throttle
from protocol.units import Bytes, PeerId, RunId

R = TypeVar("R")


class Calling:
    """Calls peers. :class:`protocol.rpc.Endpoint` is one that also answers, and says what the arguments are."""

    def __init__(
        self,
        identity: Signer,
        *,
        run: RunId | None,
        boot: bytes,
        links: Links,
        upload: Bytes | None,
        download: Bytes | None,
        clock: Callable[[], float],
    ) -> None:
        self.identity = identity
        self.peer_id = identity.peer_id
        self.run = run
        self.boot = boot
        self.throttle = Throttle(upload, clock=clock)
        self.sent: Counter[str] = Counter()
        self._download = Throttle(download, clock=clock)
        self._links = links
        self._sequences: dict[str, int] = {}

    async def send(self, peer: PeerId, message: Any, *, timeout: timedelta | None = None) -> None:
        """Tells a peer something, and returns when its handler has returned.

        Raises:
            NodeError: What the peer's handler raised, or ``E-NET-…`` if it could not be told.
        """
        spec = spec_as(message, Role.MESSAGE)
        await self._unary(peer, spec, message, timeout or limits.SEND_TIMEOUT)

    async def post(self, peer: PeerId, sealed: Sealed[Any], *, timeout: timedelta | None = None) -> None:
        """Delivers a statement, one's own or another's, as it is.

        Raises:
            NodeError: As :meth:`send`.
        """
        spec = spec_as(sealed.message, Role.MESSAGE)
        if sealed.recipient is not None and sealed.recipient != peer:
            raise NodeError(
                Code.WIRE_WRONG_RECIPIENT, f"A {spec.name} for {sealed.recipient} is not for {peer}."
            )
        self.sent[spec.name] += len(sealed.raw)
        link = self._links.to(peer, Plane.CONTROL)
        await link.unary(spec.name, sealed.raw, 1, timeout or limits.SEND_TIMEOUT)

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
        spec = spec_as(request, Role.REQUEST)
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
        spec = spec_as(request, Role.REQUEST)
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


def spec_as(message: Any, role: Role) -> Spec:
    """A message's contract, which has to be of this role.

    Raises:
        TypeError: It is of another.
    """
    spec = spec_of(type(message))
    if spec.role is not role:
        raise TypeError(f"{spec.name} is declared as a {spec.role}, not as a {role}")
    return spec


def _replies(spec: Spec) -> type[Any]:
    assert spec.replies is not None, "a request has replies"
    return spec.replies
