"""Files that appear whole or not at all, and what their failures are called."""

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from protocol.errors import Code, NodeError


def storage_error(error: OSError, path: Path, did: str = "used") -> NodeError:
    """Put an error of the operating system into the words of the catalogue.

    Args:
        error: What happened.
        path: The file it happened to.
        did: What the file cannot be: used, read, written.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return NodeError(Code.STO_FULL, f"There is no room for {path}.")
    if error.errno == errno.EIO:
        return NodeError(Code.STO_CORRUPT, f"{path} cannot be {did}: {error.strerror}.")
    return NodeError(Code.STO_UNWRITABLE, f"{path} cannot be {did}: {error.strerror}.")


def read_whole(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        NodeError: ``STO_UNWRITABLE`` when this user cannot read it.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise NodeError(
            Code.STO_UNWRITABLE,
            f"{path} cannot be read: {error.strerror}.",
            fix="Give the user that runs the node the right to read and write all of its data directory.",
        ) from error


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file so that it is seen whole or not at all, even after a loss of power; its folder is made if needed.

    It is written beside its place as ``NAME.tmp``, which a killed writer leaves to the next one. Two that write one
    file at once, threads or processes, wait for each other.

    Raises:
        NodeError: ``STO_FULL``, ``STO_UNWRITABLE`` or ``STO_CORRUPT``, see ``storage_error``.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(_open_alone(temporary), "wb") as file:
            try:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path, "written") from error


def _open_alone(path: Path) -> int:
    """Open a file for writing, emptied, once no other writer of it is left."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                os.ftruncate(descriptor, 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another writer gave it its name meanwhile


def lock_folder(folder: Path) -> int:
    """Make a folder and hold it for this process until the descriptor that comes back is closed.

    Raises:
        NodeError: STO_LOCKED, when another process holds it; STO_UNWRITABLE.
    """
    descriptor = -1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise NodeError(
            Code.STO_LOCKED, f"{folder} is used by another process.", fix="Stop it, or use another folder."
        ) from None
    except OSError as error:
        raise storage_error(error, folder) from error
    return descriptor


def sync_folder(folder: Path) -> None:
    """Put a folder's entries on disk, so that a rename outlives a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_exactly(descriptor: int, size: int, offset: int) -> bytes:
    """Read `size` bytes from `offset` on, fewer only at the end of the file (one pread may return less)."""
    data = os.pread(descriptor, size, offset)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
