"""A node's end of the data plane: it serves handlers and calls peers."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from protocol.clock import monotonic
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.identity import Signer, Verifier, verify
from protocol.messages.registry import Role, Spec
from protocol.messages.wire import encode
from protocol.rpc.calling import Calling, spec_as
from protocol.rpc.channel import Dial, dial
from protocol.rpc.desk import Desk
from protocol.rpc.grpc_carrier import GrpcCarrier
from protocol.rpc.routes import route_of
from protocol.rpc.server import Router
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


class Endpoint(Calling):
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
        self.carrier = GrpcCarrier(tls, trust, listen, dial)
        super().__init__(
            identity,
            run=run,
            boot=boot,
            links=self.carrier.links,
            upload=upload,
            download=download,
            clock=clock,
        )
        self.tls = tls
        self.trust = trust
        self.listen = listen
        self.audience = audience
        self.verifier = verifier
        self._gossip: Topics | None = None
        self._topics: list[Any] = []
        self.path_of: Callable[[PeerId], str] = always_direct
        self.address: Address | None = None
        self.desk = Desk(self, clock)
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

    async def publish(self, message: Any) -> Sealed[Any]:
        """Publishes a topic to everybody who follows it.

        Returns:
            The statement that was published.

        Raises:
            NodeError: ``E-NET-002`` if this node has no gossip yet.
        """
        spec = spec_as(message, Role.TOPIC)
        if self._gossip is None:
            raise NodeError(Code.NET_UNREACHABLE, f"This node has no gossip to publish a {spec.name} in.")
        return await self._gossip.publish(message)
