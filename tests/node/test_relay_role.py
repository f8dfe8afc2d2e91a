"""A node that is told to passes large files on over HTTP."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from node.roles.relay import start_relay
from node.runfile import ShardcastSection, parse
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.testing import local_endpoints
from shardcast import limits
from shardcast.expect import Expect
from shardcast.http.fetching import fetch_version
from shardcast.http.origin import Origin
from shardcast.http.relay import Relay
from shardcast.http.source import Source
from shardcast.messages import Announced
from tests.node.test_gossip import Node, until
from tests.shardcast.http.conftest import Tree, url_of


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, kind: str, /, **fields: Any) -> None:
        self.seen.append((kind, fields))


async def test_a_node_with_sources_serves_what_they_publish(tmp_path: Path) -> None:
    identity = Identity.ephemeral()
    origin = Origin(tmp_path / "origin", identity)
    await origin.start("127.0.0.1")
    (tmp_path / "file").write_bytes(b"weights" * 1000)
    await (await origin.publish(tmp_path / "file")).done()
    text = (
        f'[shardcast]\nsources = ["http://127.0.0.1:{origin.server.port}"]\ndisk = "1 GiB"\nrate = "1 Gb/s"\n'
    )
    emit = Events()
    async with local_endpoints(1) as (endpoint,):
        role = await start_relay(parse(text).shardcast, tmp_path / "relay", emit, endpoint)
        assert role is not None
        (kind, fields) = emit.seen[0]
        assert kind == "shardcast.serving"
        source = Source.parse(f"http://127.0.0.1:{fields['port']}")
        await fetch_version([source], tmp_path / "fetched", Expect(publisher=identity.peer_id))
        assert (tmp_path / "fetched").read_bytes() == b"weights" * 1000
        await role.stop()
    await origin.stop()


async def test_a_node_without_sources_is_no_relay(tmp_path: Path) -> None:
    async with local_endpoints(1) as (endpoint,):
        assert await start_relay(ShardcastSection(), tmp_path / "relay", Events(), endpoint) is None
    assert not (tmp_path / "relay").exists()


async def test_a_source_that_is_no_address_is_an_error(tmp_path: Path) -> None:
    section = ShardcastSection(sources=("ftp://x",))
    async with local_endpoints(1) as (endpoint,):
        with pytest.raises(NodeError) as error:
            await start_relay(section, tmp_path / "relay", Events(), endpoint)
    assert error.value.code is Code.CFG_USAGE


class Deaf:
    """A server that passes an origin's answers on, and never says when its list changes: who asks that hangs."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.held = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.query.get("after"):
            self.held += 1
            await asyncio.Event().wait()
        return await self.origin.server._answer(request)


async def test_a_relay_asks_at_once_when_gossip_says_that_there_is_a_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONG_POLL", timedelta(hours=1))
    async with AsyncExitStack() as stack:
        nodes = [Node(tmp_path / name) for name in ("one", "two")]
        for node in nodes:
            stack.push_async_callback(node.stop)
        await nodes[0].start()
        await nodes[1].start(*nodes[0].addresses)
        tree = Tree(tmp_path, stack)
        origin = await tree.origin()
        deaf = Deaf(origin)
        relays = []
        for node, url in zip(nodes, (url_of(origin), await tree.server(deaf.answer)), strict=True):
            section = ShardcastSection(sources=(url,), host="127.0.0.1", port=0)
            folder = tmp_path / f"relay {len(relays)}"
            role = await start_relay(section, folder, node.emit, node.network.endpoint)
            assert role is not None
            stack.push_async_callback(role.stop)
            relays.append(role.relay)
        await until(lambda: all(node.neighbours() for node in nodes) and deaf.held == 1)
        version = await origin.publish(tree.file(1000))
        await version.done()
        await until(lambda: has(relays[0], version.identifier) and has(relays[1], version.identifier))
        await until(lambda: deaf.held == 2)  # it left the question that hung, asked, and holds another
        gossip = nodes[1].network.gossip
        assert gossip is not None and not gossip.topics.counts["published"], "what was heard is not repeated"
        lie = Announced(object=b"\1" * 32, name="x", label="1", serial=1, author="nobody")
        await nodes[0].network.endpoint.publish(lie)
        await until(lambda: deaf.held == 3)
        assert [entry.identifier for entry in relays[1].catalogue.entries()] == [version.identifier]


def has(relay: Relay, identifier: str) -> bool:
    held = relay.catalogue.held.get(identifier)
    return held is not None and held.whole
