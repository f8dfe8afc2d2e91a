"""A file on its way from its publisher over relays to a client, when all goes well."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest

from protocol.errors import Code, NodeError
from protocol.identity import Identity
from shardcast import limits
from shardcast.draw import Progress
from shardcast.expect import Expect
from shardcast.http.door import Access
from shardcast.http.peer import Peer
from shardcast.http.source import Link, Source
from shardcast.scores import Scores
from tests.shardcast.http.conftest import MIB, Tree, holds, published, same, until, url_of


async def test_a_file_comes_over_a_chain_of_relays(tree: Tree) -> None:
    origin = await tree.origin()
    first = await tree.relay([origin], "first")
    second = await tree.relay([first], "second")
    path = tree.file(5 * MIB + 123)
    version = await published(origin, path, shard_size=MIB)
    fetched = await tree.fetch([second])
    assert same(tree.folder / "fetched", path)
    assert (fetched.version, fetched.size) == (version.version, 5 * MIB + 123)
    assert fetched.manifest_digest == version.digest
    assert fetched.per_source == {url_of(second): 5 * MIB + 123}
    assert not list(tree.folder.glob("*.part"))


async def test_an_empty_file_is_a_version_like_any_other(tree: Tree) -> None:
    origin = await tree.origin()
    relay = await tree.relay([origin])
    await published(origin, tree.file(0))
    await tree.fetch([relay])
    assert (tree.folder / "fetched").read_bytes() == b""


async def test_a_file_is_fetched_while_it_is_still_written(tree: Tree) -> None:
    origin = await tree.origin()
    relay = await tree.relay([origin])
    content = tree.file(4 * MIB).read_bytes()
    path = tree.folder / "growing"
    path.write_bytes(b"")
    publication = await origin.publish(path, size=len(content), shard_size=MIB)
    seen: asyncio.Queue[Progress] = asyncio.Queue()
    fetch = asyncio.create_task(tree.fetch([relay], progress=seen.put_nowait))
    with path.open("ab", buffering=0) as file:
        for start in range(0, len(content), MIB):
            file.write(content[start : start + MIB])
            progress = await asyncio.wait_for(seen.get(), 60)
            assert progress.bytes == start + MIB, "each shard arrives before the next is written"
    await fetch
    await publication.done()
    assert (tree.folder / "fetched").read_bytes() == content


async def test_shards_come_from_several_servers_at_once(tree: Tree) -> None:
    origin = await tree.origin()
    relays = [await tree.relay([origin], f"relay{i}") for i in range(3)]
    path = tree.file(8 * MIB)
    version = await published(origin, path, shard_size=MIB // 4)
    for relay in relays:
        await until(holds(relay, version))
    fetched = await tree.fetch(relays)
    assert set(fetched.per_source) == {url_of(relay) for relay in relays}
    assert same(tree.folder / "fetched", path)


async def test_what_is_there_already_is_not_fetched_again(tree: Tree) -> None:
    origin = await tree.origin()
    await published(origin, tree.file(3 * MIB), shard_size=MIB)
    await tree.fetch([origin])
    again = await tree.fetch([origin])
    assert (again.bytes, again.resumed) == (0, 3 * MIB)


async def test_an_interrupted_fetch_goes_on_where_it_was(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(8 * MIB)
    await published(origin, path, shard_size=MIB)
    half = asyncio.Event()
    fetch = asyncio.create_task(
        tree.fetch([origin], progress=lambda now: half.set() if now.shards >= 4 else None, parallel=1)
    )
    await half.wait()
    fetch.cancel()
    await asyncio.gather(fetch, return_exceptions=True)
    fetched = await tree.fetch([origin])
    assert fetched.resumed >= 4 * MIB
    assert fetched.bytes <= 4 * MIB
    assert same(tree.folder / "fetched", path)


async def test_the_newest_version_is_chosen_and_an_older_one_on_request(tree: Tree) -> None:
    origin = await tree.origin()
    paths = [tree.file(1000 + i) for i in range(3)]
    versions = [await published(origin, path, version=f"step-{i}") for i, path in enumerate(paths)]
    assert [v.serial for v in versions] == sorted({v.serial for v in versions})
    assert (await tree.fetch([origin])).version == "step-2"
    assert same(tree.folder / "fetched", paths[2])
    assert (await tree.fetch([origin], version="step-0")).version == "step-0"
    assert same(tree.folder / "fetched", paths[0])


async def test_a_digest_alone_is_enough_to_believe_a_version(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(3 * MIB)
    version = await published(origin, path, shard_size=MIB)
    await tree.fetch([origin], expect=Expect(manifest_digest=version.digest))
    assert same(tree.folder / "fetched", path)
    with pytest.raises(NodeError) as error:
        await tree.fetch([origin], "other", expect=Expect(manifest_digest=bytes(32)))
    assert error.value.code is Code.SHC_MANIFEST
    assert not (tree.folder / "other").exists()


async def test_nobody_is_believed_without_grounds(tree: Tree) -> None:
    origin = await tree.origin()
    with pytest.raises(NodeError) as error:
        await tree.fetch([origin], expect=Expect(verify=lambda path: True))
    assert error.value.code is Code.CFG_USAGE


async def test_another_publisher_is_not_believed(tree: Tree) -> None:
    stranger = await tree.origin("stranger", identity=Identity.ephemeral())
    origin = await tree.origin()
    await published(stranger, tree.file(1000))
    path = tree.file(2000)
    await published(origin, path)
    await published(stranger, tree.file(3000))
    await tree.fetch([stranger, origin])
    assert same(tree.folder / "fetched", path)


async def test_shards_that_two_versions_share_have_one_address(tree: Tree) -> None:
    origin = await tree.origin()
    content = tree.file(2 * MIB).read_bytes()
    (tree.folder / "a").write_bytes(content)
    (tree.folder / "b").write_bytes(content[:MIB] + bytes(MIB))
    a = await published(origin, tree.folder / "a", shard_size=MIB)
    b = await published(origin, tree.folder / "b", shard_size=MIB)
    one, other = (origin.catalogue.held[v.identifier].growing.shard(0) for v in (a, b))
    assert one.digest == other.digest
    link = Link(Source.parse(url_of(origin)), 10.0)
    body = await asyncio.to_thread(link.text, f"/shards/{one.digest.hex()}", MIB)
    link.close()
    assert body == content[:MIB]


async def test_the_origin_makes_no_second_copy_and_outlives_the_removal_of_its_file(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(2 * MIB)
    content = path.read_bytes()
    await published(origin, path, shard_size=MIB)
    assert sum(f.stat().st_size for f in (tree.folder / "origin").iterdir()) < 10_000
    path.unlink()
    await tree.fetch([origin])
    assert (tree.folder / "fetched").read_bytes() == content


async def test_an_origin_that_starts_again_serves_what_it_published(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(2 * MIB)
    before = await published(origin, path, shard_size=MIB)
    await origin.stop()
    origin = await tree.origin()
    fetched = await tree.fetch([origin])
    assert fetched.serial == before.serial
    assert same(tree.folder / "fetched", path)


async def test_a_file_that_was_written_to_is_not_served_any_more(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(2 * MIB)
    version = await published(origin, path, shard_size=MIB)
    with path.open("r+b") as file:
        file.write(b"changed")
    os.utime(path, ns=(1, 1))
    with pytest.raises(NodeError):
        await tree.fetch([origin], patience=limits.QUEUE_WAIT)
    assert version.identifier not in origin.catalogue.held
    await origin.stop()
    assert (await tree.origin()).catalogue.held == {}


async def test_a_relay_that_starts_again_lists_and_serves_without_its_sources(tree: Tree) -> None:
    origin = await tree.origin()
    relay = await tree.relay([origin])
    path = tree.file(3 * MIB)
    version = await published(origin, path, shard_size=MIB)
    await until(holds(relay, version))
    await origin.stop()
    await relay.stop()
    relay = await tree.relay([url_of(1)])
    await tree.fetch([relay])
    assert same(tree.folder / "fetched", path)


async def test_a_relay_goes_on_with_what_an_earlier_start_left(tree: Tree) -> None:
    origin = await tree.origin()
    version = await published(origin, tree.file(4 * MIB), shard_size=MIB)
    relay = await tree.relay([origin])
    await until(holds(relay, version))
    await relay.stop()
    folder = Path(relay.folder)
    (folder / f"{version.identifier}.manifest").unlink()
    (folder / f"{version.identifier}.data").rename(folder / f"{version.identifier}.data.part")
    before = origin.server.sent
    relay = await tree.relay([origin])
    await until(holds(relay, version))
    assert origin.server.sent == before


async def test_clients_that_serve_are_found_and_asked_by_those_that_serve_too(tree: Tree) -> None:
    origin = await tree.origin()
    slow = await tree.also(origin, Access(rate=MIB))
    path = tree.file(3 * MIB)
    await published(origin, path, shard_size=MIB // 4)
    first, second = Peer(), Peer()
    for peer in (first, second):
        await peer.start("127.0.0.1")
    await tree.fetch([slow, origin], "first", peer=first)
    fetched = await tree.fetch([slow], "second", peer=second)
    assert same(tree.folder / "second", path)
    assert fetched.per_source[f"http://127.0.0.1:{first.server.port}"] > 0
    served = first.server.sent
    await tree.fetch([origin], "third")
    assert first.server.sent == served, "who does not serve asks no other client"

    with (tree.folder / "first").open("r+b") as file:
        file.write(b"changed")
    os.utime(tree.folder / "first", ns=(1, 1))
    await tree.fetch([origin, f"http://127.0.0.1:{first.server.port}"], "fourth")
    assert same(tree.folder / "fourth", path)
    assert first.catalogue.held == {}
    for peer in (first, second):
        await peer.stop()


async def test_a_client_serves_the_shards_that_it_holds_before_it_is_whole(tree: Tree) -> None:
    origin = await tree.origin()
    path = tree.file(2 * MIB)
    version = await published(origin, path, shard_size=MIB // 4)
    growing = origin.catalogue.held[version.identifier].growing
    last = f"/shards/{growing.shard(growing.count - 1).digest.hex()}"
    opened = False

    def all_but_the_last(asked: str, body: bytes) -> bytes | None:
        return None if asked == last and not opened else body

    def the_last_alone(asked: str, body: bytes) -> bytes | None:
        return None if asked.startswith("/shards/") and asked != last else body

    early, late = await tree.proxy(origin, all_but_the_last), await tree.proxy(origin, the_last_alone)
    peer = Peer()
    await peer.start("127.0.0.1")
    first = asyncio.ensure_future(tree.fetch([early], "first", peer=peer))
    await until(lambda: bool(peer.catalogue.held))
    url = f"http://127.0.0.1:{peer.server.port}"
    fetched = await tree.fetch([late, url], "second")
    assert same(tree.folder / "second", path)
    assert fetched.per_source[url] == path.stat().st_size - MIB // 4
    assert not first.done(), "what it gave it had before it was whole"
    opened = True
    await first
    assert peer.catalogue.held[version.identifier].whole
    await peer.stop()


async def test_a_client_that_gives_a_version_up_serves_nothing_of_it(tree: Tree) -> None:
    origin = await tree.origin()
    version = await published(origin, tree.file(MIB), shard_size=MIB // 4)
    last = f"/shards/{origin.catalogue.held[version.identifier].growing.shard(3).digest.hex()}"
    lacking = await tree.proxy(origin, lambda asked, body: None if asked == last else body)
    peer = Peer()
    await peer.start("127.0.0.1")
    fetch = asyncio.ensure_future(tree.fetch([lacking], "first", peer=peer))
    await until(lambda: bool(peer.catalogue.held))
    fetch.cancel()
    await asyncio.gather(fetch, return_exceptions=True)
    assert peer.catalogue.held == {}
    await peer.stop()


async def test_a_client_keeps_no_old_version_for_others(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READ_RECENTLY", timedelta(0))
    origin = await tree.origin()
    peer = Peer()
    await peer.start("127.0.0.1")
    serial = 0
    for size in (1000, 2000):
        await published(origin, tree.file(size))
        serial = (await tree.fetch([origin], newer_than=serial, peer=peer)).serial
    assert [entry.serial for entry in peer.catalogue.entries()] == [serial]
    await peer.stop()


async def test_a_fast_server_that_was_not_asked_yet_is_found_while_a_slow_one_brings(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EXPLORE", timedelta(seconds=0.2))
    fast = await tree.origin()
    slow = await tree.also(fast, Access(rate=MIB))
    path = tree.file(8 * MIB)
    await published(fast, path, shard_size=MIB // 4)
    fetched = await tree.fetch([slow, fast], parallel=1)
    assert same(tree.folder / "fetched", path)
    assert fetched.per_source[url_of(fast)] > fetched.per_source.get(slow, 0)


async def test_what_was_learned_of_servers_decides_whom_the_next_fetch_asks(tree: Tree) -> None:
    fast = await tree.origin()
    slow = await tree.also(fast, Access(rate=2 * MIB))
    path = tree.file(4 * MIB)
    await published(fast, path, shard_size=MIB)
    scores = Scores(explore=0.0)
    await tree.fetch([slow, fast], "one", parallel=2, scores=scores)
    fetched = await tree.fetch([slow, fast], "two", parallel=1, scores=scores)
    assert set(fetched.per_source) == {url_of(fast)}
