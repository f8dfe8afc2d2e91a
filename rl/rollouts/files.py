"""Rollout files on disk: the Parquet file, and beside it the marker that says it is whole and who signed it.

``NAME.parquet`` is written first and ``NAME.parquet.signed`` last, each by temporary file, fsync and rename. A file
without its marker was never finished, and is not read.
"""

from collections.abc import Sequence
from pathlib import Path

from protocol.errors import Code, NodeError
from protocol.files import storage_error, write_whole
from protocol.identity import Signer
from rl.rollouts.limits import Limits
from rl.rollouts.parquet import encode
from rl.rollouts.record import Group, Provenance
from rl.rollouts.signing import MARKER_BYTES, Signed


def marker_of(path: Path) -> Path:
    """Where a file's marker lies."""
    return path.with_name(path.name + ".signed")


def write(path: Path, provenance: Provenance, groups: Sequence[Group], signer: Signer) -> Signed:
    """Writes and signs a rollout file, whole or not at all.

    Raises:
        ValueError: As ``rl.rollouts.parquet.encode``, and when the provenance names another worker.
        NodeError: A storage error, as ``protocol.files.write_whole``.
    """
    if signer.peer_id != provenance.worker:
        raise ValueError(f"{signer.peer_id} does not sign for {provenance.worker}")
    data = encode(provenance, groups)
    signed = Signed.make(signer, data)
    store(path, data, signed)
    return signed


def store(path: Path, data: bytes, signed: Signed) -> None:
    """Stores bytes that came with a signature; the marker of an older file there goes first.

    Raises:
        NodeError: A storage error, as ``protocol.files.write_whole``.
    """
    marker_of(path).unlink(missing_ok=True)
    write_whole(path, [data])
    write_whole(marker_of(path), [signed.to_json()])


def load(path: Path, limits: Limits) -> tuple[bytes, Signed]:
    """A finished file's bytes, signed.

    Raises:
        NodeError: ``E-RL-001`` when it or its marker is missing, ``E-RL-002`` when it is too large, ``E-RL-003`` when
            the signature does not fit, or a storage error.
    """
    signed = Signed.from_json(_read(marker_of(path), MARKER_BYTES))
    data = _read(path, limits.file_bytes)
    signed.check(data)
    return data, signed


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise NodeError(
            Code.RL_FILE_UNREADABLE, f"There is no {path.name}: the rollout file was never finished."
        ) from None
    except OSError as error:
        raise storage_error(error, path, "read") from error
    if len(data) > most:
        raise NodeError(Code.RL_FILE_TOO_LARGE, f"{path.name} has more than {most} bytes.")
    return data
