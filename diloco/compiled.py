"""How this package compiles its kernels: same bits everywhere, no thread of its own, cached between starts.

Every kernel is compiled ahead for one signature (a wrong dtype is a TypeError, never a second variant with
other rounding), without ``fastmath`` and hence without fused multiply-add, reordering or flushed denormals.
It releases the GIL and starts no threads: whoever wants several cores calls it for several chunks from a
bounded pool.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from numba import njit, types

_P = ParamSpec("_P")
_R = TypeVar("_R")

FLOATS = types.Array(types.float32, 1, "C", readonly=True)
"""Flat fp32 input; takes writable arrays too."""
BYTES = types.Array(types.int8, 1, "C", readonly=True)
"""Flat int8 input."""
FLOATS_OUT = types.Array(types.float32, 1, "C")
"""Flat fp32 output."""
BYTES_OUT = types.Array(types.int8, 1, "C")
"""Flat int8 output."""


def kernel(signature: object) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Compile a function for one signature on import, or take it from the cache.

    The cache lies beside the source or, where that cannot be written, in the user's own cache folder. Where
    neither can be written the kernel is compiled at every start: a folder that others can write would let
    them put code into this process.

    Args:
        signature: A numba signature, such as ``types.void(FLOATS, FLOATS_OUT)``.
    """

    def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
        options = {"nogil": True, "fastmath": False, "error_model": "numpy", "boundscheck": False}
        try:
            result: Callable[_P, _R] = njit([signature], cache=True, **options)(function)
        except Exception:
            # No folder for the cache, a full disk, or files that a power cut left half-written, which numba
            # reports in many ways. A function that cannot be compiled fails again on the next line.
            result = njit([signature], **options)(function)
        return result

    return compiled
