"""Topics over an in-memory network: the real gossip, with neighbours in the same swarm to pass messages on to."""

import asyncio
from random import Random
from typing import TYPE_CHECKING

from protocol.gossip.judging import Judgement
from protocol.gossip.topics import Gossip
from protocol.messages.registry import Plane
from protocol.testing.conditions import Kind
from protocol.units import PeerId

if TYPE_CHECKING:
    from protocol.testing.host import Host, MemoryEndpoint


class MemoryTopics:
    """One node's neighbours: of those that subscribe to a topic, the ones 1, 2, 4, 8, … places further on.

    So a message reaches n subscribers in about log₂ n hops, and each hop meets the faults of the network.
    """

    def __init__(self, endpoint: "MemoryEndpoint") -> None:
        self.host: Host = endpoint.host
        self.joined: set[str] = set()
        run, network_seed = endpoint.run, self.host.swarm.seed
        assert run is not None, "a node without a run has no topics"
        self.gossip = Gossip(
            endpoint.identity,
            run=run,
            boot=endpoint.boot,
            audience=lambda peer, audience: endpoint.audience(peer, audience),
            endpoint=endpoint,
            peers=lambda: [peer for peer in endpoint.trust.known() if peer != endpoint.peer_id],
            boot_of=self.host.swarm.boot_of,
            verifier=endpoint.verifier,
            clock=self.host.loop.time,
            draw=Random(f"gossip {network_seed} {self.host.number} {self.host.boots}"),
        )
        self.started: asyncio.Task[None] = self.host.spawn(self.gossip.start(self), name="gossip")

    async def join(self, topic: str) -> None:
        """Subscribes to a topic."""
        self.joined.add(topic)

    async def publish(self, topic: str, raw: bytes) -> None:
        """Gives a message of this node to its neighbours."""
        self._pass_on(topic, raw)

    async def stop(self) -> None:
        """Leaves everything."""
        self.joined.clear()

    def _pass_on(self, topic: str, raw: bytes) -> None:
        hosts = self.host.swarm.hosts
        others = [
            other
            for other in hosts[self.host.number :] + hosts[: self.host.number - 1]
            if other.alive and other.endpoint.topics is not None and topic in other.endpoint.topics.joined
        ]
        step = 1
        while step <= len(others):
            self._give(others[step - 1], topic, raw)
            step *= 2

    def _give(self, other: "Host", topic: str, raw: bytes) -> None:
        me = self.host

        def deliver(arrived: bytes | None) -> None:
            topics = other.endpoint.topics
            if arrived is not None and other.alive and topics is not None:
                topics.receive(topic, arrived, me.peer_id)

        me.swarm.network.carry(me, other, Plane.CONTROL, Kind.TOPIC, topic, raw, deliver)

    def receive(self, topic: str, raw: bytes, neighbour: PeerId) -> None:
        """A neighbour passed a message on."""
        if self.gossip.receive(topic, raw, neighbour).judgement is Judgement.ACCEPT:
            self._pass_on(topic, raw)
