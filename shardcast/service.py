"""Serving the objects of a shelf to peers: manifests, shards and the list, over an endpoint of the data plane."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from protocol.errors import Code, NodeError
from protocol.rpc import Context, Endpoint
from shardcast import limits
from shardcast.gate import Gate
from shardcast.messages import AskList, AskManifest, AskShards, Frame, Listed, Listing, ManifestPart
from shardcast.names import check_name
from shardcast.shelf import Reading, Shelf

log = logging.getLogger(__name__)


class Service:
    """Answers the three requests of this package from one shelf.

    Attributes:
        gate: Who is being served.
        sent: Bytes of shard content handed to the endpoint so far.
    """

    def __init__(
        self, shelf: Shelf, gate: Gate, on_damage: Callable[[NodeError], None] | None = None
    ) -> None:
        self.shelf = shelf
        self.gate = gate
        self.sent = 0
        self._on_damage = on_damage or (lambda error: log.warning("%s", error))

    async def on_ask_manifest(self, message: AskManifest, context: Context) -> AsyncIterator[ManifestPart]:
        """Stream the text of a manifest."""
        async with self.gate.admit(context.sender):
            with self.shelf.open(message.name, message.digest or None) as reading:
                raw = reading.manifest.raw
            for start in range(0, len(raw), limits.FRAME):
                yield ManifestPart(data=raw[start : start + limits.FRAME])

    async def on_ask_shards(self, message: AskShards, context: Context) -> AsyncIterator[Frame]:
        """Stream shards in the order of asking, each from the byte that was asked for."""
        async with self.gate.admit(context.sender):
            with self.shelf.open(message.name, message.digest or None) as reading:
                shards = reading.manifest.shards
                for want in message.wanted:
                    if want.index >= len(shards) or want.offset >= shards[want.index].size:
                        raise NodeError(
                            Code.WIRE_INVALID,
                            f"{message.name} has no byte {want.offset} in a shard {want.index}.",
                        )
                for want in message.wanted:
                    async with aclosing(self._frames(reading, want.index, want.offset)) as frames:
                        async for frame in frames:
                            yield frame

    async def on_ask_list(self, message: AskList, context: Context) -> Listing:
        """Say what is served."""
        if message.prefix:
            check_name(message.prefix.rstrip("/"))
        names = [n for n in self.shelf.names() if n.startswith(message.prefix) and n > message.after]
        listed = []
        for name in names[: limits.MAX_LISTED]:
            manifest = self.shelf.manifest(name)
            listed.append(
                Listed(name=name, version=manifest.header.version, size=manifest.size, digest=manifest.digest)
            )
        return Listing(objects=tuple(listed), more=len(names) > len(listed))

    async def _frames(self, reading: Reading, index: int, start: int) -> AsyncGenerator[Frame, None]:
        size = reading.manifest.shards[index].size
        for offset in range(start, size, limits.FRAME):
            try:
                data = await asyncio.to_thread(reading.read, index, offset, limits.FRAME)
            except NodeError as error:
                self._on_damage(error)
                yield Frame(index=index, missing=True)
                return
            self.sent += len(data)
            yield Frame(index=index, offset=offset, data=memoryview(data))


def attach(
    endpoint: Endpoint,
    shelf: Shelf,
    *,
    max_clients: int = limits.MAX_CLIENTS,
    on_damage: Callable[[NodeError], None] | None = None,
) -> Service:
    """Serve a shelf at an endpoint.

    Args:
        endpoint: Where the requests arrive.
        shelf: What is served; objects may come and go meanwhile.
        max_clients: Streams served at once. Others wait a little in order of asking, then are told to come back.
        on_damage: Told of objects whose bytes changed on disk; they are not sent. By default a warning is logged.
    """
    service = Service(shelf, Gate(max_clients), on_damage)
    endpoint.handle(service.on_ask_manifest)
    endpoint.handle(service.on_ask_shards)
    endpoint.handle(service.on_ask_list)
    return service
