"""Squared norms with equal bits on every machine; a contribution's commitment names one per chunk."""

import numpy as np
import numpy.typing as npt
from numba import types

from diloco.compiled import FLOATS, kernel

_LANES = 16


@kernel(types.float64(FLOATS))
def _squared_norm(values: npt.NDArray[np.float32]) -> float:
    lanes = np.zeros(_LANES, np.float64)
    whole = values.size // _LANES
    for row in range(whole):
        part = values[row * _LANES : (row + 1) * _LANES]
        for lane in range(_LANES):
            value = np.float64(part[lane])
            lanes[lane] = lanes[lane] + value * value
    tail = values[whole * _LANES :]
    for lane in range(tail.size):
        value = np.float64(tail[lane])
        lanes[lane] = lanes[lane] + value * value
    total = 0.0
    for lane in range(_LANES):
        total = total + lanes[lane]
    return total


def squared_norm(values: npt.NDArray[np.float32]) -> float:
    """Sum of squares in fp64: value i goes to lane i mod 16, then the lanes are added in order.

    The square of an fp32 value is exact in fp64, so only the sums round, in one fixed order.

    Args:
        values: Flat contiguous fp32.

    Raises:
        TypeError: Something else.
    """
    return float(_squared_norm(values))
