"""Files encoded and decoded: against a version that the receiver has, or by themselves."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Code, NodeError
from protocol.files import storage_error, sync_folder
from shardcast.header import Decoded
from shardcast.ranges import FileRanges, Ranges
from shardcast.stream import Parent, decode, encode

RAW, PLANES, DELTA = "raw", "planes", "delta"
ENCODINGS = (RAW, PLANES, DELTA)
"""How content may be encoded: not at all; as a stream without a parent; as one with a parent."""


@dataclass(frozen=True, slots=True)
class Held:
    """A file that is there, known by its digest.

    Attributes:
        path: Where it lies.
        digest: Its file digest.
    """

    path: Path
    digest: bytes


def encode_file(new: Ranges, into: Path, parent: Parent | None = None) -> Decoded:
    """Encode a safetensors file into another file, which appears when it is whole.

    Blocking; memory for one block, whatever the sizes.

    Args:
        new: The file, which may still be growing.
        into: The encoded file.
        parent: The file that the receivers are to have.

    Returns:
        What a manifest says of the encoded file.

    Raises:
        NodeError: SHC_TENSORS, when one of the two is no safetensors file: send the new one as it is; STO_….
    """
    last = b""

    def write(descriptor: int) -> None:
        nonlocal last
        for piece in encode(new, parent):
            _write(descriptor, piece)
            last = piece

    write_through(into, write)
    digest = parent.digest if parent is not None else None
    return Decoded(PLANES if parent is None else DELTA, new.size, last, digest)


def decode_file(encoded: Ranges, into: Path, decoded: Decoded, parent: Held | None = None) -> None:
    """Decode a file into another one, which appears only when it is whole and has the digest it should have.

    Blocking; memory for one block, whatever the sizes.

    Args:
        encoded: The stream, which may still be arriving.
        into: The file to make or replace.
        decoded: What the manifest says it decodes to.
        parent: The file with the digest `decoded.parent`, if it names one.

    Raises:
        NodeError: SHC_ENCODING; STO_….
    """
    with contextlib.ExitStack() as stack:
        before = parent_of(decoded, parent, stack)
        pieces = decode(reader(encoded), before, decoded.size, decoded.digest)

        def write(descriptor: int) -> None:
            for piece in pieces:
                _write(descriptor, piece)

        write_through(into, write)


def parent_of(decoded: Decoded, parent: Held | None, stack: contextlib.ExitStack) -> Parent | None:
    """The opened parent that `decoded` needs, closed by `stack`.

    Raises:
        NodeError: SHC_ENCODING, when it is not there, or the encoding is not known; STO_….
    """
    if decoded.encoding not in (PLANES, DELTA):
        raise NodeError(Code.SHC_ENCODING, f"The encoding {decoded.encoding[:40]!r} is not known.")
    if decoded.parent is None:
        return None
    if parent is None or parent.digest != decoded.parent:
        raise NodeError(Code.SHC_ENCODING, f"The parent {decoded.parent.hex()[:16]}… is not there.")
    return Parent(parent.digest, stack.enter_context(FileRanges(parent.path)))


def reader(ranges: Ranges) -> Callable[[int], bytes]:
    """Read front to back: each call gives up to so many next bytes, fewer only at the end."""
    at = 0

    def read(most: int) -> bytes:
        nonlocal at
        length = min(most, ranges.size - at)
        data = ranges.read(at, length) if length else b""
        at += length
        return data

    return read


def write_through(into: Path, write: Callable[[int], None]) -> None:
    """Make a file by `write`, which gets a descriptor, and give it its name when that returns; nothing is left else.

    Raises:
        NodeError: STO_…; what `write` raises.
    """
    part = into.with_name(into.name + ".tmp")
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            write(descriptor)
            os.fsync(descriptor)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        os.replace(part, into)
        sync_folder(into.parent)
    except OSError as error:
        raise storage_error(error, into) from error


def _write(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]
