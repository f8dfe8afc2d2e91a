"""Rollout files of one trainer on disk, within a budget: where they come in, where they lie, what is kept as evidence.

A file is a Parquet file and the marker beside it that says who signed it (``rl/rollouts/files.py``).
"""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.files import storage_error, sync_folder
from rl.rollouts.files import marker_of

_SUFFIX = ".parquet"


class Folder:
    """Files by the digest of their bytes.

    Args:
        path: The folder; made when missing.
        budget: Most bytes of rollout files in it, those that are coming included.
        evidence: Most files that are kept as evidence, the newest.

    Raises:
        NodeError: A storage error.
    """

    def __init__(self, path: Path, budget: int, evidence: int = 64) -> None:
        self._files, self._coming, self._evidence = path / "files", path / "coming", path / "evidence"
        self._budget, self._most_evidence = budget, evidence
        for each in (self._files, self._coming, self._evidence):
            try:
                each.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise storage_error(error, each) from error
        self._reserved: dict[Path, int] = {}

    @property
    def used(self) -> int:
        """Bytes of all files, those that are coming with their whole size."""
        here = [*self._files.glob("*" + _SUFFIX), *self._coming.glob("*" + _SUFFIX)]
        sizes = {each: _size(each) for each in here}
        return sum({**sizes, **{p: max(n, sizes.get(p, 0)) for p, n in self._reserved.items()}}.values())

    def path(self, digest: bytes) -> Path:
        """Where a file lies, or would."""
        return self._files / f"{digest.hex()}{_SUFFIX}"

    def coming(self, worker: str, counter: int) -> Path:
        """Where the answer to a lease is written while it comes; what is there already need not come again."""
        name = blake3(f"{worker}/{counter}".encode()).hexdigest(16)
        return self._coming / f"{name}{_SUFFIX}"

    def reserve(self, path: Path, nbytes: int) -> None:
        """Count a file that is about to come with its whole size.

        Raises:
            NodeError: ``STO_FULL`` when the budget has no room for it.
        """
        used = self.used - max(self._reserved.get(path, 0), _size(path))
        if used + nbytes > self._budget:
            raise NodeError(
                Code.STO_FULL,
                f"Rollout files of this trainer take {used} of {self._budget} bytes; {nbytes} more do not fit.",
            )
        self._reserved[path] = nbytes

    def take(self, path: Path, digest: bytes) -> Path:
        """Put a whole file that came, and its marker, where files lie.

        Raises:
            NodeError: A storage error.
        """
        target = self.path(digest)
        self._reserved.pop(path, None)
        try:
            os.replace(path, target)
            os.replace(marker_of(path), marker_of(target))
            sync_folder(self._files)
        except OSError as error:
            raise storage_error(error, target, "written") from error
        return target

    def drop(self, path: Path) -> None:
        """Remove a file and its marker; one that is not there is no error."""
        self._reserved.pop(path, None)
        marker_of(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def delete(self, digests: Iterable[bytes]) -> None:
        """Remove files that nothing needs any more."""
        for digest in digests:
            self.drop(self.path(digest))

    def keep_evidence(self, digests: Iterable[bytes]) -> None:
        """Have files outlive their deletion, as evidence against who made them."""
        for digest in digests:
            source = self.path(digest)
            for each in (source, marker_of(source)):
                kept = self._evidence / each.name
                if each.exists() and not kept.exists():
                    os.link(each, kept)
        kept_files = sorted(self._evidence.glob("*" + _SUFFIX), key=lambda each: each.stat().st_ctime)
        for old in kept_files[: -self._most_evidence]:
            marker_of(old).unlink(missing_ok=True)
            old.unlink(missing_ok=True)

    def evidence(self, digest: bytes) -> Path | None:
        """Where a file that is kept as evidence lies, if it is."""
        path = self._evidence / self.path(digest).name
        return path if path.exists() else None

    def tidy(self, needed: Collection[bytes]) -> tuple[bytes, ...]:
        """Remove what no row names, as after a crash.

        Args:
            needed: Digests of the files that rows name.

        Returns:
            Those of them that are not there, whole.
        """
        names = {self.path(digest).name for digest in needed}
        for each in [*self._files.iterdir(), *self._coming.iterdir()]:
            if each.name.removesuffix(".signed") not in names:
                each.unlink(missing_ok=True)
        whole = {
            digest
            for digest in needed
            if marker_of(self.path(digest)).exists() and self.path(digest).exists()
        }
        return tuple(digest for digest in needed if digest not in whole)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
