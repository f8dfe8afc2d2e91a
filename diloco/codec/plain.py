"""fp32 and fp16: the values themselves, little-endian."""

import numpy as np

from diloco.codec import kernels
from diloco.codec.base import Buffer, Codec, Floats, aligned, flat, refuse_value, writable
from protocol.errors import Code, NodeError


class FloatCodec(Codec):
    """Each value as one IEEE number; fp16 rounds to nearest, ties to even."""

    def __init__(self, name: str, dtype: type[np.floating]) -> None:
        self.name = name
        self._dtype = dtype
        self._width = np.dtype(dtype).itemsize

    def nbytes(self, n: int) -> int:
        """The width of one number times ``n``."""
        return self._width * n

    def encode_into(self, values: Floats, out: bytearray | memoryview) -> None:
        """See :meth:`Codec.encode_into`."""
        bad = kernels.first_bad_value(flat(values))
        if bad != kernels.VALID:
            raise refuse_value(values, bad)
        np.copyto(writable(out, self.nbytes(values.size)).view(self._dtype), values, casting="same_kind")

    def check(self, data: Buffer, n: int) -> None:
        """See :meth:`Codec.check`."""
        self._values(data, n)

    def decode_into(self, data: Buffer, out: Floats) -> None:
        """See :meth:`Codec.decode_into`."""
        np.copyto(flat(out), self._values(data, out.size))

    def accumulate(self, total: Floats, data: Buffer, weight: float) -> None:
        """See :meth:`Codec.accumulate`."""
        kernels.accumulate_floats(flat(total), self._values(data, total.size), np.float32(weight))

    def blend(self, mean: Floats, data: Buffer, ratio: float, clip: float = 1.0) -> None:
        """See :meth:`Codec.blend`."""
        values = self._values(data, mean.size)
        kernels.blend_floats(flat(mean), values, np.float32(ratio), np.float32(clip))

    def decode_part(self, data: Buffer, n: int, start: int, out: Floats) -> None:
        """See :meth:`Codec.decode_part`."""
        np.copyto(flat(out), aligned(data, self._dtype, n)[start : start + out.size])

    def _values(self, data: Buffer, n: int) -> Floats:
        """Checked values as fp32."""
        self.check_length(data, n)
        values = aligned(data, self._dtype, n).astype(np.float32, copy=False)
        bad = kernels.first_bad_value(values)
        if bad != kernels.VALID:
            raise NodeError(
                Code.TRN_CODEC, f"The value {float(values[bad]):g} at position {bad} is out of bounds."
            )
        return values
