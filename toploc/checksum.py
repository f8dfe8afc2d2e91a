"""The checksum of a file, as the reference package offers it."""

import hashlib
from os import PathLike


def sha256sum(filename: str | PathLike[str], chunk_size: int = 65536) -> str:
    """The SHA-256 of a file in hexadecimal, read ``chunk_size`` bytes at a time.

    Raises:
        OSError: it cannot be read.
        ValueError: ``chunk_size`` is below 1.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}")
    digest = hashlib.sha256()
    with open(filename, "rb", buffering=0) as file:
        while piece := file.read(chunk_size):
            digest.update(piece)
    return digest.hexdigest()
