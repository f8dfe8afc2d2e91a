"""Small steps with files that must not go half way, and what their failures are called."""

import errno
import fcntl
import os
from pathlib import Path

from protocol.errors import Code, NodeError


def storage_error(error: OSError, path: Path) -> NodeError:
    """Put an error of the operating system into the words of the catalogue."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return NodeError(Code.STO_FULL, f"There is no room for {path}.")
    if error.errno == errno.EIO:
        return NodeError(Code.STO_CORRUPT, f"{path} cannot be read: {error.strerror}.")
    return NodeError(Code.STO_UNWRITABLE, f"{path} cannot be used: {error.strerror}.")


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


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is seen whole or not at all, even after a loss of power."""
    part = path.with_name(path.name + ".tmp")
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    sync_folder(path.parent)


def read_exactly(descriptor: int, size: int, offset: int) -> bytes:
    """Read `size` bytes from `offset` on, fewer only at the end of the file (one pread may return less)."""
    data = os.pread(descriptor, size, offset)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
