"""A node that is told to passes large files on over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from node.roles.relay import start_relay
from node.runfile import ShardcastSection, parse
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from shardcast.expect import Expect
from shardcast.http.fetching import fetch_version
from shardcast.http.origin import Origin
from shardcast.http.source import Source


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
    relay = await start_relay(parse(text).shardcast, tmp_path / "relay", emit)
    assert relay is not None
    (kind, fields) = emit.seen[0]
    assert kind == "shardcast.serving"
    source = Source.parse(f"http://127.0.0.1:{fields['port']}")
    await fetch_version([source], tmp_path / "fetched", Expect(publisher=identity.peer_id))
    assert (tmp_path / "fetched").read_bytes() == b"weights" * 1000
    await relay.stop()
    await origin.stop()


async def test_a_node_without_sources_is_no_relay(tmp_path: Path) -> None:
    assert await start_relay(ShardcastSection(), tmp_path / "relay", Events()) is None
    assert not (tmp_path / "relay").exists()


async def test_a_source_that_is_no_address_is_an_error(tmp_path: Path) -> None:
    section = ShardcastSection(sources=("ftp://x",))
    with pytest.raises(NodeError) as error:
        await start_relay(section, tmp_path / "relay", Events())
    assert error.value.code is Code.CFG_USAGE
