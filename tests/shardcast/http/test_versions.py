"""A model whose versions come whole, as snapshots and as deltas, and whose tensors come before its last byte."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.errors import Code, NodeError
from shardcast.digest import file_digest
from shardcast.encoding import Held
from shardcast.expect import Expect
from shardcast.http.listing import read_listing, write_listing
from shardcast.http.origin import Origin
from shardcast.http.source import Source
from shardcast.http.streaming import stream
from shardcast.http.versions import Library, Publisher
from tests.shardcast.http.conftest import Tree, holds, until, url_of
from tests.shardcast.weights import file_of, weight_of

ELEMENTS = 200_000
SIZE = len(file_of([weight_of("w", "BF16", bytes(2 * ELEMENTS))]))


def step(tree: Tree, number: int) -> Path:
    """The model after so many steps, each of which moves one element in a hundred."""
    values = np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32) * 0.05
    bits = (values.view(np.uint32) >> 16).astype("<u2")
    for seed in range(1, number + 1):
        bits[np.random.default_rng(seed).random(ELEMENTS) < 0.01] += 1
    path = tree.folder / f"step-{number}"
    path.write_bytes(file_of([weight_of("w", "BF16", bits.tobytes())]))
    return path


def sources(*urls: str) -> list[Source]:
    return [Source.parse(url) for url in urls]


def library(tree: Tree, folder: str = "library", **options: Any) -> Library:
    return Library(tree.folder / folder, tree.identity.peer_id, **options)


async def publisher(tree: Tree, origin: Origin, **options: Any) -> Publisher:
    (tree.folder / "forms").mkdir()
    return Publisher(origin, tree.folder / "forms", **options)


async def test_who_has_the_version_before_fetches_what_changed(tree: Tree) -> None:
    origin = await tree.origin()
    relay = await tree.relay([origin])
    publish, bring = await publisher(tree, origin), library(tree)
    for form in await publish.publish(step(tree, 0)):
        await until(holds(relay, form))
    first = await bring.bring(sources(url_of(relay)))
    assert first.refused == ()
    assert [offer.parent for offer in first.way] == [None] and 0.6 * SIZE < first.bytes < 0.72 * SIZE
    for form in await publish.publish(step(tree, 1)):
        await until(holds(relay, form))
    second = await bring.bring(sources(url_of(relay)), newer_than=first.serial)
    assert [offer.parent for offer in second.way] == [first.file.digest] and second.bytes < 0.02 * SIZE
    assert second.file.path.read_bytes() == (tree.folder / "step-1").read_bytes()
    assert first.bytes == sum(offer.size for offer in first.way), "each byte is counted once"
    assert file_digest(second.file.path) == second.file.digest
    again = await bring.bring(sources(url_of(relay)))
    assert again.way == () and again.bytes == 0 and again.file == second.file


async def test_who_was_away_catches_up_by_deltas_and_a_newcomer_by_a_snapshot_and_deltas(tree: Tree) -> None:
    origin = await tree.origin()
    publish, away = await publisher(tree, origin), library(tree, "away")
    await publish.publish(step(tree, 0))
    first = await away.bring(sources(url_of(origin)))
    (tree.folder / "away" / "notes.txt").write_text("not ours")
    for number in (1, 2, 3):
        await publish.publish(step(tree, number))
    late = await away.bring(sources(url_of(origin)), newer_than=first.serial)
    assert len(late.way) == 3 and late.bytes < 0.05 * SIZE
    new = await library(tree, "new").bring(sources(url_of(origin)))
    assert [offer.parent is None for offer in new.way] == [True, False, False, False]
    assert new.file.path.read_bytes() == late.file.path.read_bytes() == (tree.folder / "step-3").read_bytes()
    kept = {path.name for path in (tree.folder / "away").iterdir()}
    assert len(kept) == 3 and {late.file.path.name, "notes.txt"} < kept


async def test_a_snapshot_is_published_every_so_many_versions(tree: Tree) -> None:
    publish = await publisher(tree, await tree.origin(), every=2)
    forms = [[form.name for form in await publish.publish(step(tree, number))] for number in range(5)]
    assert forms == [
        ["weights", "weights/planes"],
        ["weights", "weights/delta"],
        ["weights", "weights/delta", "weights/planes"],
        ["weights", "weights/delta"],
        ["weights", "weights/delta", "weights/planes"],
    ]
    assert not list((tree.folder / "forms").iterdir()), "the origin has open what it serves"


async def test_a_file_may_be_replaced_by_the_next_one_of_its_name(tree: Tree) -> None:
    origin = await tree.origin()
    publish, bring = await publisher(tree, origin), library(tree)
    path = tree.folder / "model"
    for number in range(3):
        step(tree, number).rename(path)
        await publish.publish(path)
        brought = await bring.bring(sources(url_of(origin)))
        assert brought.file.path.read_bytes() == path.read_bytes() and brought.refused == ()
        assert [offer.parent is not None for offer in brought.way] == [number > 0]
    path.unlink()
    assert len(await publish.publish(step(tree, 3))) == 2
    publish.close()


async def test_files_that_are_not_safetensors_are_published_as_they_are(tree: Tree) -> None:
    origin = await tree.origin()
    publish = await publisher(tree, origin)
    for number in range(2):
        path = tree.file(30_000)
        assert [form.name for form in await publish.publish(path)] == ["weights"]
        brought = await library(tree).bring(sources(url_of(origin)))
        assert brought.file.path.read_bytes() == path.read_bytes() and len(brought.way) == 1, number


async def test_a_library_whose_file_was_damaged_takes_the_whole_version(tree: Tree) -> None:
    origin = await tree.origin()
    publish, bring = await publisher(tree, origin), library(tree)
    await publish.publish(step(tree, 0))
    first = await bring.bring(sources(url_of(origin)))
    content = bytearray(first.file.path.read_bytes())
    content[-5] ^= 1
    first.file.path.write_bytes(content)
    await publish.publish(step(tree, 1))
    second = await bring.bring(sources(url_of(origin)))
    assert second.file.path.read_bytes() == (tree.folder / "step-1").read_bytes()
    assert [offer.parent for offer in second.way] == [None]


def relisted(change: Callable[[dict[str, Any]], None]) -> Callable[[str, bytes], bytes]:
    """A server that lies in its list."""
    import json

    def answer(path: str, body: bytes) -> bytes:
        if path != "/versions":
            return body
        document = json.loads(body)
        for version in document["versions"]:
            change(version)
        return json.dumps(document).encode()

    return answer


async def test_a_server_that_lies_about_a_result_or_a_parent_is_found_out(tree: Tree) -> None:
    origin = await tree.origin()
    publish, bring = await publisher(tree, origin), library(tree)
    await publish.publish(step(tree, 0))
    first = await bring.bring(sources(url_of(origin)))
    await publish.publish(step(tree, 1))

    def lie(version: dict[str, Any]) -> None:
        if version["parent"]:
            version["parent"] = first.file.digest.hex()
        version["result"] = "ab" * 32

    liar = await tree.proxy(origin, relisted(lie))
    with pytest.raises(NodeError) as caught:
        await bring.bring(sources(liar), newer_than=first.serial, patience=timedelta(seconds=10))
    assert caught.value.code is Code.SHC_MANIFEST
    assert not (tree.folder / "library" / ("ab" * 32)).exists()


def test_the_list_says_what_a_version_decodes_to_and_drops_what_is_no_digest() -> None:
    document = (
        b'{"cursor":"a","schema":1,"versions":[{"author":"x","closed":true,"encoding":"raw","name":"w","object":"%s",'
        b'"parent":"","result":"%s","result_size":1,"serial":1,"size":1,"version":"1"}]}'
    )
    _, (entry,) = read_listing(document % (b"ab" * 32, b"cd" * 32))
    assert entry.result == "cd" * 32
    assert read_listing(write_listing("a", [entry]))[1] == (entry,)
    assert read_listing(document % (b"ab" * 32, b"CD" * 32))[1] == ()


# tensors that come before the last byte


async def test_tensors_are_yielded_while_the_file_is_still_written(tree: Tree) -> None:
    origin = await tree.origin()
    relay = await tree.relay([origin])
    chance = np.random.default_rng(0)
    content = file_of([weight_of(name, "BF16", chance.bytes(1 << 20)) for name in "abc"])
    head = len(content) - (3 << 20)
    path = tree.folder / "growing"
    path.write_bytes(content[: head + (1 << 20)])
    publication = await origin.publish(path, size=len(content), shard_size=head + (1 << 20))
    got: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def load() -> dict[str, bytes]:
        found = {}
        expect = Expect(publisher=tree.identity.peer_id)
        for name, array in stream(sources(url_of(relay)), tree.folder / "into", expect, framework="numpy"):
            found[name] = array.tobytes()
            loop.call_soon_threadsafe(got.put_nowait, name)
        return found

    loading = asyncio.create_task(asyncio.to_thread(load))
    assert await asyncio.wait_for(got.get(), 30) == "a", "it waits for the end of the file"
    with path.open("ab") as file:
        file.write(content[head + (1 << 20) :])
    found = await asyncio.wait_for(loading, 30)
    await publication.done()
    assert b"".join(found[name] for name in "abc") == content[head:]
    assert (tree.folder / "into").read_bytes() == content


async def test_tensors_of_a_delta_are_yielded_and_of_what_is_there_already(tree: Tree) -> None:
    origin = await tree.origin()
    publish = await publisher(tree, origin)
    old = step(tree, 0)
    await publish.publish(old)
    await publish.publish(step(tree, 1))
    held = Held(old, file_digest(old))
    expect = Expect(publisher=tree.identity.peer_id, encodings=("delta",))

    def load() -> bytes:
        (found,) = stream(
            sources(url_of(origin)),
            tree.folder / "delta",
            expect,
            "weights/delta",
            parent=held,
            framework="numpy",
        )
        return bytes(found[1].tobytes())

    wanted = (tree.folder / "step-1").read_bytes()[-2 * ELEMENTS :]
    for _ in range(2):
        assert await asyncio.to_thread(load) == wanted


async def test_who_stops_before_the_end_ends_the_fetch(tree: Tree) -> None:
    origin = await tree.origin()
    content = file_of([weight_of(name, "BF16", bytes(100_000)) for name in "ab"])
    path = tree.folder / "growing"
    path.write_bytes(content[:-10])
    await origin.publish(path, size=len(content), shard_size=len(content) - 50_000)

    def load() -> str:
        tensors = stream(
            sources(url_of(origin)), tree.folder / "into", Expect(publisher=tree.identity.peer_id)
        )
        name, _ = next(tensors)
        tensors.close()  # type: ignore[attr-defined]
        return name

    assert await asyncio.wait_for(asyncio.to_thread(load), 30) == "a"
    assert not (tree.folder / "into").exists() and (tree.folder / "into.part").exists()


async def test_a_fetch_that_finds_nobody_says_so(tree: Tree) -> None:
    url = await tree.server(lambda request: _gone())

    def load() -> None:
        list(stream(sources(url), tree.folder / "into", Expect(manifest_digest=bytes(32)), "../x"))

    with pytest.raises(NodeError) as caught:
        await asyncio.to_thread(load)
    assert caught.value.code is Code.SHC_NAME


async def _gone() -> Any:
    from aiohttp import web

    return web.Response(status=404)
