"""Files that appear whole or not at all, and reading them."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from protocol.errors import Code, NodeError


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
    """Write a file beside its place, fsync it, rename it into place and fsync the folder.

    Raises:
        NodeError: ``STO_FULL`` when the disk is full, ``STO_UNWRITABLE`` for anything else.
    """
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = Code.STO_FULL if full else Code.STO_UNWRITABLE
        raise NodeError(code, f"{path} cannot be written: {error.strerror}.") from error
