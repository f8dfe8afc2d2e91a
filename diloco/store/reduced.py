"""Reduced bytes of recent rounds on disk: stored before the vote, replayed by those who missed the round.

One file per candidate value of a round, the encoded chunks one after the other. Its name is the hash of the chunk
digests, so that two candidates never overwrite each other; once the round is decided the others are removed.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

from blake3 import blake3

from diloco.rounds.values import ReducedChunk, Value
from protocol.errors import Code, NodeError
from protocol.files import write_whole


class ReducedStore:
    """Reduced bytes in one folder.

    Args:
        folder: Where; made when missing.
        sizes: Encoded bytes per chunk of the grid.
    """

    def __init__(self, folder: Path, sizes: Sequence[int]) -> None:
        self._folder, self._sizes = folder, tuple(sizes)
        self._writing = threading.Lock()
        self._offsets = [sum(self._sizes[:i]) for i in range(len(self._sizes))]

    def path(self, epoch: int, round_number: int, chunks: Sequence[ReducedChunk]) -> Path:
        """Where the bytes of these chunks are or would be."""
        name = blake3(b"".join(chunk.digest for chunk in chunks)).hexdigest(16)
        return self._folder / f"{epoch}-{round_number}" / f"{name}.bin"

    def write(
        self, epoch: int, round_number: int, chunks: Sequence[ReducedChunk], data: Sequence[bytes]
    ) -> None:
        """Store reduced chunks durably. Two threads may come with the same bytes, one to vote and one to apply.

        Raises:
            NodeError: ``STO_FULL`` or ``STO_UNWRITABLE``.
        """
        path = self.path(epoch, round_number, chunks)
        with self._writing:
            if not path.exists():
                write_whole(path, data)

    def has(self, value: Value) -> bool:
        """Whether the bytes that a value names are here, by size; ``read`` verifies them."""
        path = self.path(value.epoch, value.round, value.chunks)
        return not value.chunks or (path.exists() and path.stat().st_size == sum(self._sizes))

    def read(self, value: Value) -> list[bytes]:
        """The verified chunks that a value names.

        Raises:
            NodeError: ``STO_CORRUPT`` when a chunk has other bytes, or the file is missing.
        """
        if not value.chunks:
            return []
        path = self.path(value.epoch, value.round, value.chunks)
        try:
            with open(path, "rb") as file:
                data = [file.read(size) for size in self._sizes]
        except OSError as error:
            raise NodeError(Code.STO_CORRUPT, f"{path} cannot be read: {error.strerror}.") from error
        for chunk, (entry, part) in enumerate(zip(value.chunks, data, strict=True)):
            if blake3(part).digest() != entry.digest:
                path.unlink(missing_ok=True)
                raise NodeError(Code.STO_CORRUPT, f"{path} has wrong bytes in chunk {chunk}; it is removed.")
        return data

    def chunk(self, value: Value, chunk: int) -> bytes:
        """One chunk, unverified.

        Raises:
            OSError: The file is gone.
        """
        with open(self.path(value.epoch, value.round, value.chunks), "rb") as file:
            file.seek(self._offsets[chunk])
            return file.read(self._sizes[chunk])

    def keep_only(self, value: Value) -> None:
        """Remove other candidates of a decided round."""
        path = self.path(value.epoch, value.round, value.chunks)
        for other in path.parent.glob("*.bin"):
            if other != path:
                other.unlink(missing_ok=True)

    def prune(self, before_round: int) -> None:
        """Remove rounds before one."""
        for folder in self._folder.glob("*-*"):
            if int(folder.name.split("-")[1]) < before_round:
                for file in folder.iterdir():
                    file.unlink(missing_ok=True)
                folder.rmdir()
