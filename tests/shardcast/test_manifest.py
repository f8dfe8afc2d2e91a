import json
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Code, NodeError
from protocol.identity import Identity, verify
from shardcast import limits
from shardcast.building import build_manifest
from shardcast.digest import file_digest
from shardcast.header import Decoded, Header
from shardcast.manifest import Manifest, ManifestWriter
from shardcast.names import check_name
from shardcast.tensors import TensorInfo

CONTENT = bytes(range(256)) * 40


def refused(raw: bytes, **options: bool) -> str:
    with pytest.raises(NodeError) as caught:
        Manifest.parse(raw, **options)
    assert caught.value.code in (Code.SHC_MANIFEST, Code.SHC_NAME)
    return caught.value.sentence


def lines_of(manifest: Manifest) -> list[bytes]:
    return manifest.raw.splitlines(keepends=True)


def test_equal_files_have_equal_manifests_wherever_they_lie(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(CONTENT)
    two.write_bytes(CONTENT)
    made = build_manifest(one, "ckpt/8", 1000)
    assert made.raw == build_manifest(two, "ckpt/8", 1000).raw == build_manifest(CONTENT, "ckpt/8", 1000).raw
    assert made.digest == build_manifest(two, "ckpt/8", 1000).digest


def test_a_manifest_says_of_each_shard_where_it_lies_and_what_it_hashes_to() -> None:
    manifest = build_manifest(CONTENT, "a", 3000)
    assert [(s.index, s.offset, s.size) for s in manifest.shards] == [
        (0, 0, 3000), (1, 3000, 3000), (2, 6000, 3000), (3, 9000, 1240)
    ]  # fmt: skip
    assert all(s.digest == blake3(CONTENT[s.offset : s.offset + s.size]).digest() for s in manifest.shards)
    assert manifest.result_digest == file_digest(CONTENT)


def test_a_manifest_read_back_is_the_one_that_was_written() -> None:
    manifest = build_manifest(CONTENT, "a/b-c_d.e", 999, version="r12")
    assert Manifest.parse(manifest.raw) == manifest


def test_shards_may_have_the_sizes_that_their_publisher_names() -> None:
    manifest = build_manifest(CONTENT, "a", [1, 10_000, 239])
    assert [s.size for s in manifest.shards] == [1, 10_000, 239]
    assert manifest.header.shard_size == 10_000


@pytest.mark.parametrize("sizes", [[1, 2], [10_241], [0, 10_240], [-1, 10_241], 0, -5])
def test_sizes_that_do_not_make_the_object_are_refused(sizes: object) -> None:
    with pytest.raises(NodeError) as caught:
        build_manifest(CONTENT, "a", sizes)  # type: ignore[arg-type]
    assert caught.value.code is Code.SHC_MANIFEST


def test_an_empty_object_has_a_manifest_without_shards() -> None:
    manifest = build_manifest(b"", "empty")
    assert manifest.shards == () and manifest.closed
    assert Manifest.parse(manifest.raw) == manifest


def test_the_digest_depends_on_name_version_sizes_and_every_byte() -> None:
    changed = bytearray(CONTENT)
    changed[5000] ^= 1
    digests = {
        build_manifest(CONTENT, "a", 1000).digest,
        build_manifest(CONTENT, "b", 1000).digest,
        build_manifest(CONTENT, "a", 1001).digest,
        build_manifest(CONTENT, "a", 1000, version="2").digest,
        build_manifest(bytes(changed), "a", 1000).digest,
    }
    assert len(digests) == 5


def test_the_digest_can_be_computed_from_the_documented_rule_alone() -> None:
    manifest = build_manifest(CONTENT, "a", 1000)
    link = blake3(b"shardcast manifest 2").digest()
    for line in manifest.raw.split(b"\n")[:-1]:
        link = blake3(link + line).digest()
    assert link == manifest.digest


def test_a_hundred_thousand_and_one_shards_are_a_manifest() -> None:
    manifest = build_manifest(bytes(100_001), "many", 1)
    again = Manifest.parse(manifest.raw)
    assert len(again.shards) == 100_001 and again.digest == manifest.digest


@pytest.mark.failure_mode(44)
def test_what_is_not_closed_is_not_loaded() -> None:
    lines = lines_of(build_manifest(CONTENT, "a", 1000))
    assert "not closed" in refused(b"".join(lines[:-1]))
    grown = Manifest.parse(b"".join(lines[:-1]), closed=False)
    assert not grown.closed and len(grown.shards) == 11


def test_a_manifest_grows_by_appending_and_signing_changes_no_digest() -> None:
    publisher = Identity.ephemeral(b"p" * 32)
    writer = ManifestWriter(Header("a", "1", 6, 4))
    begun = writer.manifest().signed(publisher)
    writer.append(4, blake3(b"abcd").digest())
    writer.append(2, blake3(b"ef").digest())
    assert not begun.signed_by(publisher.peer_id, verify), "a signed header is not a signed manifest"
    writer.close(file_digest(b"abcdef"))
    whole = writer.manifest()
    lines, head = lines_of(whole), lines_of(begun)
    streamed = Manifest.parse(b"".join([*head, *lines[1:]])).signed(publisher)
    assert whole.raw == build_manifest(b"abcdef", "a", 4).raw
    assert streamed.digest == whole.digest
    assert streamed.signed_by(publisher.peer_id, verify) and len(streamed.signatures) == 2
    assert not whole.signed_by(publisher.peer_id, verify)


def test_a_signature_holds_for_no_other_manifest_and_no_other_peer() -> None:
    publisher, other = Identity.ephemeral(b"p" * 32), Identity.ephemeral(b"o" * 32)
    signed = build_manifest(b"old", "a").signed(publisher)
    forged = Manifest.parse(build_manifest(b"new", "a").raw + lines_of(signed)[-1])
    assert signed.signed_by(publisher.peer_id, verify)
    assert not signed.signed_by(other.peer_id, verify)
    assert not forged.signed_by(publisher.peer_id, verify)


def test_keys_that_a_later_version_adds_are_kept_and_hashed() -> None:
    lines = lines_of(build_manifest(b"abcdef", "a", 4))
    header = json.loads(lines[0]) | {"author": "0"}
    shard = json.loads(lines[1]) | {"encoding": "zstd"}
    raw = [json.dumps(x, sort_keys=True, separators=(",", ":")).encode() + b"\n" for x in (header, shard)]
    later = Manifest.parse(b"".join(raw + lines[2:]))
    assert later.raw.startswith(raw[0]) and later.digest != build_manifest(b"abcdef", "a", 4).digest


ENCODED = build_manifest(
    CONTENT,
    "a",
    1000,
    decoded=Decoded("delta", 50_000, b"r" * 32, b"p" * 32),
    tensors=(TensorInfo("w", "BF16", (5, 10), 49_900, 50_000),),
)


def test_a_manifest_says_what_encoded_content_decodes_to_and_what_that_takes() -> None:
    again = Manifest.parse(ENCODED.raw)
    assert again == ENCODED
    assert (again.header.result_size, again.header.parent, again.result_digest) == (
        50_000,
        b"p" * 32,
        b"r" * 32,
    )
    assert again.header.tensors == (TensorInfo("w", "BF16", (5, 10), 49_900, 50_000),)
    plain = build_manifest(CONTENT, "a")
    assert (plain.header.result_size, plain.result_digest) == (plain.size, file_digest(CONTENT))


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        (0, b'"encoding":"delta"', b'"encoding":7'),
        (0, b'"result_size":50000', b'"result_size":-1'),
        (0, b'"result_size":50000', b'"result_size":1.5'),
        (0, b'"result_size":50000,', b""),
        (0, b'"parent":"70', b'"parent":"7'),
        (0, b"[5,10]", b"[5,11]"),
        (0, b"49900", b"49902"),
        (0, b'"BF16"', b'"X"'),
        (12, b'"result":"', b'"result":"0'),
        (12, b'"result":', b'"restul":'),
    ],
)
def test_a_line_about_what_is_encoded_that_breaks_a_rule_is_refused(
    line: int, old: bytes, new: bytes
) -> None:
    lines = lines_of(ENCODED)
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new)
    refused(b"".join(lines))


def test_raw_content_has_no_parent_and_decodes_to_itself() -> None:
    with pytest.raises(NodeError):
        ManifestWriter(Header("a", "1", 4, 4, parent=b"p" * 32))
    writer = ManifestWriter(Header("a", "1", 0, 0))
    with pytest.raises(NodeError):
        writer.close(b"r" * 32)


def test_a_close_that_names_another_file_than_the_shards_are_is_refused() -> None:
    lines = lines_of(build_manifest(CONTENT, "a"))
    assert file_digest(CONTENT).hex().encode() in lines[-1]
    forged = lines[-1].replace(file_digest(CONTENT).hex().encode(), b"0" * 64)
    assert "another digest" in refused(b"".join([*lines[:-1], forged]))
    writer = ManifestWriter(Header("a", "1", len(CONTENT), len(CONTENT)))
    writer.append(len(CONTENT), blake3(CONTENT).digest())
    writer.close()
    assert writer.manifest().result_digest == file_digest(CONTENT), "the shards say it"


def test_a_close_has_to_name_the_file_where_its_shards_are_not_its_pieces() -> None:
    writer = ManifestWriter(Header("a", "1", 2, 1))
    for byte in b"ab":
        writer.append(1, blake3(bytes([byte])).digest())
    with pytest.raises(NodeError):
        writer.close()
    writer.close(file_digest(b"ab"))


GOLDEN_DIGEST = "de450b17d13a9317b0d0cda1dd016dd336a1e248df91253035e683194c45ed9f"


def test_a_manifest_of_version_two_stays_what_it_is() -> None:
    manifest = build_manifest(CONTENT, "policy", 4000, version="8")
    assert manifest.digest.hex() == GOLDEN_DIGEST


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        (0, b'"schema":2', b'"schema":1'),
        (0, b'"schema":2', b'"schema":true'),
        (0, b'"size":10240', b'"size":10241'),
        (0, b'"size":10240', b'"size":1e4'),
        (0, b'"size":10240', b'"size": 10240'),
        (0, b'"size":10240', b'"size":10240,"size":10240'),
        (0, b'"size":10240', b'"size":-1'),
        (0, b'"size":10240', b'"size":99999999999999999999'),
        (0, b'"shard_size":1000', b'"shard_size":999'),
        (0, b'"shard_size":1000', b'"shard_size":99999999'),
        (0, b'"name":"a"', b'"name":"../a"'),
        (0, b'"version":"1"', b'"version":"../1"'),
        (0, b'"record":"header"', b'"record":"shard"'),
        (1, b'"index":0', b'"index":1'),
        (1, b'"index":0', b'"index":00'),
        (1, b'"size":1000', b'"size":1001'),
        (1, b'"size":1000', b'"size":0'),
        (1, b'{"blake3":"', b'{"blake3":"A'),
        (2, b'"record":"shard"', b'"record":"other"'),
        (12, b'"shards":11', b'"shards":10'),
    ],
)
def test_a_line_that_breaks_a_rule_is_refused(line: int, old: bytes, new: bytes) -> None:
    lines = lines_of(build_manifest(CONTENT, "a", 1000))
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new)
    refused(b"".join(lines))


def test_a_line_doubled_left_out_or_behind_the_close_is_refused() -> None:
    lines = lines_of(build_manifest(CONTENT, "a", 1000))
    refused(b"".join(lines[:3] + lines[2:]))
    refused(b"".join(lines[:3] + lines[4:]))
    refused(b"".join([*lines, lines[3]]))
    refused(b"".join([*lines, lines[-1]]))
    refused(b"".join(lines)[:-1])
    refused(b"")


def test_a_line_longer_than_allowed_is_refused_unread() -> None:
    lines = lines_of(build_manifest(CONTENT, "a", 1000))
    assert "too long" in refused(lines[0] + b"[" * (limits.MAX_LINE + 1) + b"\n")
    refused(lines[0] + b"[" * limits.MAX_LINE + b"\n")  # nested deeper than a parser likes


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_bytes_that_are_no_manifest_are_refused_in_words(junk: bytes) -> None:
    refused(junk)


@settings(deadline=None)
@given(st.data())
def test_no_single_changed_byte_leaves_the_digest_as_it_was(data: st.DataObject) -> None:
    manifest = build_manifest(CONTENT, "a", 2000)
    raw = bytearray(manifest.raw)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert Manifest.parse(bytes(raw)).digest != manifest.digest
    except NodeError as error:
        assert error.code in (Code.SHC_MANIFEST, Code.SHC_NAME)


@pytest.mark.parametrize("name", ["a", "ckpt/8", "run-1/state_0.safetensors", "0", "a" * 128])
def test_ordinary_names_are_allowed(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "../x", "/etc/passwd", "a/../b", "a/..", "a//b", "a/", ".hidden", "a/.b", "A", "a b", "a\n", "a\0b", "a\\b",
     "ä", "a..b", "-a", "~a", "c:a", "a" * 129, b"a", None, 7],
)  # fmt: skip
def test_names_that_could_be_a_path_or_an_option_are_refused(name: object) -> None:
    with pytest.raises(NodeError) as caught:
        check_name(name)
    assert caught.value.code is Code.SHC_NAME
