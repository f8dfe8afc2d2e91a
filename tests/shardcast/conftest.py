import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.rpc import Endpoint
from protocol.testing import local_endpoints
from protocol.units import PeerId
from shardcast.manifest import Manifest, build_manifest
from shardcast.service import Service, attach
from shardcast.shelf import Shelf

NAME = "ckpt/8"


@dataclass
class Node:
    """One endpoint on loopback with a shelf of its own."""

    endpoint: Endpoint
    shelf: Shelf
    service: Service | None = None

    @property
    def peer(self) -> PeerId:
        return self.endpoint.identity.peer_id


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
        path.write_bytes(content)
        manifest = build_manifest(path, NAME, shard_size)
        node.shelf.add(manifest, path)
        node.service = attach(node.endpoint, node.shelf, **options)
        return manifest

    def give_all(self, content: bytes, shard_size: int, **options: int) -> Manifest:
        """Puts the same object on every holder."""
        self.content = content
        return [self.give(node, content, shard_size, **options) for node in self.holders][0]


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


def random_bytes(size: int) -> bytes:
    return os.urandom(size)
