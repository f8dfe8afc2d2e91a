"""Digests of outer state: equal digests mean equal bits.

The state digest of a round is a BLAKE3 tree over the chunk grid, so that a member that differs finds the
chunks that differ from the leaves alone, and a joiner verifies each chunk as it comes. Values are hashed as
little-endian fp32 bits; negative zero and NaN payloads count.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from diloco import merkle
from diloco.layout import Grid
from protocol.units import Digest

_Floats = npt.NDArray[np.float32]

_LEAF = "intellect-node state leaf v1"
_STATE = "intellect-node state v1"
_PARAMETERS = "intellect-node parameters v1"
_MOMENTUM = "intellect-node momentum v1"


def leaf(index: int, params_chunk: _Floats, momentum_chunk: _Floats) -> Digest:
    """Digest of one chunk of the state.

    Args:
        index: The chunk's number in the grid.
        params_chunk: Its outer parameters, flat fp32.
        momentum_chunk: Its outer momentum, same shape.

    Raises:
        ValueError: Shapes differ.
    """
    if params_chunk.shape != momentum_chunk.shape:
        raise ValueError(
            f"parameters {params_chunk.shape} and momentum {momentum_chunk.shape} differ in shape"
        )
    hasher = blake3(_numbers(index, params_chunk.size), derive_key_context=_LEAF)
    hasher.update(_bytes(params_chunk))
    hasher.update(_bytes(momentum_chunk))
    return Digest(hasher.digest())


def leaves(params: _Floats, momentum: _Floats, grid: Grid) -> tuple[Digest, ...]:
    """The leaves of all chunks in order.

    Raises:
        ValueError: The vectors do not fit the grid.
    """
    _fits(params, grid)
    _fits(momentum, grid)
    return tuple(leaf(index, params[part], momentum[part]) for index, part in enumerate(grid.slices()))


def digest_of_leaves(round: int, leaves: Sequence[bytes], grid: Grid, *, schedule: bytes = b"") -> Digest:
    """The state digest from its leaves, which a joiner compares with the certified base first of all.

    Args:
        round: The round that starts from this state.
        leaves: One digest per chunk.
        grid: The run's chunk grid.
        schedule: Canonical bytes of what else the members share (orders that changed a hyper-parameter).

    Raises:
        ValueError: The number of leaves is not the grid's.
    """
    if len(leaves) != grid.count:
        raise ValueError(f"the grid has {grid.count} chunks, not {len(leaves)}")
    hasher = blake3(_numbers(round, grid.size, grid.chunk), derive_key_context=_STATE)
    hasher.update(merkle.root(leaves))
    hasher.update(schedule)
    return Digest(hasher.digest())


def state_digest(
    round: int, params: _Floats, momentum: _Floats, grid: Grid, *, schedule: bytes = b""
) -> Digest:
    """The digest of a whole state; see :func:`digest_of_leaves`.

    Raises:
        ValueError: The vectors do not fit the grid.
    """
    return digest_of_leaves(round, leaves(params, momentum, grid), grid, schedule=schedule)


def parameters_digest(params: _Floats) -> Digest:
    """Digest of the outer parameters alone, for reports."""
    return Digest(blake3(_bytes(params), derive_key_context=_PARAMETERS).digest())


def momentum_digest(momentum: _Floats) -> Digest:
    """Digest of the outer momentum alone, for reports."""
    return Digest(blake3(_bytes(momentum), derive_key_context=_MOMENTUM).digest())


def _fits(vector: _Floats, grid: Grid) -> None:
    if vector.shape != (grid.size,):
        raise ValueError(f"the grid has {grid.size} values, the vector the shape {vector.shape}")


def _numbers(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def _bytes(values: _Floats) -> memoryview:
    """The values' little-endian bits; no copy on a little-endian machine."""
    if values.dtype != np.float32:
        raise TypeError(f"float32 is hashed, not {values.dtype}")
    return np.ascontiguousarray(values, dtype="<f4").data.cast("B")
