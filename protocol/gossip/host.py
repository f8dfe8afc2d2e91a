"""The libp2p host: connections, who they belong to, and the topics that run over them. Lives in a trio loop.

With :mod:`protocol.gossip.router` the only modules that import libp2p, and imported by nothing but the carrier's
thread: it costs half a second and some 60 MB.
"""

import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

import libp2p
import trio
from libp2p.abc import INetConn, INetStream, INotifee
from libp2p.crypto.ed25519 import Ed25519PrivateKey
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.x25519 import create_new_key_pair as new_noise_key
from libp2p.custom_types import TProtocol
from libp2p.host.ping import ID as PING_PROTOCOL
from libp2p.host.ping import perform_ping_roundtrip
from libp2p.network.config import ConnectionConfig
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo, info_from_p2p_addr
from libp2p.rcmgr import new_resource_manager
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.tools.anyio_service import background_trio_service
from libp2p.utils.varint import encode_varint_prefixed, read_varint_prefixed_bytes_limited
from multiaddr import Multiaddr

from protocol.errors import NodeError
from protocol.gossip.judging import Judgement, Verdict
from protocol.gossip.limits import (
    DIAL,
    HELLO,
    MAX_CONNECTIONS,
    MAX_KNOWN,
    MAX_STRANGERS,
    NEIGHBOURS,
    OWN_DIALS,
    PING,
    PONG,
    STOP,
    TEND,
    WAITING,
)
from protocol.gossip.neighbours import Neighbour, Neighbourhood
from protocol.gossip.router import Relay, make_router
from protocol.gossip.scores import Scores
from protocol.gossip.sub_key import node_of
from protocol.identity import Verifier
from protocol.units import PeerId

HELLO_PROTOCOL = TProtocol("/intellect-node/gossip-host/1")
_MAX_HELLO = 2048

# The library warns of what any peer can bring about; a node's log is no place for that.
logging.getLogger("libp2p").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class HostConfig:
    """What a host is made from.

    Attributes:
        node: The node's peer id.
        seed: Seed of the host's own key.
        certificate: The node's word that the host is its own (envelope bytes).
        listen: Multiaddr to listen on.
        receive: Judges a message: topic, envelope, neighbour.
        is_member: Whether a peer id is a member's; its directory host may be a neighbour too.
        verifier: Checks nodes' signatures.
    """

    node: PeerId
    seed: bytes
    certificate: bytes
    listen: str
    receive: Callable[[str, bytes, PeerId], Verdict]
    is_member: Callable[[PeerId], bool]
    verifier: Verifier


class Host:
    """A running host. All methods are called in its trio loop."""

    def __init__(self, config: HostConfig) -> None:
        self._config = config
        self._nursery: trio.Nursery | None = None
        self._scores = Scores()
        self._neighbours = Neighbourhood(config.node)
        self._cut: OrderedDict[PeerId, None] = OrderedDict()
        self._said: dict[str, trio.Event] = {}
        key = Ed25519PrivateKey.from_bytes(config.seed)
        pair = KeyPair(key, key.get_public_key())
        self._host = libp2p.new_host(
            key_pair=pair,
            # its own default offers unencrypted and unauthenticated connections as well
            sec_opt={NOISE: Noise(pair, noise_privkey=new_noise_key().private_key)},
            muxer_preference="YAMUX",
            resource_manager=new_resource_manager(
                enable_metrics=False, enable_memory_limits=False, enable_memory_pooling=False,
                enable_circuit_breaker=False, enable_graceful_degradation=False,
            ),
            connection_config=ConnectionConfig(
                max_connections=MAX_CONNECTIONS,
                min_connections=OWN_DIALS,
                low_watermark=OWN_DIALS,
                high_watermark=MAX_CONNECTIONS,
                max_connections_per_peer=2,
                dial_timeout=DIAL.total_seconds(),
                inbound_upgrade_timeout=DIAL.total_seconds(),
                outbound_upgrade_timeout=DIAL.total_seconds(),
            ),
            disable_identify_address_discovery=True,
        )  # fmt: skip
        network = self._host.get_network()
        assert isinstance(network, Swarm)
        network.auto_connector.maybe_connect = _nothing  # type: ignore[method-assign]  # this module chooses
        network.register_notifee(_Watcher(self))
        self._host.set_stream_handler(HELLO_PROTOCOL, self._on_hello)
        self._router = make_router(self)
        self._relay = Relay(self._host, self._router, self)

    def _spawn(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Has something done in the background, unless the host is closing."""
        if self._nursery is not None:
            with suppress(RuntimeError):
                self._nursery.start_soon(work, *arguments)

    async def open(self, stack: AsyncExitStack) -> str:
        """Listens until the stack closes; returns the multiaddr with the port that was taken, without peer id."""
        await stack.enter_async_context(self._host.run([Multiaddr(self._config.listen)]))
        await stack.enter_async_context(background_trio_service(self._relay))
        await stack.enter_async_context(background_trio_service(self._router))
        await self._relay.wait_until_ready()
        addresses = self._host.get_transport_addrs()
        if not addresses:  # the library keeps the reason to itself
            raise OSError(f"it cannot listen at {self._config.listen}; is the port taken?")
        address = addresses[0]
        return str(address).rpartition("/p2p/")[0] or str(address)

    def begin(self, nursery: trio.Nursery) -> None:
        """Tends its neighbours from now on, until the nursery ends."""
        self._nursery = nursery
        self._spawn(self._tend)

    async def leave(self) -> None:
        """Closes all connections; the library itself leaves their sockets open."""
        async with trio.open_nursery() as nursery:
            for peer in self._host.get_connected_peers():
                nursery.start_soon(self._drop, peer)

    # ---- what the carrier asks

    def carry_out(
        self, method: str, arguments: tuple[Any, ...], tell: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Does what is asked, and tells the asking thread what came of it."""
        self._spawn(self._carry_out, method, arguments, tell)

    async def _carry_out(
        self, method: str, arguments: tuple[Any, ...], tell: Callable[[Any, BaseException | None], None]
    ) -> None:
        try:
            result = getattr(self, method)(*arguments)
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:  # whatever libp2p raises is for the one who asked
            tell(None, error)
        else:
            tell(result, None)

    async def join(self, topic: str) -> None:
        """Subscribe."""
        await self._relay.subscribe(topic)

    async def publish(self, topic: str, raw: bytes) -> None:
        """Give a message of this node to the neighbours."""
        await self._relay.publish(topic, raw)

    async def connect(self, address: str) -> None:
        """Connect to a host, whoever's it is.

        Raises:
            Exception: One of libp2p's.
        """
        with trio.fail_after(DIAL.total_seconds()):
            await self._host.connect(info_from_p2p_addr(Multiaddr(address)))

    def know(self, node: PeerId, certificate: bytes, addresses: tuple[str, ...]) -> None:
        """A node's record says where its host listens; ignored if the host is not that node's."""
        host = addresses[0].rpartition("/p2p/")[2] if addresses else ""
        with suppress(NodeError):
            if node_of(certificate, host=host, verifier=self._config.verifier) == node:
                self._cut.pop(node, None)
                self._neighbours.know(node, host, addresses)

    def forget(self, node: PeerId) -> None:
        """A node is not a neighbour any more, whoever calls; until :meth:`know` names it again."""
        self._neighbours.forget(node)
        self._cut[node] = None
        if len(self._cut) > MAX_KNOWN:
            self._cut.popitem(last=False)
        for host, connected in tuple(self._neighbours.connected.items()):
            if connected.node == node:
                self._spawn(self._drop, ID.from_base58(host))

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Who is connected."""
        return tuple(
            Neighbour(host, it.node, self._scores.score(it.node or host))
            for host, it in self._neighbours.connected.items()
        )

    async def meshed(self, topic: str, count: int) -> None:
        """Wait until so many neighbours take part in a topic."""
        while len(self._router.mesh.get(topic, ())) < count:
            await trio.sleep(0.02)

    # ---- whose host it is

    async def came(self, peer: ID) -> None:
        """A host connected."""
        host = peer.to_base58()
        if self._scores.banned(host) or len(self._neighbours.strangers()) >= MAX_STRANGERS:
            self._spawn(self._drop, peer)
            return
        if host not in self._neighbours.connected:
            self._neighbours.came(host)
            self._said[host] = trio.Event()
            self._spawn(self._say_hello, peer)

    async def went(self, peer: ID) -> None:
        """A connection of a host closed."""
        if not self._host.get_network().get_connections(peer):
            host = peer.to_base58()
            self._neighbours.went(host)
            event = self._said.pop(host, None)
            if event is not None:
                event.set()

    async def _say_hello(self, peer: ID) -> None:
        with trio.move_on_after(HELLO.total_seconds()), suppress(Exception):
            stream = await self._host.new_stream(peer, [HELLO_PROTOCOL])
            await stream.write(encode_varint_prefixed(self._config.certificate))
            await stream.close()

    async def _on_hello(self, stream: INetStream) -> None:
        peer = stream.muxed_conn.peer_id
        host = peer.to_base58()
        try:
            with trio.fail_after(HELLO.total_seconds()):
                raw = await read_varint_prefixed_bytes_limited(stream, _MAX_HELLO)
            node = node_of(raw, host=host, verifier=self._config.verifier)
        except Exception:
            self.blame(peer)
            node = None
        with suppress(Exception):
            await stream.close()
        if node is not None:
            self._is_of(peer, node)

    def _is_of(self, peer: ID, node: PeerId) -> None:
        if self._scores.banned(node) or node in self._cut:
            self._spawn(self._drop, peer)
            return
        host = peer.to_base58()
        self._neighbours.came(host).node = node
        self._neighbours.reached(node)
        event = self._said.get(host)
        if event is not None:
            event.set()

    async def _drop(self, peer: ID) -> None:
        with trio.move_on_after(STOP.total_seconds()), suppress(Exception):
            await self._host.disconnect(peer)
        network: Any = self._host.get_network()
        left = tuple(network.get_connections(peer))
        for connection in left:  # it does not even take a farewell: its socket is closed without one
            with trio.move_on_after(STOP.total_seconds()), suppress(Exception):
                await connection.muxed_conn.secured_conn.close()
            network.remove_conn(connection)
        if left:
            await self.went(peer)
            self._relay._handle_dead_peer(peer)

    # ---- the router's gate

    async def admits(self, host: ID) -> bool:
        """Whether a message of this neighbour is looked at; see :class:`protocol.gossip.router.Gate`."""
        name = host.to_base58()
        connected = self._neighbours.connected.get(name)
        if connected is None or self._scores.banned(connected.node or name):
            return False
        if not connected.may_send(trio.current_time()):
            if self._scores.flood(connected.node or name):
                self._spawn(self._drop, host)
            return False
        return connected.node is not None or await self._has_said(name)

    async def _has_said(self, host: str) -> bool:
        connected, event = self._neighbours.connected[host], self._said.get(host)
        if event is None or connected.waiting >= WAITING:
            return False
        connected.waiting += 1
        with trio.move_on_after(HELLO.total_seconds()):
            await event.wait()
        connected.waiting -= 1
        return connected.node is not None or self._is_a_directorys(host)

    def _is_a_directorys(self, host: str) -> bool:
        """Whether a host that has said nothing is a member's directory host: that one has its node's own key."""
        if not self._config.is_member(PeerId(host)):
            return False
        self._is_of(ID.from_base58(host), PeerId(host))
        return True

    def judge(self, topic: str, raw: bytes, host: ID) -> Judgement:
        """What is done with a message; see :class:`protocol.gossip.router.Gate`."""
        connected = self._neighbours.connected.get(host.to_base58())
        if connected is None or connected.node is None:
            return Judgement.IGNORE
        verdict = self._config.receive(topic, raw, connected.node)
        if verdict.judgement is Judgement.ACCEPT:
            self._scores.good(connected.node)
        return verdict.judgement

    def blame(self, host: ID) -> None:
        """A neighbour sent what no honest one sends; beyond a limit it is cut off."""
        name = host.to_base58()
        connected = self._neighbours.connected.get(name)
        if self._scores.bad(name if connected is None or connected.node is None else connected.node):
            self._spawn(self._drop, host)

    def score(self, host: ID) -> float:
        """A neighbour's points."""
        name = host.to_base58()
        connected = self._neighbours.connected.get(name)
        return self._scores.score(name if connected is None or connected.node is None else connected.node)

    # ---- enough neighbours

    async def _tend(self) -> None:
        while True:
            await trio.sleep(TEND.total_seconds())
            for host in self._neighbours.strangers(overdue=True):
                if not self._is_a_directorys(host):
                    self._spawn(self._drop, ID.from_base58(host))
            for host in self._neighbours.to_ask(PING):
                self._spawn(self._ask_for_life, ID.from_base58(host))
            wanted = NEIGHBOURS - len(self._neighbours.connected)
            for host, addresses in self._neighbours.to_call(wanted, self._scores.banned):
                self._spawn(self._call, host, addresses)

    async def _ask_for_life(self, peer: ID) -> None:
        alive = False
        with trio.move_on_after(PONG.total_seconds()), suppress(Exception):
            stream = await self._host.new_stream(peer, [PING_PROTOCOL])
            await perform_ping_roundtrip(stream)
            alive = True
            await stream.close()
        if not alive:
            await self._drop(peer)

    async def _call(self, host: str, addresses: tuple[str, ...]) -> None:
        with trio.move_on_after(DIAL.total_seconds()), suppress(Exception):
            where = [Multiaddr(address.rpartition("/p2p/")[0]) for address in addresses]
            await self._host.connect(PeerInfo(ID.from_base58(host), where))


class _Watcher(INotifee):
    """Tells the host who comes and goes."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def connected(self, network: Any, conn: INetConn) -> None:
        await self._host.came(conn.muxed_conn.peer_id)

    async def disconnected(self, network: Any, conn: INetConn) -> None:
        await self._host.went(conn.muxed_conn.peer_id)

    async def opened_stream(self, network: Any, stream: INetStream) -> None:
        pass

    async def closed_stream(self, network: Any, stream: INetStream) -> None:
        pass

    async def listen(self, network: Any, multiaddr: Multiaddr) -> None:
        pass

    async def listen_close(self, network: Any, multiaddr: Multiaddr) -> None:
        pass


async def _nothing() -> None:
    pass


async def serve(
    config: HostConfig, started: Callable[[Host, str], None], until: Callable[[], Awaitable[None]]
) -> None:
    """Runs a host until ``until`` returns; then its connections are closed, so that neighbours notice at once."""
    with trio.CancelScope() as closing:
        async with AsyncExitStack() as stack:
            host = Host(config)
            address = await host.open(stack)
            async with trio.open_nursery() as nursery:
                host.begin(nursery)
                started(host, address)
                await until()
                nursery.cancel_scope.cancel()
            closing.deadline = trio.current_time() + STOP.total_seconds() / 2
            await host.leave()
