"""One node of an in-memory swarm: the real endpoint of each of its boots, and what may happen to its process."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from protocol import limits
from protocol.envelope import Sealed
from protocol.errors import Code
from protocol.identity import Signer
from protocol.messages.registry import Role
from protocol.rpc.endpoint import Endpoint
from protocol.rpc.routes import route_of
from protocol.testing.calls import Call, Links, Served
from protocol.testing.topics import MemoryTopics
from protocol.testing.trust import MemoryTrust
from protocol.testing.virtual import OWNER, VirtualLoop
from protocol.tls import TlsIdentity
from protocol.units import Address, PeerId

if TYPE_CHECKING:
    from protocol.testing.swarm import Swarm

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])


class MemoryCarrier:
    """Stands in for gRPC: an address that calls arrive at, and connections to those of others."""

    def __init__(self, endpoint: "MemoryEndpoint") -> None:
        self._endpoint = endpoint
        self.links = Links(endpoint)

    async def start(self, router: object) -> Address:
        """Serves from now on."""
        return self._endpoint.open()

    async def stop(self, grace: timedelta) -> None:
        """Accepts no more calls, lets those under way end within ``grace``, then closes everything."""
        self._endpoint.address = None
        host = self._endpoint.host
        running = [served.task for served in host.serving if served.task is not None]
        if running and grace:
            await asyncio.wait(running, timeout=grace.total_seconds())
        self.links.stop()
        for served in list(host.serving):
            served.reset()


class MemoryEndpoint(Endpoint):
    """The real endpoint; only its connections and its address are in memory.

    Made by :meth:`Host.boot_up` and :meth:`protocol.testing.Swarm.node`. It serves from the moment it is made unless it
    was made with ``start=False``; starting it again does nothing.
    """

    def __init__(self, host: "Host", boot: bytes, address: Address, **options: Any) -> None:
        certificate = (
            b"in-memory certificate of " + host.peer_id.encode() + b" in boot " + boot.hex().encode()
        )
        tls = TlsIdentity(key_pem=b"", certificate_pem=certificate, fingerprint=certificate)
        options.setdefault("verifier", host.swarm.verifier)
        super().__init__(
            host.identity, tls, host.trust, boot=boot, listen=address, clock=host.loop.time, **options
        )
        self.host: Host = host
        self.topics: MemoryTopics | None = None
        self.memory = MemoryCarrier(self)
        in_memory: Any = self.memory
        self.carrier, self._links = in_memory, in_memory.links

    def handle(self, function: H) -> H:
        """As :meth:`protocol.rpc.Endpoint.handle`; the first topic brings the gossip with it."""
        if route_of(function).spec.role is Role.TOPIC:
            self._with_topics()
        return super().handle(function)

    async def publish(self, message: Any) -> Sealed[Any]:
        """As :meth:`protocol.rpc.Endpoint.publish`."""
        await self._with_topics().started
        return await super().publish(message)

    def _with_topics(self) -> MemoryTopics:
        if self.topics is None:
            self.topics = MemoryTopics(self)
            self.gossip = self.topics.gossip
        return self.topics

    def open(self) -> Address:
        """Serves from now on."""
        self.address = self.listen
        return self.listen


class Host:
    """A node: its identity for good, its endpoint until it is killed and started again.

    Calls that a test makes through it are those of its endpoint. What it is to do by itself is started with
    :meth:`spawn`, so that it stands still when the node is paused and is gone when it is killed.

    Attributes:
        name: ``node-1``, ``node-2``, …
        number: The same as a number.
        identity: Signs for it.
        trust: Whom it lets connect: everybody in the swarm, unless it is told to forget somebody.
        skew: How far its wall clock is off.
        disk: How long work that it hands to a thread takes.
    """

    def __init__(self, swarm: "Swarm", number: int, identity: Signer) -> None:
        self.swarm = swarm
        self.loop: VirtualLoop = swarm.loop
        self.number = number
        self.name = f"node-{number}"
        self.identity = identity
        self.peer_id: PeerId = identity.peer_id
        self.trust = MemoryTrust(swarm.known)
        self.skew = timedelta()
        self.disk = timedelta()
        self.boots = 0
        self.alive = False
        self.paused = False
        self.dark = False
        self.serving: set[Served] = set()
        self.context: Context = copy_context()
        self._options: dict[str, Any] = {}
        self._life: Life = Life(self)
        self.endpoint: MemoryEndpoint

    @property
    def ip(self) -> str:
        """A network address of its own, for what counts by address."""
        return f"10.{self.number >> 16 & 255}.{self.number >> 8 & 255}.{self.number & 255}"

    # --- life ----------------------------------------------------------------------------------------------------

    def boot_up(self, *, start: bool = True, **options: Any) -> MemoryEndpoint:
        """Starts the process: a fresh endpoint with a boot number and an address of its own, and no handlers.

        Args:
            start: Whether the endpoint serves at once.
            options: Further arguments of the endpoint; those of the boot before if there are none.
        """
        if self.alive:
            raise RuntimeError(f"{self.name} is running already")
        self._options = options or self._options
        self.boots += 1
        self.alive, self.dark = True, False
        self._life = Life(self)
        self.context = copy_context()
        self.context.run(OWNER.set, self._life)
        boot = self.swarm.bytes_for(f"boot {self.number} {self.boots}")[:16]
        address = Address(f"{self.name}.memory", self.boots)
        made: dict[str, Any] = {"run": self.swarm.run_id, "audience": _everybody, **self._options}
        self.endpoint = MemoryEndpoint(self, boot, address, **made)
        self.swarm.moved(self)
        if start:
            self.endpoint.open()
        return self.endpoint

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> "asyncio.Task[T]":
        """Runs a coroutine as part of this node's process."""
        context = self.context.copy()
        return self.loop.create_task(
            work, name=name or f"{self.name}: {getattr(work, '__name__', 'work')}", context=context
        )

    def pause(self) -> None:
        """Stops the process as ``kill -STOP`` does: nothing of it runs, its clock goes on, calls to it hang."""
        self.paused = True
        self.loop.hold(self._life)

    def resume(self) -> None:
        """Lets it run on; all that came due meanwhile happens at once."""
        self.paused = False
        self.loop.release(self._life)

    def kill(self, *, silently: bool = False) -> None:
        """Ends the process as ``kill -9`` does: nothing of it runs again, not even what stands in a ``finally``.

        Its connections are reset and its port refuses calls, unless it went ``silently``, as a machine does that loses
        its power: then its peers wait for answers until they give up. What the process left in memory is cleared away
        when the swarm closes.
        """
        self.loop.hold(self._life)
        self.alive = self.paused = False
        self.endpoint.address = None
        if silently:
            self.dark = True
            self.serving = set()
        else:
            self.reset()

    def restart(self, **options: Any) -> MemoryEndpoint:
        """Kills it if it is alive, and starts it with a new boot number; handlers have to be registered anew."""
        if self.alive:
            self.kill()
        return self.boot_up(**options)

    # --- its clocks ----------------------------------------------------------------------------------------------

    def wall(self) -> float:
        """Unix seconds by this node's clock, its skew included."""
        return self.swarm.wall() + self.skew.total_seconds()

    def monotonic(self) -> float:
        """Seconds of its monotonic clock."""
        return self.loop.time()

    # --- its endpoint --------------------------------------------------------------------------------------------

    def handle(self, function: H) -> H:
        """As :meth:`protocol.rpc.Endpoint.handle`."""
        return self.endpoint.handle(function)

    async def send(self, peer: PeerId, message: Any, *, timeout: timedelta | None = None) -> None:
        """As :meth:`protocol.rpc.Endpoint.send`."""
        await self.endpoint.send(peer, message, timeout=timeout)

    async def post(self, peer: PeerId, sealed: Sealed[Any], *, timeout: timedelta | None = None) -> None:
        """As :meth:`protocol.rpc.Endpoint.post`."""
        await self.endpoint.post(peer, sealed, timeout=timeout)

    async def request(self, peer: PeerId, request: Any, *, timeout: timedelta | None = None) -> Any:
        """As :meth:`protocol.rpc.Endpoint.request`."""
        return await self.endpoint.request(peer, request, timeout=timeout)

    async def publish(self, message: Any) -> Sealed[Any]:
        """As :meth:`protocol.rpc.Endpoint.publish`."""
        return await self.endpoint.publish(message)

    def stream(
        self, peer: PeerId, request: Any, *, progress: timedelta | None = None
    ) -> AsyncGenerator[Any, None]:
        """As :meth:`protocol.rpc.Endpoint.stream`."""
        return self.endpoint.stream(peer, request, progress=progress)

    # --- what the network does with it ---------------------------------------------------------------------------

    def shows(self, certificate_pem: bytes) -> bool:
        """Whether its server has this certificate."""
        return self.endpoint.tls.certificate_pem == certificate_pem

    def serve(self, call: Call, raw: bytes | None) -> None:
        """A copy of a call arrived."""
        if self.dark:
            return
        if raw is None or not self.alive or self.endpoint.address is None:
            self._refuse(call, "broke the connection", Code.NET_UNREACHABLE)
            return
        route = self.endpoint.desk.find(call.name)
        if route is None:
            self._refuse(call, "does not know the message", Code.NET_UNKNOWN_MESSAGE)
        elif len(self.serving) >= limits.MAX_CALLS:
            self._refuse(call, "serves too many calls already", Code.NET_BUSY)
        else:
            served = Served(self, call)
            self.serving.add(served)
            work = served.run(route, raw)
            served.task = asyncio.Task(work, loop=self.loop, name=call.name, context=self.context.copy())

    def _refuse(self, call: Call, what: str, code: Code) -> None:
        error = call.lost(what, code)
        self.swarm.network.signal(self, call.host, lambda _: call.fail(error))

    def reset(self) -> None:
        """Breaks every connection that it serves and every one that it has opened."""
        for served in list(self.serving):
            served.reset()
        self.endpoint.memory.links.vanish()
        self.serving = set()


class Life:
    """The owner of everything that runs in one boot of a node."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def disk_delay(self) -> float:
        """Seconds that work handed to a thread takes."""
        return self._host.disk.total_seconds()


def _everybody(peer: PeerId, audience: str) -> bool:
    return True
