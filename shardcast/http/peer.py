"""A client that serves what it fetched to other clients. Servers tell clients of it that serve others, too.

Whoever serves shows its address, so nobody does unless it is told to.
"""

import asyncio
from pathlib import Path

from shardcast.growth import GrowingManifest
from shardcast.http.catalogue import Catalogue, Held, stamp_of
from shardcast.http.door import Access
from shardcast.http.server import Server
from shardcast.manifest import Manifest


class Peer:
    """Serves the newest version of each name that this client fetched, while its file is as it was.

    Of a version that is still coming it serves the shards that are there.

    Args:
        access: Who may fetch.

    Attributes:
        server: What serves it.
    """

    def __init__(self, access: Access | None = None) -> None:
        self.catalogue = Catalogue()
        self.server = Server(self.catalogue, access, self._check, forwards=False)
        self._stamps: dict[str, tuple[int, int]] = {}

    async def start(self, host: str | None = None, port: int = 0) -> None:
        """Listen.

        Raises:
            NodeError: NET_PORT_IN_USE.
        """
        await self.server.start(host, port)

    async def stop(self) -> None:
        """Serve nothing more."""
        await self.server.stop()
        for identifier in list(self.catalogue.held):
            self._forget(identifier)

    def begin(self, growing: GrowingManifest, path: Path) -> Held:
        """Serve what comes of a version; a watcher of :class:`shardcast.http.intake.Intake`."""
        held = self.catalogue.held.get(growing.identifier)
        if held is None:
            held = Held(growing, path)
            self.catalogue.add(held)
        held.growing = growing
        return held

    def give_up(self, identifier: str) -> None:
        """Serve a version no more that does not come to its end."""
        held = self.catalogue.held.get(identifier)
        if held is not None and not held.whole:
            self._forget(identifier)

    async def offer(self, manifest: Manifest, path: Path) -> None:
        """Serve a file that was just verified, in place of older versions of its name.

        Raises:
            NodeError: SHC_MANIFEST, when the manifest is not closed.
        """
        begun = self.catalogue.held.get(manifest.links[0].hex())
        if begun is not None and begun.growing.closed:
            held = begun
        else:
            growing = GrowingManifest(manifest.digest)
            await asyncio.to_thread(growing.feed, manifest.raw)
            try:
                held = Held(growing, path)
            except OSError:
                return  # it is gone already
        held.all_arrived()
        held.whole = True
        self._stamps[held.identifier] = stamp_of(held.file)
        self.catalogue.add(held)
        for surplus in self.catalogue.surplus(1):
            self._forget(surplus.identifier)

    async def _check(self, held: Held, index: int) -> bool:
        if not held.whole or self._stamps.get(held.identifier) == stamp_of(held.file):
            return True
        self._forget(held.identifier)
        return False

    def _forget(self, identifier: str) -> None:
        self.catalogue.remove(identifier)
        self._stamps.pop(identifier, None)
