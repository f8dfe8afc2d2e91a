"""The manifest of a file that is there: its shards hashed one after the other."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from blake3 import blake3

from protocol.errors import Code, NodeError
from protocol.files import read_exactly
from shardcast import limits
from shardcast.digest import FileDigest, are_pieces
from shardcast.header import Decoded, Header, bad
from shardcast.manifest import Manifest, ManifestWriter
from shardcast.names import check_name
from shardcast.tensors import TensorIndex


def build_manifest(
    source: Path | bytes,
    name: str,
    shard_sizes: int | Sequence[int] | None = None,
    *,
    version: str = "1",
    decoded: Decoded | None = None,
    tensors: TensorIndex | None = None,
) -> Manifest:
    """Describe a file or bytes; two holders of equal content get equal manifests.

    Blocking: reads and hashes all of `source`.

    Args:
        source: The object.
        name: What it is to be called.
        shard_sizes: Bytes of each shard: one number for all but the last, or every one; 8 MiB by default.
        version: Its version label.
        decoded: What it decodes to, if it is encoded.
        tensors: Where each tensor lies in the file, decoded, if the manifest is to say so.

    Raises:
        NodeError: SHC_NAME for a bad name; SHC_MANIFEST when the sizes do not add up to the object or the file changed
            meanwhile; STO_CORRUPT when the file cannot be read.
    """
    try:
        size = len(source) if isinstance(source, bytes) else os.stat(source).st_size
        sizes = _sizes(size, shard_sizes)
        header = Header(check_name(name), version, size, max(sizes, default=0), tensors=tensors)
        if decoded is not None:
            header = replace(
                header, encoding=decoded.encoding, result_size=decoded.size, parent=decoded.parent
            )
        writer = ManifestWriter(header)
        whole = FileDigest() if decoded is None and not are_pieces(sizes) else None
        for piece in _pieces(source, sizes):
            writer.append(len(piece), blake3(piece).digest())
            if whole is not None:
                whole.update(piece)
    except OSError as error:
        raise NodeError(Code.STO_CORRUPT, f"{source!s} cannot be read: {error.strerror}.") from error
    writer.close(decoded.digest if decoded is not None else whole.digest() if whole is not None else None)
    return writer.manifest()


def _sizes(size: int, wanted: int | Sequence[int] | None) -> list[int]:
    if isinstance(wanted, Sequence):
        if sum(wanted) != size:
            raise bad(0, f"the shard sizes add up to {sum(wanted)} bytes, the object has {size}")
        if min(wanted, default=1) < 1:
            raise bad(0, "a shard has at least one byte")
        return list(wanted)
    step = limits.DEFAULT_SHARD if wanted is None else wanted
    if step < 1 or -(-size // step) > limits.MAX_SHARDS:
        raise bad(0, f"{size} bytes cannot be cut into shards of {step}")
    return [min(step, size - start) for start in range(0, size, step)]


def _pieces(source: Path | bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    if isinstance(source, bytes):
        start = 0
        for size in sizes:
            yield source[start : start + size]
            start += size
        return
    with open(source, "rb", buffering=0) as file:
        for size in sizes:
            piece = read_exactly(file.fileno(), size, file.tell())
            file.seek(size, os.SEEK_CUR)
            if len(piece) != size:
                raise bad(0, f"{source!s} became shorter while it was read")
            yield piece
        if file.read(1):
            raise bad(0, f"{source!s} grew while it was read")
