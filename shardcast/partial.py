"""The file that an object grows in: only verified shards are ever written, and it gets its name when it is whole.

``NAME.part`` lies beside the file it becomes. It is sparse; what a later start finds in it is hashed again rather than
believed, so an interruption at any byte costs at most the shards that were on their way.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.files import read_exactly, storage_error, sync_folder
from shardcast import limits
from shardcast.digest import file_digest
from shardcast.expect import Plan
from shardcast.manifest import Shard

_ZEROS = memoryview(bytes(limits.MAX_SHARD))


class PartFile:
    """The partial file of one object. All methods block; different shards may be written from different threads.

    Args:
        into: The name it is to get.
        size: Bytes that it is to have.

    Attributes:
        fresh: Whether nothing was there.

    Raises:
        NodeError: STO_LOCKED, when another fetch writes it; STO_FULL, when what is missing has no room; STO_UNWRITABLE.
    """

    def __init__(self, into: Path, size: int) -> None:
        self.into = into
        self.size = size
        self.fresh = True
        self.path = into.with_name(into.name + ".part")
        self._descriptor = -1
        self._lock = (
            threading.Lock()
        )  # so that closing waits for a write that a cancelled caller no longer awaits
        try:
            into.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = self._open_locked()
            self.fresh = os.fstat(self._descriptor).st_blocks == 0
            os.ftruncate(self._descriptor, size)
            missing = size - os.fstat(self._descriptor).st_blocks * 512
            free = shutil.disk_usage(into.parent).free
        except OSError as error:
            self.close()
            raise storage_error(error, self.path) from error
        except BaseException:
            self.close()
            raise
        if missing > free:
            self.close()
            raise NodeError(
                Code.STO_FULL, f"{into.name} needs {missing} bytes more, {free} are free at {into.parent}."
            )

    def scan(self, shards: Iterable[Shard]) -> frozenset[int]:
        """Hash what is there of these shards and return those that are right."""
        try:
            return frozenset(s.index for s in shards if self._holds_data(s) and self._agrees(s))
        except OSError as error:
            raise storage_error(error, self.path) from error

    def put(self, shard: Shard, data: memoryview) -> None:
        """Write a shard whose bytes are right."""
        view, offset = data, shard.offset
        if self.fresh and view == _ZEROS[: len(view)]:
            return  # the file has a hole there, which reads as zeros
        try:
            with self._lock:
                while view:
                    written = os.pwrite(self._descriptor, view, offset)
                    view, offset = view[written:], offset + written
        except OSError as error:
            raise storage_error(error, self.path) from error

    def finish(
        self, expected: bytes | None, verify: Callable[[Path], bool] | None, *, durable: bool = True
    ) -> bool:
        """Check the whole and give it its name; false, and the part kept, if `verify` refuses it.

        Args:
            expected: Digest of the file, where its shards do not say it.
            verify: Looks at the file before it gets its name.
            durable: Whether it waits for the disk, so that the file outlives a loss of power.

        Raises:
            NodeError: SHC_MANIFEST, when every shard is right and the file is not what the close says.
        """
        try:
            if expected is not None and file_digest(self.path) != expected:
                raise NodeError(
                    Code.SHC_MANIFEST,
                    f"The shards of {self.into.name} are right, but not the file that its manifest names.",
                )
            if verify is not None and not verify(self.path):
                return False
            with self._lock:
                os.fstat(self._descriptor)  # fails if it was closed meanwhile: then it is not ours to rename
                if durable:
                    os.fsync(self._descriptor)
                os.replace(self.path, self.into)
            if durable:
                sync_folder(self.into.parent)
        except OSError as error:
            raise storage_error(error, self.path) from error
        return True

    def close(self) -> None:
        """Let the file go, whole or not."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _open_locked(self) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_ino == os.stat(self.path).st_ino:
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                raise NodeError(
                    Code.STO_LOCKED,
                    f"{self.path} is being written by another fetch.",
                    fix="Wait until it is done.",
                ) from None
            except FileNotFoundError:
                pass
            os.close(descriptor)  # the one before us finished and renamed it away between our two calls

    def _holds_data(self, shard: Shard) -> bool:
        try:  # a hole is not worth hashing: on a file of gigabytes that just began, nearly all is hole
            return os.lseek(self._descriptor, shard.offset, os.SEEK_DATA) < shard.offset + shard.size
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            raise

    def _agrees(self, shard: Shard) -> bool:
        with self._lock:
            data = read_exactly(self._descriptor, shard.size, shard.offset)
        return bool(blake3(data).digest() == shard.digest)


def is_whole(path: Path, plan: Plan) -> bool:
    """Whether a file is already the object. Blocking."""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        return (
            os.fstat(file.fileno()).st_size == plan.size
            and all(
                blake3(read_exactly(file.fileno(), shard.size, shard.offset)).digest() == shard.digest
                for shard in plan.shards
            )
            and plan.whole in (None, file_digest(path))
        )
    return False
