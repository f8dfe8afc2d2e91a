import io
import struct
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Code, NodeError
from shardcast import blocks, limits
from shardcast.blocks import DENSE, PLAIN, SAME, SPARSE
from shardcast.digest import file_digest
from shardcast.encoding import DELTA, PLANES, Held, decode_file, encode_file
from shardcast.ranges import Arrivals, FileRanges
from shardcast.stream import MAGIC, Parent, decode, encode
from tests.shardcast import plain_decoder
from tests.shardcast.weights import MemoryRanges, Weight, file_of, successors, weight_of, weights

HEAD, SEGMENT = struct.Struct("<8sQQ32sI"), struct.Struct("<QQB")
NOWHERE = 2**64 - 1


def parent_of(file: bytes | None) -> Parent | None:
    return None if file is None else Parent(file_digest(file), MemoryRanges(file))


def encoded(new: bytes, parent: bytes | None = None) -> bytes:
    return b"".join(encode(MemoryRanges(new), parent_of(parent)))


def decoded(stream: bytes, size: int, parent: bytes | None = None, digest: bytes | None = None) -> bytes:
    return b"".join(decode(io.BytesIO(stream).read, parent_of(parent), size, digest))


def floats(count: int, seed: int = 0) -> np.ndarray:
    """Bits of bf16 numbers as weights have them."""
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32) * 0.05
    return (values.view(np.uint32) >> 16).astype("<u2")


def moved(bits: np.ndarray, share: float, seed: int = 1) -> np.ndarray:
    """The same with a share of them one unit in the last place away."""
    chance = np.random.default_rng(seed)
    return (
        bits + np.where(chance.random(bits.size) < share, chance.choice([1, 65535], bits.size), 0)
    ).astype("<u2")


def bf16(bits: np.ndarray) -> bytes:
    return file_of([weight_of("w", "BF16", bits.tobytes())])


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from([8, 64, 200, limits.BLOCK]))
def test_any_file_comes_back_bit_for_bit_from_any_other(data: st.DataObject, block: int) -> None:
    before = data.draw(weights())
    after = data.draw(successors(before))
    old = file_of(before, data.draw(st.sampled_from([None, {"step": "1"}])))
    new = file_of(after, {"step": "2"}, pad=data.draw(st.integers(0, 9)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BLOCK", block)
        for parent in (old, None):
            stream = encoded(new, parent)
            assert decoded(stream, len(new), parent, file_digest(new)) == new
            assert stream[-32:] == file_digest(new)
            assert plain_decoder.decode(stream, parent or b"", block) == new


@pytest.mark.parametrize(
    ("share", "mode"), [(0.0, SAME), (0.01, SPARSE), (0.2, SPARSE), (0.7, DENSE), (None, PLAIN)]
)
def test_a_block_is_written_in_the_mode_that_is_smallest(share: float | None, mode: int) -> None:
    old = floats(100_000)
    new = floats(100_000, seed=9) if share is None else moved(old, share)
    zstd = blocks.Compressor()
    found, payload = blocks.encode_block(new, old, zstd)
    assert found == mode
    assert len(payload) <= len(blocks.encode_block(new, None, zstd)[1])
    again = blocks.decode_block(found, payload, new.size, 2, old, blocks.Sections())
    assert (again == new).all()


def test_trained_like_weights_shrink_and_small_steps_nearly_vanish() -> None:
    old = floats(1_000_000)
    whole = len(bf16(old))
    assert len(encoded(bf16(old))) < 0.72 * whole
    assert len(encoded(bf16(moved(old, 0.01)), bf16(old))) < 0.01 * whole
    assert len(encoded(bf16(old), bf16(old))) < 200


def test_what_is_kept_under_its_name_is_compared_wherever_it_moved() -> None:
    kept = weight_of("kept", "BF16", floats(50_000).tobytes())
    new = file_of(
        [weight_of("first", "U8", b"123"), kept, weight_of("last", "F32", bytes(400))], {"a": "b" * 99}
    )
    stream = encoded(new, file_of([kept]))
    assert len(stream) < 1000
    assert decoded(stream, len(new), file_of([kept])) == new


def test_neighbours_of_one_width_are_one_segment() -> None:
    many = [Weight(f"layer.{i}", "BF16", (3, 5), bytes(30)) for i in range(40)]
    stream = encoded(file_of(many), file_of(many))
    assert HEAD.unpack_from(stream)[4] == 2  # the header, and all tensors


def test_a_stream_of_version_two_stays_readable() -> None:
    stream = bytes.fromhex(GOLDEN)
    assert decoded(stream, len(GOLDEN_FILE), GOLDEN_PARENT) == GOLDEN_FILE
    assert encoded(GOLDEN_FILE, GOLDEN_PARENT) == stream


def test_a_stream_of_version_one_is_refused() -> None:
    stream = bytes.fromhex(GOLDEN).replace(b"shcast\0\2", b"shcast\0\1")
    with pytest.raises(NodeError, match="none of this version"):
        decoded(stream, len(GOLDEN_FILE), GOLDEN_PARENT)


GOLDEN_PARENT = file_of([Weight("w", "BF16", (2, 4), bytes(range(16)))])
GOLDEN_FILE = file_of([Weight("w", "BF16", (2, 4), bytes([*range(6), 7, *range(7, 16)]))])
GOLDEN = (
    "73686361737400025a000000000000005a00000000000000aa0cee09bb9d57a03b23154ea13c4e1b8c90da0583ba25a3ca9d"
    "4a3959ccd8a2020000004a0000000000000000000000000000000110000000000000004a0000000000000002000000000001"
    "1b000000010000000100000003010000000100000002010000000100000000f963ac768e6744f7e82663792e03022eb5348e"
    "ee2df6f3ba3cdf94419cbe9537"
)


def test_what_is_no_safetensors_file_is_not_encoded() -> None:
    good = file_of([])
    for new, parent in ((b"text", None), (b"", None), (good + b"x", None), (good, b"x" * 100)):
        with pytest.raises(NodeError) as caught:
            encoded(new, parent)
        assert caught.value.code is Code.SHC_TENSORS


# what anybody may have written


def refused(stream: bytes, size: int, parent: bytes | None = None, digest: bytes | None = None) -> str:
    with pytest.raises(NodeError) as caught:
        decoded(stream, size, parent, digest)
    assert caught.value.code is Code.SHC_ENCODING
    return caught.value.sentence


def section(data: bytes, size: int | None = None) -> bytes:
    return struct.pack("<II", len(data) if size is None else size, len(data)) + data


def stream_of(
    mode: int,
    payload: bytes,
    *,
    size: int = 16,
    width: int = 2,
    parent: bytes = bytes(16),
    start: int = 0,
    length: int | None = None,
) -> bytes:
    """A stream of one block."""
    head = HEAD.pack(MAGIC, size, len(parent), file_digest(parent), 1) + SEGMENT.pack(size, start, width)
    block = struct.pack("<BI", mode, len(payload) if length is None else length) + payload
    return head + block + file_digest(bytes(16))


ZEROS = bytes(16)


def test_the_stream_that_the_next_tests_spoil_is_right() -> None:
    assert decoded(stream_of(SAME, b""), 16, ZEROS) == ZEROS
    assert decoded(stream_of(SPARSE, section(b"\0") + section(b"\0") * 2), 16, ZEROS) == ZEROS


@pytest.mark.parametrize(
    ("mode", "payload", "why"),
    [
        (SPARSE, section(b"\x08") + section(b"\0") * 2, "beyond its block"),
        (SPARSE, section(b"\0" * 9) + section(b"\0" * 9) * 2, "beyond its block"),
        (SPARSE, section(b"\0" * 10) + section(b"\0" * 10) * 2, "allows"),
        (SPARSE, section(b"\x04\x04") + section(b"\0" * 2) * 2, "beyond its block"),
        (SPARSE, section(b"\xff"), "do not end"),
        (SPARSE, section(b""), "do not end"),
        (SPARSE, section(b"\0") + section(b"\0"), "leaves its block"),
        (SPARSE, section(b"\0\0") + section(b"\0") * 2, "other elements"),
        (SPARSE, section(b"\0") + section(b"\0") * 3, "something follows"),
        (DENSE, section(bytes(8)), "leaves its block"),
        (DENSE, section(bytes(7)) * 2, "other elements"),
        (DENSE, section(bytes(9)) * 2, "allows"),
        (PLAIN, section(bytes(8)) * 2 + b"x", "something follows"),
        (PLAIN, section(bytes(8), 7) * 2, "allows"),
        (PLAIN, struct.pack("<II", 8, 2**32 - 1) + bytes(8), "leaves its block"),
        (PLAIN, section(b"garbage", 8) * 2, "decompress"),
        (PLAIN, section(b"\x28\xb5\x2f\xfd", 8) * 2, "decompress"),
        (SAME, b"x", "bytes of its own"),
        (4, b"", "there is not"),
        (255, b"", "there is not"),
        (PLAIN, b"", "leaves its block"),
        (PLAIN, b"\x08\0\0\0", "leaves its block"),
    ],
)  # fmt: skip
def test_a_block_that_breaks_a_rule_is_refused(mode: int, payload: bytes, why: str) -> None:
    assert why in refused(stream_of(mode, payload), 16, ZEROS)


def test_a_bomb_is_refused_before_it_bursts() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    nameless = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    size = 1 << 16
    tracemalloc.start()
    try:
        for frame, says, why in (
            (bomb, 1 << 28, "allows"),
            (bomb, size // 2, "does not hold"),
            (nameless, size // 2, "does not hold"),
        ):
            stream = stream_of(PLAIN, section(frame, says) * 2, size=size, start=NOWHERE)
            assert why in refused(stream, size, ZEROS)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_that_says_less_than_it_holds_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor(level=1).compress(bytes(400)))
    at = bytes(frame).index(struct.pack("<H", 400 - 256))
    frame[at : at + 2] = struct.pack("<H", 300 - 256)
    payload = section(bytes(frame), 300) * 2
    stream = stream_of(PLAIN, payload, size=600, start=NOWHERE)
    assert "decompress" in refused(stream, 600, ZEROS)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (stream_of(SAME, b"", width=3), "width"),
        (stream_of(SAME, b"", width=0), "width"),
        (stream_of(SAME, b"", width=8, size=12), "instead of"),
        (stream_of(SAME, b"", start=1), "leaves its parent"),
        (stream_of(SAME, b"", start=2**63), "leaves its parent"),
        (stream_of(SAME, b"", start=NOWHERE), "has none"),
        (stream_of(SAME, b"", size=2**40), "instead of"),
        (stream_of(PLAIN, b"", length=blocks.MAX_PAYLOAD + 1), "length"),
        (stream_of(PLAIN, b"", length=2**32 - 1), "length"),
        (stream_of(PLAIN, b"", length=blocks.MAX_PAYLOAD), "too early"),
        (stream_of(SAME, b"", parent=b"other" * 4), "another parent"),
        (stream_of(SAME, b"") + b"x", "something follows"),
        (stream_of(SAME, b"")[:-1], "too early"),
        (stream_of(SAME, b"")[:-32] + bytes(32), "not the one"),
        (stream_of(SAME, b"")[:-40], "too early"),
        (b"", "too early"),
        (b"garbage" * 20, "of this version"),
        (HEAD.pack(MAGIC, 16, 16, file_digest(ZEROS), 2**32 - 1), "segments"),
        (HEAD.pack(MAGIC, 16, 16, file_digest(ZEROS), limits.MAX_SEGMENTS), "too early"),
        (HEAD.pack(MAGIC, 16, 16, file_digest(ZEROS), 0), "whole file"),
        (HEAD.pack(MAGIC, 16, 16, file_digest(ZEROS), 1) + SEGMENT.pack(18, 0, 2), "length"),
        (HEAD.pack(MAGIC, 16, 16, file_digest(ZEROS), 1) + SEGMENT.pack(0, 0, 2), "length"),
        (HEAD.pack(MAGIC, 16, 16, file_digest(ZEROS), 1) + SEGMENT.pack(15, 0, 2), "length"),
        (HEAD.pack(MAGIC, 16, 16, file_digest(ZEROS), 2) + SEGMENT.pack(8, 0, 2) * 2, "too early"),
        (HEAD.pack(MAGIC, 16, 99, file_digest(ZEROS), 1), "another size"),
    ],
)  # fmt: skip
def test_a_stream_that_breaks_a_rule_is_refused(stream: bytes, why: str) -> None:
    assert why in refused(stream, 16, ZEROS)


def test_a_delta_without_its_parent_or_with_another_one_is_refused() -> None:
    old, new = bf16(floats(1000)), bf16(moved(floats(1000), 0.1))
    stream = encoded(new, old)
    assert "another parent" in refused(stream, len(new))
    assert "another parent" in refused(stream, len(new), new)
    assert "not the one" in refused(stream, len(new), old, digest=bytes(32))


def test_a_damaged_parent_makes_no_wrong_file() -> None:
    old, new = bf16(floats(1000)), bf16(moved(floats(1000), 0.1))
    damaged = Parent(file_digest(old), MemoryRanges(old[:-2] + b"zz"))
    with pytest.raises(NodeError) as caught:
        list(decode(io.BytesIO(encoded(new, old)).read, damaged, len(new)))
    assert caught.value.code is Code.SHC_ENCODING


@settings(deadline=None)
@given(st.data())
def test_no_changed_byte_makes_another_file(data: st.DataObject) -> None:
    old, new = bf16(floats(200)), bf16(moved(floats(200), 0.1))
    stream = bytearray(encoded(new, old))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))
    try:
        assert decoded(bytes(stream), len(new), old, file_digest(new)) == new
    except NodeError as error:
        assert error.code is Code.SHC_ENCODING


# files


class _Endless:
    """A safetensors file of one large tensor, made as it is read."""

    def __init__(self, size: int) -> None:
        self._head = file_of([Weight("w", "BF16", (size // 2,), b"")]).replace(b"[0, 0]", b"[0, %d]" % size)
        self._head = struct.pack("<Q", len(self._head) - 8) + self._head[8:]
        self.size = len(self._head) + size
        self._bits = floats(limits.BLOCK).tobytes()

    def read(self, offset: int, length: int) -> bytes:
        if offset < len(self._head):
            return self._head[offset : offset + length]
        return self._bits[offset % 997 * 2 :][:length]


def test_memory_does_not_grow_with_the_file() -> None:
    file = _Endless(128 << 20)
    parent = Parent(bytes(32)[:-1] + b"p", file)
    tracemalloc.start()
    try:
        for before in (parent, None):
            pieces = encode(file, before)
            rest = b""

            def read(most: int, pieces: object = pieces) -> bytes:
                nonlocal rest
                rest = rest or next(pieces, b"")  # type: ignore[call-overload]
                given, rest = rest[:most], rest[most:]
                return given

            assert sum(map(len, decode(read, before, file.size))) == file.size
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


def test_a_file_is_encoded_while_it_is_written(tmp_path: Path) -> None:
    new = bf16(floats(3 * limits.BLOCK))
    half = len(new) // 2
    path = tmp_path / "growing"
    path.write_bytes(new[:half])
    arrivals = Arrivals()
    arrivals.add(0, half)
    began = threading.Event()
    pieces: list[bytes] = []

    def publish() -> None:
        with FileRanges(path, arrivals, len(new)) as ranges:
            for piece in encode(ranges):
                pieces.append(piece)
                if len(pieces) == 3:
                    began.set()

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    assert began.wait(60), "it waits for the end of the file"
    with open(path, "ab") as file:
        file.write(new[half:])
    arrivals.add(half, len(new))
    thread.join(60)
    assert decoded(b"".join(pieces), len(new)) == new


def test_files_are_encoded_and_decoded_and_appear_whole(tmp_path: Path) -> None:
    old, new = bf16(floats(5000)), bf16(moved(floats(5000), 0.05))
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(new)
    held = Held(tmp_path / "old", file_digest(old))
    for parent, encoding in ((held, DELTA), (None, PLANES)):
        with FileRanges(tmp_path / "new") as ranges:
            made = encode_file(ranges, tmp_path / "stream", parent_of(old if parent else None))
        assert (made.encoding, made.size, made.digest) == (encoding, len(new), file_digest(new))
        assert made.parent == (parent.digest if parent is not None else None)
        with FileRanges(tmp_path / "stream") as ranges:
            decode_file(ranges, tmp_path / "again", made, parent)
        assert (tmp_path / "again").read_bytes() == new
    with FileRanges(tmp_path / "stream") as ranges, pytest.raises(NodeError):
        decode_file(ranges, tmp_path / "other", type(made)(PLANES, len(new), bytes(32)))
    with FileRanges(tmp_path / "stream") as ranges, pytest.raises(NodeError, match="not there"):
        decode_file(ranges, tmp_path / "other", type(made)(DELTA, len(new), made.digest, held.digest))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "new", "old", "stream"]


def test_the_failure_of_what_arrives_ends_the_decoding(tmp_path: Path) -> None:
    new = bf16(floats(5000))
    (tmp_path / "stream").write_bytes(encoded(new))
    arrivals = Arrivals()
    arrivals.add(0, 100)
    arrivals.fail(NodeError(Code.SHC_NO_HOLDER, "Nobody has it."))
    with FileRanges(tmp_path / "stream", arrivals) as ranges, pytest.raises(NodeError) as caught:
        from shardcast.header import Decoded

        decode_file(ranges, tmp_path / "again", Decoded(PLANES, len(new), file_digest(new)))
    assert caught.value.code is Code.SHC_NO_HOLDER and not (tmp_path / "again").exists()
