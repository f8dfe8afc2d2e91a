"""A node that passes large files on over HTTP, beside what else it does."""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from diloco.member.setting import Emit
from node.runfile import ShardcastSection
from protocol.errors import NodeError
from protocol.rpc import Context, Endpoint
from protocol.units import PeerId
from shardcast.messages import Announced

if TYPE_CHECKING:
    from shardcast.http.relay import Relay

ROLE = "shardcast"
"""What the node's record says of it; "relay" is said of those that carry other peers' connections."""

_REMEMBERED = 4096
"""Announcements that are not repeated."""


class RelayRole:
    """A relay that says in the run's gossip what it has, and asks its sources at once when another one says so.

    Every version is announced by whoever has it first: what was heard is not repeated. An announcement is believed by
    nobody; it only saves the wait.

    Attributes:
        relay: What serves.
    """

    def __init__(self, relay: "Relay", endpoint: Endpoint) -> None:
        self.relay = relay
        self._endpoint = endpoint
        self._known = OrderedDict.fromkeys(relay.catalogue.held)
        endpoint.handle(self.on_announced)
        self._announcing = asyncio.create_task(self._announce())

    async def stop(self) -> None:
        """Announce, fetch and serve nothing more."""
        self._announcing.cancel()
        await asyncio.gather(self._announcing, return_exceptions=True)
        await self.relay.stop()

    async def on_announced(self, message: Announced, context: Context) -> None:
        """Another relay has a version."""
        identifier = message.object.hex()
        self._learn(identifier)
        self.relay.hint(identifier, message.name, message.author)

    async def _announce(self) -> None:
        catalogue = self.relay.catalogue
        while True:
            cursor = catalogue.cursor
            for identifier, held in list(catalogue.held.items()):
                if self._learn(identifier):
                    entry = held.entry
                    announced = Announced(
                        object=bytes.fromhex(identifier), name=entry.name, label=entry.version,
                        serial=entry.serial, author=entry.author,
                    )  # fmt: skip
                    with suppress(NodeError):  # this node is in no run yet; others ask their sources anyway
                        await self._endpoint.publish(announced)
            while catalogue.cursor == cursor:
                await catalogue.change()

    def _learn(self, identifier: str) -> bool:
        if identifier in self._known:
            return False
        self._known[identifier] = None
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return True


async def start_relay(
    section: ShardcastSection, folder: Path, emit: Emit, endpoint: Endpoint
) -> RelayRole | None:
    """Start the relay that a run file asks for; None if it asks for none.

    Raises:
        NodeError: CFG_USAGE for a source that is no address; NET_PORT_IN_USE, STO_….
    """
    if not section.sources:
        return None
    from shardcast.http.door import Access
    from shardcast.http.relay import Relay
    from shardcast.http.source import Source

    def tell(error: NodeError) -> None:
        emit("shardcast.failed", code=str(error.code), reason=error.sentence)

    relay = Relay(
        folder,
        [Source.parse(url) for url in section.sources],
        names=section.names,
        publishers=[PeerId(peer) for peer in section.publishers],
        keep=section.keep,
        budget=section.disk,
        access=Access(rate=float(section.rate or 0)),
        tell=tell,
    )
    await relay.start(section.host, section.port)
    emit("shardcast.serving", port=relay.server.port, sources=list(section.sources))
    return RelayRole(relay, endpoint)
