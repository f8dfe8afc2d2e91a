"""One block of an encoded stream: up to 2 MiB of a file, made from nothing, or from as many bytes of its parent.

The bytes are seen as little-endian unsigned integers of one width. A block has the smallest of four modes; the payload
of each is *sections*, and a section is its length, its stored length (both 32 bits, little-endian) and the stored
bytes: themselves if both lengths are equal, else one zstd frame that names its content size. ::

    0 same     nothing: the parent's bytes
    1 sparse   gaps, then the planes of the differences of the elements that changed
    2 dense    the planes of the differences of all elements
    3 plain    the planes of the elements themselves, each rotated left by one bit where it is wider than a byte

A *difference* is new minus parent modulo the width, zigzag: 0, -1, 1, -2 … become 0, 1, 2, 3 …; floats that moved by
few units in the last place have small ones. *Planes*: the lowest byte of every element, then the next byte of every
element, and so on, a section each. The rotation brings a float's exponent into one byte. *Gaps*: before each changed
element as many unchanged ones as its byte says; a byte 255 stands for 255 unchanged ones and no change.

Pure; arrays in, bytes out, and back. What is decoded may come from anyone.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import zstandard

from protocol.errors import Code, NodeError
from shardcast import limits

Words = np.ndarray[tuple[int], np.dtype[Any]]
"""A block as unsigned integers of one width, flat."""

SAME, SPARSE, DENSE, PLAIN = range(4)
MODES = 4
WIDTHS = (1, 2, 4, 8)
"""Bytes of one element."""
MAX_PAYLOAD = 2 * limits.BLOCK + 4096
"""No payload is larger: sparse, with a gap and a difference for each of the bytes."""

_SPARSE_MOST = 2.5  # one changed element in so many: beyond that a byte for the gap costs more than it saves
_LENGTHS = 8
_WINDOW = 4 * limits.MIB


class Compressor:
    """zstd as this format uses it; one for each thread."""

    def __init__(self) -> None:
        # Planes of floats have the frequencies of their bytes to gain from and no repetitions. A search that hardly
        # finds any leaves them whole to zstd's entropy coder: smaller than at any level, and three times as fast.
        entropy = zstandard.ZstdCompressionParameters.from_level(1, min_match=7, hash_log=6)
        self._planes = zstandard.ZstdCompressor(compression_params=entropy)
        self._bytes = zstandard.ZstdCompressor(level=3)

    def section(self, data: bytes, *, plane: bool = True) -> bytes:
        """A section that holds `data`: a plane or gaps, or else bytes that may repeat themselves."""
        stored: bytes = (self._planes if plane else self._bytes).compress(data) if data else b""
        if len(stored) >= len(data):
            stored = data
        return b"%s%s%s" % (len(data).to_bytes(4, "little"), len(stored).to_bytes(4, "little"), stored)


class Sections:
    """Reads the sections of one payload; one decompressor for each thread."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_WINDOW)

    def read(self, payload: bytes, at: int, most: int) -> tuple[bytes, int]:
        """The section at `at` and where the next begins; refused if it holds more than `most` bytes."""
        size, stored = (int.from_bytes(payload[at + i : at + i + 4], "little") for i in (0, 4))
        end = at + _LENGTHS + stored
        if end > len(payload) or at + _LENGTHS > len(payload):
            raise bad("a section leaves its block")
        if size > most or stored > size:
            raise bad("a section is larger than its block allows")
        data = payload[at + _LENGTHS : end]
        if stored == size:
            return data, end
        try:
            if zstandard.frame_content_size(data) != size:
                raise bad("a section does not hold what it says")
            return self._zstd.decompress(data, allow_extra_data=False), end
        except zstandard.ZstdError as error:
            raise bad("a section cannot be decompressed") from error


def encode_block(new: Words, parent: Words | None, zstd: Compressor) -> tuple[int, bytes]:
    """The mode and payload of a block.

    Args:
        new: The elements, at most 2 MiB.
        parent: As many elements of the parent, if this block has any there.
        zstd: Compresses.
    """
    if parent is None:
        return PLAIN, _planes(_rotated(new), zstd)
    differs = new != parent
    changed = int(np.count_nonzero(differs))
    if not changed:
        return SAME, b""
    if changed * _SPARSE_MOST <= new.size:
        places = np.flatnonzero(differs)
        gaps = zstd.section(_gaps(places))
        return SPARSE, gaps + _planes(_zigzag(new[places], parent[places]), zstd)
    dense, plain = _planes(_zigzag(new, parent), zstd), _planes(_rotated(new), zstd)
    return (DENSE, dense) if len(dense) < len(plain) else (PLAIN, plain)


def decode_block(
    mode: int, payload: bytes, size: int, width: int, parent: Words | None, sections: Sections
) -> Words:
    """The elements of a block.

    Args:
        mode: As encoded.
        payload: As encoded.
        size: How many elements there are.
        width: Bytes of each.
        parent: As many elements of the parent, if the block has any there.
        sections: Decompresses.

    Raises:
        NodeError: SHC_ENCODING.
    """
    dtype = np.dtype(f"<u{width}")
    if mode == PLAIN:
        words = _merged(payload, 0, size, dtype, sections)
        return words if width == 1 else (words >> 1) | (words << (8 * width - 1))
    if parent is None:
        raise bad("a block needs a parent and has none")
    if mode == SAME:
        if payload:
            raise bad("a block that is the parent's has bytes of its own")
        return parent
    if mode == DENSE:
        return parent + _unzigzag(_merged(payload, 0, size, dtype, sections))
    if mode != SPARSE:
        raise bad(f"there is no mode {mode}")
    gaps, at = sections.read(payload, 0, size + size // 255 + 1)
    places = _places(np.frombuffer(gaps, np.uint8), size)
    words = parent.copy()
    words[places] += _unzigzag(_merged(payload, at, places.size, dtype, sections))
    return words


def bad(why: str) -> NodeError:
    """A refusal of an encoded stream."""
    return NodeError(Code.SHC_ENCODING, f"The encoded stream is not valid: {why}.")


def _rotated(words: Words) -> Words:
    bits = 8 * words.itemsize
    return words if bits == 8 else (words << 1) | (words >> (bits - 1))


def _zigzag(new: Words, parent: Words) -> Words:
    difference = new - parent
    return (difference << 1) ^ -(difference >> (8 * difference.itemsize - 1))


def _unzigzag(words: Words) -> Words:
    return (words >> 1) ^ -(words & 1)


def _planes(words: Words, zstd: Compressor) -> bytes:
    return b"".join(zstd.section(plane, plane=words.itemsize > 1) for plane in _split(words))


def _split(words: Words) -> Iterator[bytes]:
    for shift in range(0, 8 * words.itemsize, 8):
        yield (words >> shift).astype(np.uint8).tobytes()


def _merged(payload: bytes, at: int, size: int, dtype: "np.dtype[Any]", sections: Sections) -> Words:
    words: Words = np.zeros(size, dtype)
    for shift in range(0, 8 * dtype.itemsize, 8):
        plane, at = sections.read(payload, at, size)
        if len(plane) != size:
            raise bad("a plane has other elements than its block")
        words |= np.frombuffer(plane, np.uint8).astype(dtype) << shift
    if at != len(payload):
        raise bad("something follows the last section of a block")
    return words


def _gaps(places: "np.ndarray[Any, Any]") -> bytes:
    gaps = np.diff(places, prepend=-1) - 1
    full = gaps // 255
    ends = np.cumsum(full + 1)
    out = np.full(int(ends[-1]), 255, np.uint8)
    out[ends - 1] = gaps % 255
    return out.tobytes()


def _places(gaps: Words, size: int) -> "np.ndarray[Any, Any]":
    if not gaps.size or gaps[-1] == 255:
        raise bad("its gaps do not end with a change")
    ends = gaps != 255
    after = np.cumsum(gaps.astype(np.uint32) + ends, dtype=np.uint32)  # at most 255 * 2 MiB
    if after[-1] > size:
        raise bad("a change lies beyond its block")
    places: np.ndarray[Any, Any] = after[ends] - 1
    return places
