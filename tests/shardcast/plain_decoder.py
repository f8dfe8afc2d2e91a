"""A decoder of encoded streams written from docs/shardcast.md: plain Python, nothing of this project."""

import struct

import zstandard
from blake3 import blake3

BLOCK = 2 * 1024 * 1024


def file_digest(file: bytes) -> bytes:
    """Of a file in pieces of 8 MiB."""
    pieces = [blake3(file[at : at + 2**23]).digest() for at in range(0, len(file), 2**23)]
    start = blake3(b"shardcast file 1").digest() + struct.pack("<Q", len(file))
    return blake3(start + b"".join(pieces)).digest()


def decode(stream: bytes, parent: bytes = b"", block: int = BLOCK) -> bytes:
    """The file that a stream stands for."""
    magic, size, parent_size, parent_digest, count = struct.unpack_from("<8sQQ32sI", stream)
    assert magic == b"shcast\x00\x02" and parent_size == len(parent)
    assert parent_digest == (file_digest(parent) if parent else bytes(32))
    at, segments, out = 60, [], bytearray()
    for _ in range(count):
        segments.append(struct.unpack_from("<QQB", stream, at))
        at += 17
    for length, begin, width in segments:
        for start in range(0, length, block):
            here = min(block, length - start)
            mode, payload = struct.unpack_from("<BI", stream, at)
            at += 5
            before = parent[begin + start : begin + start + here] if begin != 2**64 - 1 else b""
            out += _block(mode, stream[at : at + payload], here, width, before)
            at += payload
    assert stream[at:] == file_digest(out) and len(out) == size
    return bytes(out)


def _block(mode: int, payload: bytes, size: int, width: int, before: bytes) -> bytes:
    if mode == 0:
        return before
    sections, modulus = _sections(payload), 1 << 8 * width
    gaps = sections.pop(0) if mode == 1 else b""
    words = [int.from_bytes(bytes(planes), "little") for planes in zip(*sections, strict=True)]
    if mode == 3:
        high = 8 * width - 1
        words = words if width == 1 else [word >> 1 | (word & 1) << high for word in words]
        return b"".join(word.to_bytes(width, "little") for word in words)
    old = [int.from_bytes(before[i : i + width], "little") for i in range(0, size, width)]
    places = list(_places(gaps)) if mode == 1 else list(range(len(old)))
    for place, word in zip(places, words, strict=True):
        old[place] = (old[place] + (word >> 1 ^ -(word & 1))) % modulus
    return b"".join(word.to_bytes(width, "little") for word in old)


def _sections(payload: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(payload):
        size, stored = struct.unpack_from("<II", payload, at)
        data = payload[at + 8 : at + 8 + stored]
        found.append(data if size == stored else zstandard.ZstdDecompressor().decompress(data))
        at += 8 + stored
    return found


def _places(gaps: bytes) -> list[int]:
    found, at = [], 0
    for gap in gaps:
        at += gap
        if gap < 255:
            found.append(at)
            at += 1
    return found
