"""An encoded stream: a whole file, as what changed against a parent or as byte planes, bit for bit.

All numbers are little-endian. ::

    8 bytes   "shcast", 0, 2
    8         bytes of the decoded file
    8         bytes of the parent, 0 without one
    32        digest of the parent, zeros without one
    4         segments
    17 each   8 length in the decoded file, 8 where it begins in the parent (2^64 - 1: nowhere), 1 width of an element
              the blocks
    32        digest of the decoded file

Segments follow one another without a hole and cover the decoded file. Each is cut into blocks of 2 MiB, the last one
shorter; a block is one byte of mode, four of payload length, and the payload (`shardcast.blocks`). A reader needs to
know nothing of safetensors: that tensors of one name are compared with one another is the writer's choice of segments.

Both directions hold one block at a time. No IO but through what they are given.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from shardcast import limits
from shardcast.blocks import (
    MAX_PAYLOAD,
    MODES,
    PLAIN,
    WIDTHS,
    Compressor,
    Sections,
    Words,
    bad,
    decode_block,
    encode_block,
)
from shardcast.digest import FileDigest
from shardcast.ranges import Ranges
from shardcast.tensors import TensorIndex, header_size, read_index

MAGIC = b"shcast\x00\x02"
_HEAD = struct.Struct("<8sQQ32sI")
_SEGMENT = struct.Struct("<QQB")
_BLOCK = struct.Struct("<BI")
_NOWHERE = (1 << 64) - 1
_DIGEST = 32


@dataclass(frozen=True, slots=True)
class Parent:
    """The file that a delta is made or read against.

    Attributes:
        digest: Its file digest.
        ranges: Its bytes.
    """

    digest: bytes
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of the decoded file: `length` bytes, elements of `width` bytes, compared from `parent` on if anywhere."""

    length: int
    width: int
    parent: int | None


def index_of(ranges: Ranges) -> TensorIndex:
    """The tensor index of a safetensors file.

    Raises:
        NodeError: SHC_TENSORS, when it is none; what its `read` raises.
    """
    size = ranges.size
    first = header_size(ranges.read(0, min(8, size)))
    return read_index(ranges.read(0, min(first, size)), size)


def encode(new: Ranges, parent: Parent | None = None) -> Iterator[bytes]:
    """Encode a safetensors file; the last 32 bytes are its digest.

    Reads `new` once, front to back, so it may still be growing; of `parent` what corresponds. Any thread, blocking.

    Raises:
        NodeError: SHC_TENSORS, when one of the two is no safetensors file: send it as it is.
    """
    segments = _segments(index_of(new), new.size, parent)
    digest, size = (parent.digest, parent.ranges.size) if parent is not None else (bytes(_DIGEST), 0)
    head = [_HEAD.pack(MAGIC, new.size, size, digest, len(segments))]
    head += [_SEGMENT.pack(s.length, _NOWHERE if s.parent is None else s.parent, s.width) for s in segments]
    yield b"".join(head)
    zstd, whole = Compressor(), FileDigest()
    for at, size, segment, start in _blocks(segments):
        data = new.read(at, size)
        whole.update(data)
        words = np.frombuffer(data, f"<u{segment.width}")
        mode, payload = encode_block(words, _parent_words(parent, segment, start, size), zstd)
        yield _BLOCK.pack(mode, len(payload)) + payload
    yield whole.digest()


def decode(
    read: Callable[[int], bytes], parent: Parent | None, size: int, digest: bytes | None = None
) -> Iterator[bytes]:
    """Decode a stream into the pieces of the file, front to back. Any thread, blocking.

    What is yielded is believed only when the iterator has ended: then the pieces together have the digest that the
    stream names, which is `digest` if that is given.

    Args:
        read: Up to so many next bytes of the stream, fewer only at its end.
        parent: What it is to be decoded against, if anything.
        size: Bytes that the decoded file has, as someone says who is believed.
        digest: Its digest, likewise.

    Raises:
        NodeError: SHC_ENCODING; what `read` and the parent's `read` raise.
    """
    segments = _read_head(read, parent, size)
    sections, whole = Sections(), FileDigest()
    for _, length, segment, start in _blocks(segments):
        mode, payload_size = _BLOCK.unpack(_exactly(read, _BLOCK.size))
        if mode >= MODES or payload_size > MAX_PAYLOAD:
            raise bad("a block has a mode or a length that there is not")
        payload = _exactly(read, payload_size)
        before = _parent_words(parent, segment, start, length) if mode != PLAIN else None
        words = decode_block(mode, payload, length // segment.width, segment.width, before, sections)
        piece = words.tobytes()
        whole.update(piece)
        yield piece
    named = _exactly(read, _DIGEST)
    if read(1):
        raise bad("something follows its end")
    if whole.digest() != named or digest not in (None, named):
        raise bad("the decoded file is not the one that was published")


def _segments(index: TensorIndex, size: int, parent: Parent | None) -> tuple[Segment, ...]:
    """The runs of a safetensors file, those of equal width merged where they follow one another in the parent, too."""
    first = index[0].start if index else size
    before = {}
    header: int | None = None
    if parent is not None:
        known = index_of(parent.ranges)
        before = {info.name: info for info in known}
        header = 0 if first == (known[0].start if known else parent.ranges.size) else None
    found = [Segment(first, 1, header)]
    for info in index:
        length = info.end - info.start
        old = before.get(info.name)
        same = old is not None and old.dtype == info.dtype and old.end - old.start == length
        segment = Segment(length, info.width, old.start if old is not None and same else None)
        last = found[-1]
        after = None if last.parent is None else last.parent + last.length
        if length and last.width == segment.width and after == segment.parent:
            found[-1] = Segment(last.length + length, last.width, last.parent)
        elif length:
            found.append(segment)
    return tuple(found)


def _blocks(segments: tuple[Segment, ...]) -> Iterator[tuple[int, int, Segment, int]]:
    """Each block: where in the file, its bytes, its segment, where in that."""
    at = 0
    for segment in segments:
        for start in range(0, segment.length, limits.BLOCK):
            size = min(limits.BLOCK, segment.length - start)
            yield at, size, segment, start
            at += size


def _parent_words(parent: Parent | None, segment: Segment, start: int, size: int) -> Words | None:
    if parent is None or segment.parent is None:
        return None
    return np.frombuffer(parent.ranges.read(segment.parent + start, size), f"<u{segment.width}")


def _read_head(read: Callable[[int], bytes], parent: Parent | None, size: int) -> tuple[Segment, ...]:
    magic, decoded, before, digest, count = _HEAD.unpack(_exactly(read, _HEAD.size))
    if magic != MAGIC:
        raise bad("it is none of this version")
    if decoded != size:
        raise bad(f"it decodes to {decoded} bytes instead of {size}")
    if (parent.digest if parent is not None else bytes(_DIGEST)) != digest:
        raise bad("it has another parent")
    if before != (parent.ranges.size if parent is not None else 0):
        raise bad("its parent has another size")
    if count > limits.MAX_SEGMENTS:
        raise bad(f"{count} segments are more than {limits.MAX_SEGMENTS}")
    segments, left = [], decoded
    for length, start, width in _SEGMENT.iter_unpack(_exactly(read, count * _SEGMENT.size)):
        there = start != _NOWHERE
        if width not in WIDTHS or length == 0 or length % width or length > left:
            raise bad("a segment has a length or a width that cannot be")
        if there and start + length > before:
            raise bad("a segment leaves its parent")
        segments.append(Segment(length, width, start if there else None))
        left -= length
    if left:
        raise bad("its segments are not the whole file")
    return tuple(segments)


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    data = read(size)
    while len(data) < size:
        more = read(size - len(data))
        if not more:
            raise bad("it ends too early")
        data += more
    return data
