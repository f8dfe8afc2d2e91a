"""A manifest that grows: what may be believed of it at each moment."""

import itertools

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Code, NodeError
from protocol.identity import Identity
from shardcast import limits
from shardcast.digest import file_digest
from shardcast.growth import GrowingManifest
from shardcast.header import Header
from shardcast.manifest import Manifest

AUTHOR = Identity.ephemeral(b"author".ljust(32))
STRANGER = Identity.ephemeral(b"stranger".ljust(32))


def grown(shards: int, every: int = 1, *, close: bool = True) -> GrowingManifest:
    header = Header("policy", "8", shards, 1, author=AUTHOR.peer_id, serial=7)
    growing = GrowingManifest.begin(header, AUTHOR)
    for index in range(shards):
        growing.append(1, blake3(bytes([index])).digest())
        if (index + 1) % every == 0:
            growing.sign(AUTHOR)
    if close:
        growing.close(file_digest(bytes(range(shards))), AUTHOR)
    return growing


@given(st.lists(st.integers(0, 2000), max_size=8))
@settings(max_examples=50, deadline=None)
def test_it_may_come_in_any_pieces(cuts: list[int]) -> None:
    text = bytes(grown(5, 2).text)
    reader = GrowingManifest()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in itertools.pairwise(edges):
        reader.feed(text[start:end])
        assert reader.sure <= len(reader.text) <= end
    assert reader.closed and reader.count == 5
    assert reader.manifest() == Manifest.parse(text)


def test_only_what_is_signed_is_believed() -> None:
    lines = bytes(grown(4, 2).text).splitlines(keepends=True)
    reader = GrowingManifest()
    seen = []
    for line in lines:
        reader.feed(line)
        seen.append((reader.count, reader.closed, reader.header is not None))
    assert seen == [
        (0, False, False), (0, False, True), (0, False, True), (0, False, True), (2, False, True),
        (2, False, True), (2, False, True), (4, False, True), (4, False, True), (4, True, True),
    ]  # fmt: skip


def test_the_signature_of_someone_else_makes_nothing_believable() -> None:
    header = Header("policy", "8", 1, 1, author=AUTHOR.peer_id)
    forged = GrowingManifest.begin(header, STRANGER)
    reader = GrowingManifest()
    reader.feed(bytes(forged.text))
    assert reader.header is None and reader.sure == 0 and not reader.ends_well


def test_a_signature_over_less_than_stands_before_it_makes_nothing_believable() -> None:
    lines = bytes(grown(2, 1, close=False).text).splitlines(keepends=True)
    reader = GrowingManifest()
    reader.feed(b"".join([lines[0], lines[2], lines[1]]))  # the header's signature behind the first shard
    assert reader.count == 0 and reader.header is None


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_forged_signature_of_the_author_is_refused(number: int) -> None:
    lines = bytes(grown(2).text).splitlines(keepends=True)
    assert b'"signature":"' in lines[number]
    lines[number] = lines[number].replace(b'"signature":"', b'"signature":"00')
    with pytest.raises(NodeError) as error:
        GrowingManifest().feed(b"".join(lines))
    assert error.value.code is Code.SHC_MANIFEST


def test_who_expects_a_digest_believes_at_the_close_and_nothing_before() -> None:
    whole = grown(3)
    lines = bytes(whole.text).splitlines(keepends=True)
    reader = GrowingManifest(whole.digest)
    reader.feed(b"".join(lines[:-2]))
    assert reader.header is None and reader.count == 0 and reader.ends_well
    reader.feed(b"".join(lines[-2:]))
    assert reader.closed and reader.count == 3 and reader.ends_well
    other = GrowingManifest(bytes(32))
    other.feed(bytes(whole.text))
    assert not other.closed and not other.ends_well


def test_what_is_doubtful_is_forgotten_before_someone_else_goes_on() -> None:
    lines = bytes(grown(3).text).splitlines(keepends=True)
    reader = GrowingManifest()
    reader.feed(b"".join(lines[:4]) + lines[4] + b'{"half of')
    assert not reader.ends_well
    reader.forget_doubtful()
    assert bytes(reader.text) == b"".join(lines[:4]) and reader.ends_well
    reader.feed(b"".join(lines[4:]))
    assert reader.closed


@pytest.mark.parametrize("data", [b"x" * (limits.MAX_HEADER_LINE + 1), b"{}\n", b"[" * 9000 + b"\n", b"\n"])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(NodeError) as error:
        GrowingManifest().feed(data)
    assert error.value.code is Code.SHC_MANIFEST


def test_a_line_without_end_is_refused() -> None:
    reader = GrowingManifest()
    reader.feed(bytes(grown(1, close=False).text))
    with pytest.raises(NodeError):
        reader.feed(b"x" * (limits.MAX_LINE + 1))
