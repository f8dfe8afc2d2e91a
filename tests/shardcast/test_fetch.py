import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.rpc import Context
from shardcast import limits
from shardcast.building import build_manifest
from shardcast.client import FetchReport, fetch
from shardcast.digest import file_digest
from shardcast.draw import Progress
from shardcast.expect import Expect
from shardcast.manifest import Manifest
from shardcast.messages import AskList, AskManifest, AskShards, Frame, Listing, ManifestPart, Want
from shardcast.service import attach
from shardcast.shelf import Shelf
from tests.shardcast.conftest import NAME, Node, Swarm

KIB = 1024
CONTENT = os.urandom(1024 * KIB + 77)
SOON = timedelta(milliseconds=500)

MakeSwarm = Callable[[int], "asyncio.Future[Swarm]"]


async def get(swarm: Swarm, into: Path, expect: Expect, **options: object) -> FetchReport:
    return await fetch(swarm.client.endpoint, NAME, swarm.peers, into, expect, **options)  # type: ignore[arg-type]


async def error_of(call: object) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await call  # type: ignore[misc]
    return caught.value


def expecting(manifest: Manifest) -> Expect:
    return Expect(manifest_digest=manifest.digest)


Twist = Callable[[Node, AsyncIterator[Frame]], AsyncIterator[Frame]]


def bend(node: Node, manifest: Manifest, twist: Twist) -> None:
    """Lets a node serve right manifests and frames that pass through `twist`."""
    honest = Honest(manifest)

    async def on_ask_manifest(message: AskManifest, context: Context) -> AsyncIterator[ManifestPart]:
        yield ManifestPart(data=manifest.raw)

    async def on_ask_shards(message: AskShards, context: Context) -> AsyncIterator[Frame]:
        async for frame in twist(node, honest.frames(message)):
            yield frame

    node.handle(on_ask_manifest)
    node.handle(on_ask_shards)


class Honest:
    """The frames that a right answer has, 16 KiB each."""

    def __init__(self, manifest: Manifest, content: bytes = CONTENT) -> None:
        self._manifest = manifest
        self._content = content

    async def frames(self, message: AskShards) -> AsyncIterator[Frame]:
        for want in message.wanted:
            shard = self._manifest.shards[want.index]
            for offset in range(want.offset, shard.size, 16 * KIB):
                start = shard.offset + offset
                size = min(16 * KIB, shard.size - offset)
                yield Frame(index=want.index, offset=offset, data=self._content[start : start + size])


# what an honest swarm does


async def test_an_object_comes_whole_from_one_holder(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    report = await get(group, into, expecting(manifest))
    assert into.read_bytes() == CONTENT
    assert report.bytes == report.size == len(CONTENT) and report.resumed == 0
    assert report.per_holder == {group.peers[0]: len(CONTENT)} and report.refused == ()
    assert report.manifest_digest == manifest.digest
    assert [p.name for p in into.parent.iterdir()] == ["object"], "no partial file is left"


async def test_an_object_comes_from_several_holders_at_once(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(3)
    manifest = group.give_all(CONTENT, 16 * KIB)
    all_asked = asyncio.Event()
    asked: set[str] = set()

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        asked.add(node.peer)
        if len(asked) == 3:
            all_asked.set()
        await all_asked.wait()  # nobody answers before all three are asked
        async for frame in frames:
            yield frame

    for node in group.holders:
        bend(node, manifest, twist)
    report = await get(group, into, expecting(manifest))
    assert into.read_bytes() == CONTENT
    assert set(report.per_holder) == set(group.peers)


async def test_shards_whose_hashes_are_certified_need_no_manifest(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 64 * KIB)

    async def on_ask_manifest(message: AskManifest, context: Context) -> AsyncIterator[ManifestPart]:
        raise AssertionError("nobody has to be asked")
        yield

    for node in group.holders:
        node.handle(on_ask_manifest)
    expect = Expect(
        shard_hashes=tuple(s.digest for s in manifest.shards),
        shard_sizes=tuple(s.size for s in manifest.shards),
    )
    report = await get(group, into, expect)
    assert into.read_bytes() == CONTENT and report.manifest_digest is None and report.refused == ()


async def test_shard_hashes_without_sizes_pick_the_right_manifest(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    group.give(group.holders[0], CONTENT[::-1], 64 * KIB)
    manifest = group.give(group.holders[1], CONTENT, 64 * KIB)
    await get(group, into, Expect(shard_hashes=[s.digest for s in manifest.shards]))
    assert into.read_bytes() == CONTENT


async def test_an_empty_object_is_fetched_too(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    await get(group, into, expecting(group.give_all(b"", 64)))
    assert into.read_bytes() == b""


async def test_an_object_that_is_there_is_not_fetched_again(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    await get(group, into, expecting(manifest))
    again = await get(group, into, expecting(manifest))
    assert again.bytes == 0 and again.resumed == len(CONTENT)


async def test_another_file_of_that_name_is_replaced_only_when_the_new_one_is_whole(
    swarm: MakeSwarm, into: Path
) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    into.parent.mkdir()
    into.write_bytes(b"the version before")
    seen: list[bytes] = []
    await get(group, into, expecting(manifest), progress=lambda _: seen.append(into.read_bytes()))
    assert set(seen) == {b"the version before"} and into.read_bytes() == CONTENT


async def test_progress_is_told_shard_by_shard(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    told: list[Progress] = []
    await get(group, into, expecting(manifest), progress=told.append)
    assert [p.shards for p in told] == list(range(1, 18))
    assert told[-1].bytes == told[-1].size == len(CONTENT) and told[-1].of == 17


async def test_many_small_shards_do_not_need_a_request_each(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    content = os.urandom(4000)
    manifest = group.give_all(content, 2)
    asked = 0
    inner = group.holders[0].service
    assert inner is not None

    async def on_ask_shards(message: AskShards, context: Context) -> AsyncIterator[Frame]:
        nonlocal asked
        asked += 1
        async for frame in inner.on_ask_shards(message, context):
            yield frame

    group.holders[0].handle(on_ask_shards)
    await get(group, into, expecting(manifest))
    assert into.read_bytes() == content and asked < 40


async def test_a_publishers_signature_is_enough_to_trust_a_version(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    publisher = Identity.ephemeral()
    for node, author in zip(group.holders, (Identity.ephemeral(), publisher), strict=True):
        path = group.folder / f"{node.peer}.object"
        path.write_bytes(CONTENT if author is publisher else CONTENT[::-1])
        manifest = build_manifest(path, NAME, 64 * KIB, version="7").signed(author)
        node.shelf.add(manifest, path)
        attach(node.endpoint, node.shelf)
    report = await get(group, into, Expect(publisher=publisher.peer_id, version="7"))
    assert into.read_bytes() == CONTENT
    assert [(r.peer, r.code) for r in report.refused] == [(group.peers[0], Code.SHC_MANIFEST)]


async def test_what_is_held_can_be_listed(swarm: MakeSwarm) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    listing = await group.client.endpoint.request(group.peers[0], AskList(prefix="ckpt/"))
    assert isinstance(listing, Listing) and not listing.more
    assert [(o.name, o.version, o.size, o.digest) for o in listing.objects] == [
        (NAME, "1", len(CONTENT), manifest.digest)
    ]
    assert (await group.client.endpoint.request(group.peers[0], AskList(prefix="other"))).objects == ()


# holders that fail


@pytest.mark.failure_mode(17)
async def test_a_holder_that_dies_half_way_is_replaced_by_others(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 16 * KIB)
    dying, other = group.holders
    at_half = asyncio.Event()
    killer: list[asyncio.Task[None]] = []

    async def wait_for_half(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        if node is other:
            await at_half.wait()
        async for frame in frames:
            yield frame

    def watch(progress: Progress) -> None:
        if progress.shards >= progress.of // 2 and not at_half.is_set():
            at_half.set()
            killer.append(asyncio.ensure_future(dying.endpoint.stop(timedelta(0))))

    for node in group.holders:
        bend(node, manifest, wait_for_half)
    report = await get(group, into, expecting(manifest), progress=watch)
    await asyncio.gather(*killer)
    assert into.read_bytes() == CONTENT
    assert report.per_holder[other.peer] > 0 and report.per_holder[dying.peer] > 0


async def test_a_holder_that_is_dead_at_the_start_does_not_matter(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 64 * KIB)
    await group.holders[0].endpoint.stop(timedelta(0))
    await get(group, into, expecting(manifest))
    assert into.read_bytes() == CONTENT


async def test_a_holder_with_one_wrong_byte_is_blamed_and_the_shard_comes_from_another(
    swarm: MakeSwarm, into: Path
) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 64 * KIB)
    liar, honest = group.holders
    lied = asyncio.Event()

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        if node is honest:
            await lied.wait()
        async for frame in frames:
            if node is liar and frame.offset == 32 * KIB:
                lied.set()
                frame = replace(frame, data=bytes([frame.data[0] ^ 1]) + frame.data[1:])
            yield frame

    for node in group.holders:
        bend(node, manifest, twist)
    report = await get(group, into, expecting(manifest))
    assert into.read_bytes() == CONTENT
    (refusal,) = report.refused
    assert refusal.peer == liar.peer and refusal.code is Code.SHC_BAD_SHARD and refusal.lied
    assert report.per_holder == {honest.peer: len(CONTENT)}, "nothing of the liar was kept"


async def only_liar(swarm: MakeSwarm, into: Path, twist: Twist) -> NodeError:
    """Fetches from one holder that answers by `twist`; returns how that ended."""
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    bend(group.holders[0], manifest, twist)
    error = await error_of(get(group, into, expecting(manifest)))
    assert not into.exists()
    return error


@pytest.mark.parametrize(
    "crime", ["truncated", "short frame", "too long", "other shard", "again", "empty frame"]
)
async def test_a_stream_that_is_not_what_was_asked_for_costs_the_holder_its_place(
    swarm: MakeSwarm, into: Path, crime: str
) -> None:
    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        async for frame in frames:
            if frame.offset < 32 * KIB:
                yield frame
            elif crime == "truncated":
                return
            elif crime == "short frame":
                yield replace(frame, data=frame.data[:-1])
            elif crime == "too long":
                yield replace(frame, data=bytes(frame.data) * 10)
            elif crime == "other shard":
                yield replace(frame, index=frame.index + 1)
            elif crime == "again":
                yield replace(frame, offset=0)
            else:
                yield replace(frame, data=b"")

    error = await only_liar(swarm, into, twist)
    assert error.code is Code.SHC_NO_HOLDER and "is left" in error.sentence


async def test_a_holder_that_goes_silent_after_one_frame_is_left(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 64 * KIB)
    silent, honest = group.holders
    began = asyncio.Event()

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        if node is honest:
            await began.wait()
        async for frame in frames:
            yield frame
            if node is silent:
                began.set()
                await asyncio.Event().wait()

    for node in group.holders:
        bend(node, manifest, twist)
    report = await get(group, into, expecting(manifest), silence=SOON)
    assert into.read_bytes() == CONTENT and report.per_holder == {honest.peer: len(CONTENT)}


async def test_a_lone_silent_holder_ends_the_fetch_in_bounded_time(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        async for frame in frames:
            yield frame
            await asyncio.Event().wait()

    bend(group.holders[0], manifest, twist)
    error = await error_of(get(group, into, expecting(manifest), silence=timedelta(milliseconds=100)))
    assert error.code is Code.SHC_NO_HOLDER and error.retriable


async def test_a_holder_that_drips_does_not_hold_up_the_others(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 64 * KIB)
    dripping, quick = group.holders
    begun = asyncio.Event()

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        if node is quick:
            await begun.wait()
        async for frame in frames:
            if node is dripping:
                begun.set()
                for place, byte in enumerate(frame.data):
                    yield replace(frame, offset=frame.offset + place, data=bytes([byte]))
                    await asyncio.sleep(0.05)  # it never is silent for as long as the deadline
            else:
                yield frame

    for node in group.holders:
        bend(node, manifest, twist)
    report = await get(group, into, expecting(manifest), silence=SOON)
    assert into.read_bytes() == CONTENT and report.per_holder == {quick.peer: len(CONTENT)}


async def test_a_reserve_is_called_up_for_each_holder_that_drops_out(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(3)
    manifest = group.give_all(CONTENT, 64 * KIB)
    good = group.holders[2]

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        async for frame in frames:
            yield frame if node is good else replace(frame, data=bytes(len(frame.data)))

    for node in group.holders:
        bend(node, manifest, twist)
    report = await get(group, into, expecting(manifest), parallel=1)
    assert into.read_bytes() == CONTENT
    assert [r.peer for r in report.refused] == group.peers[:2]


async def test_what_one_holder_began_another_continues(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 1024 * KIB)
    first, second = group.holders
    asked: list[tuple[int, int]] = []

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        async for frame in frames:
            if node is first and frame.offset == 512 * KIB:
                raise NodeError(Code.NET_AUDIENCE, "no more")
            if node is second:
                asked.append((frame.index, frame.offset))
            yield frame

    for node in group.holders:
        bend(node, manifest, twist)
    report = await get(group, into, expecting(manifest), parallel=1)
    assert into.read_bytes() == CONTENT
    assert asked[0] == (0, 512 * KIB) and report.bytes == len(CONTENT), "not a byte came twice"


async def test_a_lie_continued_by_an_honest_holder_is_not_blamed_on_it(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 1024 * KIB)
    liar = group.holders[0]

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        async for frame in frames:
            if node is liar and frame.offset == 512 * KIB:
                raise NodeError(Code.NET_AUDIENCE, "no more")
            yield replace(frame, data=bytes(len(frame.data))) if node is liar else frame

    for node in group.holders:
        bend(node, manifest, twist)
    report = await get(group, into, expecting(manifest), parallel=1)
    assert into.read_bytes() == CONTENT
    assert [r.peer for r in report.refused] == [liar.peer]


async def test_an_object_that_nobody_holds_is_an_error_that_says_so(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    group.give_all(CONTENT, 64 * KIB)
    error = await error_of(
        fetch(group.client.endpoint, "ckpt/9", group.peers, into, Expect(manifest_digest=bytes(32)))
    )
    assert error.code is Code.SHC_NO_HOLDER and "ckpt/9" in error.sentence and "held here" in error.sentence


async def test_a_shard_that_nobody_can_give_ends_the_fetch_and_keeps_the_rest(
    swarm: MakeSwarm, into: Path
) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 64 * KIB)

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        said = False
        async for frame in frames:
            if frame.index != 3:
                yield frame
            elif not said:
                said = True
                yield Frame(index=3, missing=True)

    for node in group.holders:
        bend(node, manifest, twist)
    error = await error_of(get(group, into, expecting(manifest)))
    assert error.code is Code.SHC_NO_HOLDER and "1 of 17 shards" in error.sentence
    for node in group.holders:
        bend(node, manifest, lambda _, frames: frames)
    report = await get(group, into, expecting(manifest))
    assert into.read_bytes() == CONTENT and sum(report.per_holder.values()) == 64 * KIB


async def test_a_shard_damaged_on_a_holders_disk_is_not_sent_and_not_a_lie(
    swarm: MakeSwarm, into: Path
) -> None:
    group = await swarm(2)
    manifest = group.give_all(CONTENT, 64 * KIB)
    stored = group.folder / f"{group.peers[0]}.object"
    with stored.open("r+b") as file:
        file.write(bytes(64 * KIB))
    report = await get(group, into, expecting(manifest))
    assert into.read_bytes() == CONTENT and report.refused == ()


# manifests that lie


async def test_a_forged_manifest_is_refused_and_its_holder_named(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(2)
    forged = build_manifest(CONTENT[::-1], NAME, 64 * KIB)
    manifest = group.give_all(CONTENT, 64 * KIB)
    bend(group.holders[0], forged, lambda _, frames: frames)
    report = await get(group, into, expecting(manifest), parallel=1)
    named = {r.peer: r.code for r in report.refused}
    assert into.read_bytes() == CONTENT and named == {group.peers[0]: Code.SHC_MANIFEST}


async def test_an_object_that_is_not_the_file_its_close_names_is_refused(
    swarm: MakeSwarm, into: Path
) -> None:
    group = await swarm(1)
    publisher = Identity.ephemeral()
    lines = build_manifest(CONTENT, NAME, 64 * KIB, version="7").raw.splitlines(keepends=True)
    forged = lines[-1].replace(file_digest(CONTENT).hex().encode(), b"0" * 64)
    path = group.folder / "object"
    path.write_bytes(CONTENT)
    manifest = Manifest.parse(b"".join([*lines[:-1], forged])).signed(publisher)
    group.holders[0].shelf.add(manifest, path)
    attach(group.holders[0].endpoint, group.holders[0].shelf)
    error = await error_of(get(group, into, Expect(publisher=publisher.peer_id, version="7")))
    assert error.code is Code.SHC_MANIFEST and not into.exists()
    into.write_bytes(CONTENT)
    error = await error_of(get(group, into, Expect(publisher=publisher.peer_id, version="7")))
    assert error.code is Code.SHC_MANIFEST, "nor is it when the file is there already"


async def test_a_manifest_of_another_name_is_refused(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    bend(group.holders[0], build_manifest(CONTENT, "ckpt/7", 64 * KIB), lambda _, frames: frames)
    error = await error_of(get(group, into, Expect(verify=lambda _: True)))
    assert error.code is Code.SHC_MANIFEST and "ckpt/7" in error.sentence


async def test_an_object_larger_than_accepted_is_refused_before_a_byte_is_stored(
    swarm: MakeSwarm, into: Path
) -> None:
    group = await swarm(1)
    group.give_all(CONTENT, 64 * KIB)
    error = await error_of(get(group, into, Expect(verify=lambda _: True, max_bytes=len(CONTENT) - 1)))
    assert error.code is Code.SHC_MANIFEST and not into.parent.exists()


async def test_where_only_the_result_can_be_checked_the_lying_majority_loses(
    swarm: MakeSwarm, into: Path
) -> None:
    group = await swarm(3)
    lie = bytearray(CONTENT)
    lie[300_000] ^= 1
    for node in group.holders[:2]:
        group.give(node, bytes(lie), 64 * KIB)
    group.give(group.holders[2], CONTENT, 64 * KIB)
    right = file_digest(CONTENT)
    report = await get(group, into, Expect(verify=lambda path: file_digest(path) == right))
    assert into.read_bytes() == CONTENT
    assert {r.peer for r in report.refused if r.lied} == set(group.peers[:2])
    assert sum(report.per_holder.values()) == len(CONTENT) + 64 * KIB, (
        "the shards on which both agree are not fetched twice"
    )


async def test_an_endless_manifest_is_cut_off(
    swarm: MakeSwarm, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await swarm(1)
    monkeypatch.setattr(limits, "MAX_MANIFEST", 100_000)

    async def on_ask_manifest(message: AskManifest, context: Context) -> AsyncIterator[ManifestPart]:
        while True:
            yield ManifestPart(data=b"x" * 10_000)

    group.holders[0].handle(on_ask_manifest)
    error = await error_of(get(group, into, Expect(manifest_digest=bytes(32))))
    assert error.code is Code.SHC_MANIFEST


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret"])
async def test_a_name_that_is_a_path_is_refused_by_client_and_server(
    swarm: MakeSwarm, into: Path, name: str
) -> None:
    group = await swarm(1)
    group.give_all(CONTENT, 64 * KIB)
    expect = Expect(manifest_digest=bytes(32))
    error = await error_of(fetch(group.client.endpoint, name, group.peers, into, expect))
    assert error.code is Code.SHC_NAME
    for question in (AskManifest(name=name), AskShards(name=name, wanted=(Want(index=0),))):
        with pytest.raises(NodeError) as caught:
            async for _ in group.client.endpoint.stream(group.peers[0], question, progress=SOON * 60):
                pass
        assert caught.value.code is Code.SHC_NAME


async def test_shards_that_do_not_exist_are_not_served(swarm: MakeSwarm) -> None:
    group = await swarm(1)
    group.give_all(CONTENT, 64 * KIB)
    for want in (Want(index=17), Want(index=0, offset=64 * KIB)):
        with pytest.raises(NodeError) as caught:
            question = AskShards(name=NAME, wanted=(want,))
            async for _ in group.client.endpoint.stream(group.peers[0], question, progress=SOON * 60):
                pass
        assert caught.value.code is Code.WIRE_INVALID


# interruptions


async def test_an_interrupted_client_goes_on_without_fetching_verified_shards_again(
    swarm: MakeSwarm, into: Path
) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    reached = asyncio.Event()
    came: list[int] = []

    def watch(progress: Progress) -> None:
        came.append(progress.shards)
        if progress.shards >= 6:
            reached.set()

    running = asyncio.ensure_future(get(group, into, expecting(manifest), progress=watch))
    await reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not into.exists() and 6 <= came[-1] < 17
    report = await get(group, into, expecting(manifest))
    assert into.read_bytes() == CONTENT
    assert report.resumed >= 6 * 64 * KIB and report.bytes == len(CONTENT) - report.resumed


async def test_a_damaged_partial_file_is_not_believed(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    into.parent.mkdir()
    part = into.with_name("object.part")
    part.write_bytes(CONTENT[: 64 * KIB] + b"?" + CONTENT[64 * KIB + 1 : 192 * KIB] + bytes(10))
    report = await get(group, into, expecting(manifest))
    assert into.read_bytes() == CONTENT and report.resumed == 2 * 64 * KIB


async def test_two_fetches_into_one_file_do_not_mix(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    go_on, asked = asyncio.Event(), asyncio.Event()

    async def twist(node: Node, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        asked.set()
        await go_on.wait()
        async for frame in frames:
            yield frame

    bend(group.holders[0], manifest, twist)
    started = asyncio.ensure_future(get(group, into, expecting(manifest)))
    await asked.wait()
    error = await error_of(get(group, into, expecting(manifest)))
    assert error.code is Code.STO_LOCKED
    go_on.set()
    await started
    assert into.read_bytes() == CONTENT


async def test_an_object_removed_while_it_is_fetched_still_arrives(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    content = os.urandom(8 * 1024 * KIB)
    manifest = group.give_all(content, 4096 * KIB)
    holder = group.holders[0]
    inner = holder.service
    assert inner is not None

    async def on_ask_shards(message: AskShards, context: Context) -> AsyncIterator[Frame]:
        async for frame in inner.on_ask_shards(message, context):
            yield frame
            if frame.offset == 0 and holder.shelf.names():
                (group.folder / f"{holder.peer}.object").unlink()
                holder.shelf.remove(NAME)

    holder.handle(on_ask_shards)
    error = await error_of(get(group, into, expecting(manifest)))
    assert error.code is Code.SHC_NO_HOLDER, "a new request after the removal finds nothing"
    assert "1 of 2 shards" in error.sentence, "but the stream that ran was served to its end"
    group.give(holder, content, 4096 * KIB)
    await get(group, into, expecting(manifest))
    assert into.read_bytes() == content


# serving


async def test_a_server_serves_a_few_at_once_and_all_get_the_object(swarm: MakeSwarm, tmp_path: Path) -> None:
    group = await swarm(5)
    donor, clients = group.holders[0], [group.client, *group.holders[1:]]
    manifest = group.give(donor, CONTENT, 64 * KIB, max_clients=2)
    files = [tmp_path / f"copy{i}" for i in range(len(clients))]
    await asyncio.gather(
        *(
            fetch(c.endpoint, NAME, [donor.peer], f, expecting(manifest))
            for c, f in zip(clients, files, strict=True)
        )
    )
    assert all(f.read_bytes() == CONTENT for f in files)
    assert donor.service is not None and donor.service.gate.most == 2


@pytest.mark.failure_mode(17)
async def test_four_joiners_finish_from_others_when_a_donor_is_killed(
    swarm: MakeSwarm, tmp_path: Path
) -> None:
    group = await swarm(6)
    donors, joiners = group.holders[:3], [group.client, *group.holders[3:]]
    for node in donors:
        manifest = group.give(node, CONTENT, 32 * KIB, max_clients=2)
    killer: list[asyncio.Task[None]] = []

    def watch(progress: Progress) -> None:
        if progress.shards >= progress.of // 3 and not killer:
            killer.append(asyncio.ensure_future(donors[0].endpoint.stop(timedelta(0))))

    files = [tmp_path / f"copy{i}" for i in range(len(joiners))]
    names = [node.peer for node in donors]
    await asyncio.gather(
        *(
            fetch(j.endpoint, NAME, names, f, expecting(manifest), progress=watch)
            for j, f in zip(joiners, files, strict=True)
        )
    )
    await asyncio.gather(*killer)
    assert all(f.read_bytes() == CONTENT for f in files)
    assert all(node.service is not None and node.service.gate.most <= 2 for node in donors)


async def test_a_shelf_may_gain_objects_while_it_serves(swarm: MakeSwarm, into: Path) -> None:
    group = await swarm(1)
    group.give_all(CONTENT, 64 * KIB)
    path = group.folder / "later"
    path.write_bytes(b"later")
    later = build_manifest(path, "ckpt/9")
    group.holders[0].shelf.add(later, path)
    await fetch(group.client.endpoint, "ckpt/9", group.peers, into, expecting(later))
    assert into.read_bytes() == b"later"
    shelf = Shelf(group.folder / "mine")
    shelf.add(later, into)
    assert shelf.names() == ("ckpt/9",), "what was fetched can be served on"


# the client's own disk


async def test_a_directory_that_cannot_be_written_is_the_clients_own_error(
    swarm: MakeSwarm, tmp_path: Path
) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)
    (tmp_path / "file").write_bytes(b"")
    error = await error_of(get(group, tmp_path / "file" / "object", expecting(manifest)))
    assert error.code is Code.STO_UNWRITABLE


async def test_a_full_disk_ends_the_fetch_and_blames_nobody(
    swarm: MakeSwarm, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await swarm(1)
    manifest = group.give_all(CONTENT, 64 * KIB)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shardcast.partial.os.pwrite", full)
    error = await error_of(get(group, into, expecting(manifest)))
    assert error.code is Code.STO_FULL and not into.exists()
