"""The loops of the codecs. Each operation is one IEEE fp32 operation, rounded to nearest, ties to even.

Loops run over slices from zero on: an index that numba cannot prove to be non-negative is wrapped around as
Python does, and the loop is then not vectorized.
"""

import numpy as np
import numpy.typing as npt
from numba import types

from diloco.codec.limits import BLOCK, LARGEST, SMALLEST
from diloco.compiled import BYTES, BYTES_OUT, FLOATS, FLOATS_OUT, kernel

_Floats = npt.NDArray[np.float32]
_Bytes = npt.NDArray[np.int8]

# Magnitudes are compared as integers: the bits of non-negative floats are ordered as their values, infinity
# and NaN lie above all, and an integer maximum is vectorized where one over floats is not.
_MAGNITUDE = np.int32(0x7FFFFFFF)
_LEVELS = np.float32(127.0)
_LARGEST = np.float32(LARGEST).view(np.int32)
_SMALLEST = np.float32(SMALLEST).view(np.int32)
_LARGEST_SCALE = (np.float32(LARGEST) / _LEVELS).view(np.int32)
_SMALLEST_SCALE = (np.float32(SMALLEST) / _LEVELS).view(np.int32)

VALID = -1
"""What a kernel that looks for the first bad block returns when there is none."""


@kernel(types.int64(FLOATS))
def first_bad_value(values: _Floats) -> int:
    """Index of the first value that is not finite or exceeds LARGEST, or VALID."""
    bits = values.view(np.int32)
    top = np.int32(0)
    for i in range(bits.size):
        top = max(top, np.int32(bits[i] & _MAGNITUDE))
    if top <= _LARGEST:
        return VALID
    for i in range(bits.size):
        if np.int32(bits[i] & _MAGNITUDE) > _LARGEST:
            return i
    return VALID


@kernel(types.int64(FLOATS, FLOATS_OUT, BYTES_OUT))
def encode_int8(values: _Floats, scales: _Floats, levels: _Bytes) -> int:
    """Blockwise int8; returns the first block with a value that may not be encoded, or VALID.

    scale = absmax / 127; level = rint(value * (127 / absmax)), which lies in -127 … 127. Decoding the largest
    level gives a number whose division by 127 is the scale again, so encoding decoded values gives the same
    bytes.
    """
    bits = values.view(np.int32)
    box = np.empty(1, np.int32)
    boxed = box.view(np.float32)
    for block in range(scales.size):
        start = block * BLOCK
        stop = min(start + BLOCK, values.size)
        block_bits = bits[start:stop]
        block_values = values[start:stop]
        block_levels = levels[start:stop]
        top = np.int32(0)
        for i in range(block_bits.size):
            top = max(top, np.int32(block_bits[i] & _MAGNITUDE))
        if top > _LARGEST:
            return block
        if top < _SMALLEST:
            scales[block] = np.float32(0)
            block_levels[:] = 0
            continue
        box[0] = top
        absmax = boxed[0]
        scales[block] = absmax / _LEVELS
        inverse = _LEVELS / absmax
        for i in range(block_values.size):
            block_levels[i] = np.int8(np.int32(np.rint(block_values[i] * inverse)))
    return VALID


@kernel(types.int64(FLOATS, BYTES))
def check_int8(scales: _Floats, levels: _Bytes) -> int:
    """The first block that no encoder makes, or VALID.

    Refused are a bad scale, a level of -128, and levels beside a scale of 0.
    """
    bits = scales.view(np.int32)
    for block in range(bits.size):
        block_levels = levels[block * BLOCK : min((block + 1) * BLOCK, levels.size)]
        low = np.int8(0)
        high = np.int8(0)
        for i in range(block_levels.size):
            low = min(low, block_levels[i])
            high = max(high, block_levels[i])
        if bits[block] == 0:  # +0.0
            if low != 0 or high != 0:
                return block
        elif bits[block] < _SMALLEST_SCALE or bits[block] > _LARGEST_SCALE or low == -128:
            return block
    return VALID


@kernel(types.void(FLOATS, BYTES, FLOATS_OUT))
def decode_int8(scales: _Floats, levels: _Bytes, out: _Floats) -> None:
    """Out = level * scale."""
    for block in range(scales.size):
        scale = scales[block]
        start = block * BLOCK
        stop = min(start + BLOCK, out.size)
        block_levels = levels[start:stop]
        block_out = out[start:stop]
        for i in range(block_out.size):
            block_out[i] = np.float32(block_levels[i]) * scale


@kernel(types.void(FLOATS_OUT, FLOATS, BYTES, types.float32))
def accumulate_int8(total: _Floats, scales: _Floats, levels: _Bytes, weight: np.float32) -> None:
    """Total += weight * (level * scale)."""
    for block in range(scales.size):
        scale = scales[block]
        start = block * BLOCK
        stop = min(start + BLOCK, total.size)
        block_levels = levels[start:stop]
        block_total = total[start:stop]
        for i in range(block_total.size):
            block_total[i] = block_total[i] + weight * (np.float32(block_levels[i]) * scale)


@kernel(types.void(FLOATS_OUT, FLOATS, BYTES, types.float32, types.float32))
def blend_int8(mean: _Floats, scales: _Floats, levels: _Bytes, ratio: np.float32, clip: np.float32) -> None:
    """Mean += ratio * (clip * (level * scale) - mean)."""
    for block in range(scales.size):
        scale = scales[block]
        start = block * BLOCK
        stop = min(start + BLOCK, mean.size)
        block_levels = levels[start:stop]
        block_mean = mean[start:stop]
        for i in range(block_mean.size):
            difference = clip * (np.float32(block_levels[i]) * scale) - block_mean[i]
            block_mean[i] = block_mean[i] + ratio * difference


@kernel(types.void(FLOATS_OUT, FLOATS, types.float32))
def accumulate_floats(total: _Floats, values: _Floats, weight: np.float32) -> None:
    """Total += weight * value."""
    for i in range(total.size):
        total[i] = total[i] + weight * values[i]


@kernel(types.void(FLOATS_OUT, FLOATS, types.float32, types.float32))
def blend_floats(mean: _Floats, values: _Floats, ratio: np.float32, clip: np.float32) -> None:
    """Mean += ratio * (clip * value - mean)."""
    for i in range(mean.size):
        mean[i] = mean[i] + ratio * (clip * values[i] - mean[i])
