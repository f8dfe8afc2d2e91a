"""A node that passes large files on over HTTP, beside what else it does."""

from pathlib import Path
from typing import TYPE_CHECKING

from diloco.member.setting import Emit
from node.runfile import ShardcastSection
from protocol.errors import NodeError
from protocol.units import PeerId

if TYPE_CHECKING:
    from shardcast.http.relay import Relay

ROLE = "shardcast"
"""What the node's record says of it; "relay" is said of those that carry other peers' connections."""


async def start_relay(section: ShardcastSection, folder: Path, emit: Emit) -> "Relay | None":
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
    return relay
