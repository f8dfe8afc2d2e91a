"""Gossip as a node uses it: found through the directory's records, published and handled through the endpoint."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from diloco.member.admission import Admission, admit
from diloco.member.news import OperatorOrder
from node import sightings
from node.network import Network
from protocol.identity import Identity
from protocol.rpc import Context
from protocol.units import Address, PeerId, RunId

OPERATOR = Identity.ephemeral()
RUN = RunId("5e" * 32)


class Node:
    """A network of its own with a record of what it hears and what it writes down."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.heard: list[bytes] = []
        identity = Identity.ephemeral()
        options = {"gossip_port": 0, **options}
        self.network = Network(
            identity, folder, listen=Address("127.0.0.1", 0), directory_port=0, announce="", upload=None,
            roles=("trainer",), emit=self.emit, **options,
        )  # fmt: skip
        self.network.endpoint.handle(self.on_order)
        self._watch: asyncio.Task[None] | None = None

    def emit(self, kind: str, /, **fields: Any) -> None:
        self.events.append((kind, fields))

    async def on_order(self, message: OperatorOrder, context: Context) -> None:
        self.heard.append(message.order)

    async def start(self, *join: str) -> "Node":
        network = self.network
        await network.start(join)
        network.belong_to(RUN, OPERATOR.peer_id)
        admission = Admission(peer=network.me, roles=("trainer",), seat=True)
        await network.admitted(admit(OPERATOR, RUN, admission))
        self._watch = asyncio.ensure_future(network.watch())
        return self

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self.network.stop()

    @property
    def addresses(self) -> tuple[str, ...]:
        assert self.network.directory is not None
        return self.network.directory.multiaddrs

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == kind]

    def neighbours(self) -> set[PeerId]:
        events = self.of("gossip.neighbours")
        return set(events[-1]["nodes"]) if events else set()


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[Node]]:
    made = [Node(tmp_path / "one"), Node(tmp_path / "two"), Node(tmp_path / "deaf", gossip_port=None)]
    try:
        await made[0].start()
        await asyncio.gather(*(node.start(*made[0].addresses) for node in made[1:]))
        yield made
    finally:
        await asyncio.gather(*(node.stop() for node in made))


async def test_nodes_find_each_others_hosts_in_the_directory_and_hear_what_is_published(
    nodes: list[Node],
) -> None:
    one, two, without_a_host = nodes
    await until(lambda: one.neighbours() == {two.network.me} and two.neighbours() == {one.network.me})
    await one.network.endpoint.publish(OperatorOrder(order=b"to everyone"))
    await until(lambda: two.heard == [b"to everyone"])
    await until(lambda: one.network.me in without_a_host.network.peers())
    assert without_a_host.network.gossip is not None
    without_a_host.network.gossip.topics.ask_soon()
    await until(lambda: without_a_host.heard == [b"to everyone"])
    assert without_a_host.of("gossip.ready") == []
    banned = two.network.me
    one.network.banned = frozenset({banned})
    await until(lambda: banned not in one.neighbours())
    assert not one.of("gossip.died")


async def test_the_host_of_a_member_that_left_is_forgotten(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = nodes
    assert one.network.gossip is not None
    hosts = one.network.gossip._known
    await until(lambda: two.network.me in hosts and two.network.me in one.network.trust.known())
    monkeypatch.setattr(sightings, "MEMBER_PATIENCE", timedelta(0))
    assert two.network.directory is not None
    await two.network.directory.withdraw()
    await until(lambda: two.network.me not in hosts and two.network.me not in one.network.trust.known())
    await until(lambda: two.network.me not in one.neighbours())
