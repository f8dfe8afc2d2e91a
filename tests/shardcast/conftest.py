from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest

from protocol.rpc import Context, Endpoint
from protocol.testing import local_endpoints
from protocol.units import PeerId
from shardcast.building import build_manifest
from shardcast.manifest import Manifest
from shardcast.messages import AskList, AskManifest, AskShards, Frame, Listing, ManifestPart
from shardcast.service import Service, attach
from shardcast.shelf import Shelf

NAME = "ckpt/8"


class Node:
    """One endpoint on loopback with a shelf of its own, whose handlers a test may replace as often as it likes."""

    def __init__(self, endpoint: Endpoint, shelf: Shelf) -> None:
        self.endpoint = endpoint
        self.shelf = shelf
        self.service: Service | None = None
        self._handlers: dict[type[Any], Callable[..., Any]] = {}

    @property
    def peer(self) -> PeerId:
        return self.endpoint.peer_id

    def handle(self, function: Callable[..., Any]) -> None:
        """Serves a message from now on by this function."""
        asked = get_type_hints(function)["message"]
        if asked not in self._handlers:
            self.endpoint.handle(_FORWARDERS[asked](self._handlers))
        self._handlers[asked] = function


def _manifests(handlers: dict[type[Any], Callable[..., Any]]) -> Callable[..., Any]:
    async def forward(message: AskManifest, context: Context) -> AsyncIterator[ManifestPart]:
        async with aclosing(handlers[AskManifest](message, context)) as parts:
            async for part in parts:
                yield part

    return forward


def _shards(handlers: dict[type[Any], Callable[..., Any]]) -> Callable[..., Any]:
    async def forward(message: AskShards, context: Context) -> AsyncIterator[Frame]:
        async with aclosing(handlers[AskShards](message, context)) as frames:
            async for frame in frames:
                yield frame

    return forward


def _lists(handlers: dict[type[Any], Callable[..., Any]]) -> Callable[..., Any]:
    async def forward(message: AskList, context: Context) -> Listing:
        listing: Listing = await handlers[AskList](message, context)
        return listing

    return forward


_FORWARDERS = {AskManifest: _manifests, AskShards: _shards, AskList: _lists}


@dataclass
class Swarm:
    """Nodes that trust one another; the first is the client, the others may hold the object."""

    folder: Path
    nodes: list[Node]
    content: bytes = b""

    @property
    def client(self) -> Node:
        return self.nodes[0]

    @property
    def holders(self) -> list[Node]:
        return self.nodes[1:]

    @property
    def peers(self) -> list[PeerId]:
        return [node.peer for node in self.holders]

    def give(self, node: Node, content: bytes, shard_size: int, **options: int) -> Manifest:
        """Puts an object on a node's shelf and serves it."""
        path = self.folder / f"{node.peer}.object"
        path.unlink(missing_ok=True)  # never into the file itself: a shelf may hold it
        path.write_bytes(content)
        manifest = build_manifest(path, NAME, shard_size)
        node.shelf.add(manifest, path)
        node.service = attach(cast(Endpoint, node), node.shelf, **options)
        return manifest

    def give_all(self, content: bytes, shard_size: int, **options: int) -> Manifest:
        """Puts the same object on every holder."""
        self.content = content
        manifests = [self.give(node, content, shard_size, **options) for node in self.holders]
        return manifests[0]


@pytest.fixture
async def swarm(tmp_path: Path) -> AsyncIterator[Callable[[int], object]]:
    """Makes a swarm of one client and so many holders."""
    async with AsyncExitStack() as stack:

        async def make(holders: int) -> Swarm:
            endpoints = await stack.enter_async_context(local_endpoints(holders + 1))
            nodes = [Node(e, Shelf(tmp_path / f"shelf{i}")) for i, e in enumerate(endpoints)]
            return Swarm(tmp_path, nodes)

        yield make


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "fetched" / "object"
