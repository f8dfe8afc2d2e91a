"""Blockwise int8: 256 values share one fp32 scale.

Bytes of n values: ceil(n / 256) scales (fp32, little-endian), then n levels (int8). scale = absmax / 127,
level = value * (127 / absmax) rounded half to even; −128 is unused. The error of a value is at most half a
scale.
"""

import numpy as np
import numpy.typing as npt

from diloco.codec import kernels
from diloco.codec.base import Buffer, Codec, Floats, aligned, flat, refuse_value, writable
from diloco.codec.limits import BLOCK
from protocol.errors import Code, NodeError

_SCALE_BYTES = 4


class Int8Codec(Codec):
    """1.016 bytes per value."""

    name = "int8"

    def nbytes(self, n: int) -> int:
        """Scales of the begun blocks, then one byte per value."""
        return _blocks(n) * _SCALE_BYTES + n

    def encode_into(self, values: Floats, out: bytearray | memoryview) -> None:
        """See :meth:`Codec.encode_into`; blocks with all values below ``limits.SMALLEST`` become zeros."""
        encoded = writable(out, self.nbytes(flat(values).size))
        border = _blocks(values.size) * _SCALE_BYTES
        place = encoded[:border].view(np.float32)
        scales = place if place.flags.aligned else np.empty_like(place)
        bad = kernels.encode_int8(values, scales, encoded[border:].view(np.int8))
        if bad != kernels.VALID:
            start = bad * BLOCK
            block = values[start : start + BLOCK]
            raise refuse_value(values, start + kernels.first_bad_value(block))
        if scales is not place:
            place[:] = scales

    def check(self, data: Buffer, n: int) -> None:
        """See :meth:`Codec.check`; also refuses a level of −128 and levels beside a scale of 0."""
        self._parts(data, n)

    def decode_into(self, data: Buffer, out: Floats) -> None:
        """See :meth:`Codec.decode_into`."""
        scales, levels = self._parts(data, out.size)
        kernels.decode_int8(scales, levels, flat(out))

    def accumulate(self, total: Floats, data: Buffer, weight: float) -> None:
        """See :meth:`Codec.accumulate`."""
        scales, levels = self._parts(data, total.size)
        kernels.accumulate_int8(flat(total), scales, levels, np.float32(weight))

    def blend(self, mean: Floats, data: Buffer, ratio: float, clip: float = 1.0) -> None:
        """See :meth:`Codec.blend`."""
        scales, levels = self._parts(data, mean.size)
        kernels.blend_int8(flat(mean), scales, levels, np.float32(ratio), np.float32(clip))

    def decode_part(self, data: Buffer, n: int, start: int, out: Floats) -> None:
        """See :meth:`Codec.decode_part`."""
        first = start // BLOCK
        scales = aligned(data, np.float32, _blocks(n))[first : first + _blocks(out.size)]
        levels = np.frombuffer(data, np.int8, out.size, _blocks(n) * _SCALE_BYTES + start)
        kernels.decode_int8(scales, levels, flat(out))

    def _parts(self, data: Buffer, n: int) -> tuple[Floats, npt.NDArray[np.int8]]:
        """Checked scales and levels."""
        self.check_length(data, n)
        blocks = _blocks(n)
        scales = aligned(data, np.float32, blocks)
        levels = np.frombuffer(data, np.int8, n, blocks * _SCALE_BYTES)
        bad = kernels.check_int8(scales, levels)
        if bad != kernels.VALID:
            raise NodeError(
                Code.TRN_CODEC,
                f"Block {bad} with scale {float(scales[bad]):g} is none that the int8 codec makes.",
            )
        return scales, levels


def _blocks(n: int) -> int:
    return -(-n // BLOCK)
