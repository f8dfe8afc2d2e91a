"""The digest of a file, which follows from the digests of its pieces.

A file is cut into pieces of 8 MiB, the last one shorter, and ::

    file digest = BLAKE3(BLAKE3("shardcast file 1") || size of the file, 8 bytes, little-endian || BLAKE3 of each piece)

So whoever hashes a file shard by shard has its digest without a second look at its bytes, where shards are pieces.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from blake3 import blake3

from shardcast import limits

_DOMAIN = blake3(b"shardcast file 1").digest()
_READ = 512 * limits.KIB


def digest_of_pieces(size: int, pieces: Iterable[bytes]) -> bytes:
    """The digest of a file of `size` bytes, whose pieces of 8 MiB have these digests."""
    return blake3(_DOMAIN + size.to_bytes(8, "little") + b"".join(pieces)).digest()


def are_pieces(sizes: Sequence[int]) -> bool:
    """Whether shards of these sizes are the pieces of a file's digest."""
    return all(size == limits.PIECE for size in sizes[:-1]) and all(
        size <= limits.PIECE for size in sizes[-1:]
    )


class FileDigest:
    """Takes the bytes of a file in order, in parts of any size; `digest` may be asked once they are all there."""

    def __init__(self, *, max_threads: int = 1) -> None:
        self._threads = max_threads
        self._pieces: list[bytes] = []
        self._piece = blake3(max_threads=max_threads)
        self._size = 0

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(data)
        while view:
            room = limits.PIECE - self._size % limits.PIECE
            part, view = view[:room], view[room:]
            self._piece.update(part)
            self._size += len(part)
            if len(part) == room:
                self._pieces.append(self._piece.digest())
                self._piece = blake3(max_threads=self._threads)

    def digest(self) -> bytes:
        """The digest of what was taken."""
        last = [self._piece.digest()] if self._size % limits.PIECE else []
        return digest_of_pieces(self._size, self._pieces + last)


def file_digest(source: Path | bytes | memoryview, *, max_threads: int = 1) -> bytes:
    """The digest of a file, or of bytes. Blocking.

    Args:
        source: The file.
        max_threads: Threads that hash bytes in memory; -1 for as many as there are processors.

    Raises:
        OSError: It cannot be read.
    """
    whole = FileDigest(max_threads=max_threads)
    if not isinstance(source, Path):
        whole.update(source)
        return whole.digest()
    buffer = memoryview(bytearray(_READ))
    with source.open("rb", buffering=0) as file:
        while count := os.readv(file.fileno(), [buffer]):
            whole.update(buffer[:count])
    return whole.digest()
