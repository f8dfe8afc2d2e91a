"""The rows of one inner step as a file between a daemon and its workers: one list, fixed once for all ranks.

It is a safetensors file: checked before anything is allocated, never unpickled.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from protocol.errors import Code, NodeError
from protocol.files import storage_error, write_whole
from rl.training.limits import MAX_BATCH_BYTES
from rl.training.packing import REPORTED, Rows
from shardcast.tensors import TensorIndex, header_size, read_index

_TYPES = {
    "tokens": ("I32", "<i4"),
    "positions": ("I32", "<i4"),
    "segments": ("I32", "<i4"),
    "sampled": ("BOOL", "|b1"),
    "advantages": ("F32", "<f4"),
    "behaviour": ("F32", "<f4"),
    "versions": ("I32", "<i4"),
}


def write_batch(path: Path, rows: Rows) -> None:
    """Write rows so that the file is seen whole or not at all.

    Raises:
        NodeError: ``RL_BATCH`` when they are too many; ``STO_FULL``, ``STO_UNWRITABLE`` or ``STO_CORRUPT``.
    """
    data = save(
        {name: np.ascontiguousarray(getattr(rows, name).astype(dtype)) for name, (_, dtype) in _TYPES.items()}
    )
    if len(data) > MAX_BATCH_BYTES:
        raise NodeError(Code.RL_BATCH, f"A batch of {len(data)} bytes is larger than {MAX_BATCH_BYTES}.")
    write_whole(path, [data])


def read_batch(path: Path, vocab: int, context: int) -> Rows:
    """Read such a file.

    Args:
        path: As `write_batch` wrote it.
        vocab: Rows of the model's embedding.
        context: Most tokens of one sequence.

    Raises:
        NodeError: ``RL_BATCH`` for anything that a worker cannot train on; ``STO_UNWRITABLE`` or ``STO_CORRUPT`` when
            the file cannot be read.
    """
    try:
        size = path.stat().st_size
        if not 8 <= size <= MAX_BATCH_BYTES:
            raise _bad(path, f"it has {size} bytes")
        data = np.memmap(path, np.uint8, "r")
        arrays = _arrays(path, data)
    except OSError as error:
        raise storage_error(error, path, "read") from error
    rows = Rows(**{name: np.array(array) for name, array in arrays.items()})
    _check(path, rows, vocab, context)
    return rows


def _arrays(path: Path, data: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.generic]]:
    try:
        index: TensorIndex = read_index(data[: header_size(data[:8].tobytes())].tobytes(), len(data))
    except NodeError as error:
        raise _bad(path, error.sentence) from None
    infos = {info.name: info for info in index}
    shapes = {info.shape for info in index}
    types = {name: info.dtype for name, info in infos.items()}
    if types != {name: kind for name, (kind, _) in _TYPES.items()} or len(shapes) != 1:
        raise _bad(path, "its tensors are not those of a batch")
    (shape,) = shapes
    if len(shape) != 2:
        raise _bad(path, "its tensors have no rows")
    if (data[infos["sampled"].start : infos["sampled"].end] > 1).any():
        raise _bad(path, "a truth value is neither 0 nor 1")
    return {
        name: data[infos[name].start : infos[name].end].view(dtype).reshape(shape)
        for name, (_, dtype) in _TYPES.items()
    }


def _check(path: Path, rows: Rows, vocab: int, context: int) -> None:
    if not ((rows.tokens >= 0) & (rows.tokens < vocab)).all():
        raise _bad(path, "a token is not in the vocabulary")
    if not np.isfinite(rows.advantages).all() or not np.isfinite(rows.behaviour).all():
        raise _bad(path, "an advantage or a log-probability is not finite")
    inside = rows.segments > 0
    begins = np.ones_like(inside)
    begins[:, 1:] = rows.segments[:, 1:] != rows.segments[:, :-1]
    if (inside & begins & (rows.positions != 0)).any() or (
        (inside & ~begins)[:, 1:] & (rows.positions[:, 1:] != rows.positions[:, :-1] + 1)
    ).any():
        raise _bad(path, "the positions of a sequence are not 0, 1, 2, …")
    if (inside & (rows.positions >= context)).any():
        raise _bad(path, f"a sequence is longer than {context} tokens")
    if (rows.sampled & (begins | ~inside)).any():
        raise _bad(path, "a sampled token has none before it")
    if ((rows.versions < 0) & rows.sampled & (rows.versions != REPORTED)).any():
        raise _bad(path, "a policy version is negative")


def _bad(path: Path, why: str) -> NodeError:
    return NodeError(Code.RL_BATCH, f"{path} is no batch to train on: {why}.")
