"""The node's gossip: topics over a libp2p host of its own, which is made again when it fails.

The node never waits for it. While there is no host (libp2p is not installed, its port is taken, it has just failed)
what was published is still come by: peers are asked for it over the data plane.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from diloco.member.setting import Emit
from protocol.directory import PeerRecord
from protocol.errors import Code, NodeError
from protocol.gossip import Gossip
from protocol.gossip.carrier import HostCarrier
from protocol.gossip.limits import RESTART_FIRST, RESTART_MOST
from protocol.identity import Identity
from protocol.rpc import Endpoint
from protocol.units import Address, PeerId, RunId

_LOOK = 5.0
"""Seconds between two looks at who the neighbours are, for the event log."""


class NodeGossip:
    """A node's topics and the host that carries them.

    Args:
        identity: Who the node is.
        endpoint: Its end of the data plane; topics are published and handled through it.
        run: The run.
        listen: Where the host listens; None for a node that has none and only asks.
        announce: The host name that others are told; None for where it listens.
        audience: Who may publish what; also called from the host's thread.
        members: Records of members that are known now.
        emit: The event log; also called when the host fails.
        changed: Called when certificate or addresses are others than before.
    """

    def __init__(
        self,
        identity: Identity,
        endpoint: Endpoint,
        run: RunId,
        *,
        listen: Address | None,
        announce: str | None,
        audience: Callable[[PeerId, str], bool],
        members: Callable[[], dict[PeerId, PeerRecord]],
        emit: Emit,
        changed: Callable[[], None],
    ) -> None:
        self._identity, self._endpoint = identity, endpoint
        self._listen, self._announce = listen, announce
        self._audience, self._members, self._emit, self._changed = audience, members, emit, changed
        self.topics = Gossip(
            identity, run=run, boot=endpoint.boot, audience=audience, endpoint=endpoint, peers=self._peers,
            boot_of=self._boot_of, verifier=endpoint.verifier,
        )  # fmt: skip
        endpoint.gossip = self.topics
        self._carrier: HostCarrier | None = None
        self._known: dict[PeerId, tuple[bytes, tuple[str, ...]]] = {}
        self._cut: frozenset[str] = frozenset()
        self._neighbours: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None

    @property
    def certificate(self) -> bytes:
        """The node's word that the host is its own; empty while there is none."""
        return self._carrier.certificate if self._carrier is not None else b""

    @property
    def multiaddrs(self) -> tuple[str, ...]:
        """Where the host listens; empty while there is none."""
        return self._carrier.multiaddrs if self._carrier is not None else ()

    async def start(self) -> None:
        """Takes part from now on; the host follows when it is ready."""
        await self.topics.start()
        if self._listen is not None:
            self._task = asyncio.ensure_future(self._live(self._listen))

    async def stop(self) -> None:
        """Leaves the topics and closes the host."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.topics.stop()
        if self._carrier is not None:
            await self._carrier.stop()

    def learn(self, records: Iterable[PeerRecord], banned: Iterable[str]) -> None:
        """Takes note of where others' hosts listen, and cuts off who is banned."""
        if self._carrier is None:
            return
        cut = frozenset(banned)
        for record in records:
            what = (record.gossip_host, record.gossip)
            if record.peer in (self._identity.peer_id, *cut) or not record.gossip:
                continue
            if self._known.get(record.peer) != what:
                self._known[record.peer] = what
                self._carrier.know(record.peer, *what)
        for peer in cut - self._cut:
            self._known.pop(PeerId(peer), None)
            self._carrier.forget(PeerId(peer))
        self._cut = cut

    def forget(self, peer: PeerId) -> None:
        """A node is gone: its host is not called any more."""
        if self._known.pop(peer, None) is not None and self._carrier is not None:
            self._carrier.forget(peer)

    def _peers(self) -> list[PeerId]:
        return [peer for peer in self._members() if peer != self._identity.peer_id]

    def _boot_of(self, peer: PeerId) -> bytes | None:
        record = self._members().get(peer)
        return record.boot if record is not None else None

    async def _live(self, listen: Address) -> None:
        pause = RESTART_FIRST.total_seconds()
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                carrier = await HostCarrier.start(
                    self._identity, boot=self._endpoint.boot, listen=listen, announce=self._announce,
                    receive=self.topics.receive, is_member=lambda peer: self._audience(peer, "member"),
                    verifier=self._endpoint.verifier,
                )  # fmt: skip
            except NodeError as error:
                self._emit("gossip.absent", code=str(error.code), reason=error.sentence, fix=error.fix)
                if error.code is Code.SYS_VERSION:
                    return
            else:
                self._carrier = carrier
                self._emit("gossip.ready", multiaddrs=list(carrier.multiaddrs), seconds=loop.time() - began)
                with suppress(NodeError):  # it has failed at once
                    await self.topics.rejoin(carrier)
                self._changed()
                await self._watch(carrier)
                self._carrier = None
                self._known, self._cut = {}, frozenset()
                self._emit("gossip.died", reason=carrier.failure)
                if loop.time() - began > RESTART_MOST.total_seconds():
                    pause = RESTART_FIRST.total_seconds()
            await asyncio.sleep(pause)
            pause = min(pause * 2, RESTART_MOST.total_seconds())

    async def _watch(self, carrier: HostCarrier) -> None:
        """Until the host ends: writes down who its neighbours are when that changes."""
        while not carrier.died.is_set():
            with suppress(NodeError):
                there = await carrier.neighbours()
                names = frozenset(one.node or one.host for one in there)
                if names != self._neighbours:
                    self._neighbours = names
                    self._emit("gossip.neighbours", nodes=sorted(names))
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await carrier.died.wait()
