"""What a codec is."""

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.errors import Code, NodeError

Floats: TypeAlias = npt.NDArray[np.float32]
Buffer: TypeAlias = bytes | bytearray | memoryview


class Codec(ABC):
    """Turns a flat run of fp32 values into bytes for the wire and back.

    Bytes are a pure function of the values, equal on every machine. All methods may run in several threads at
    once, release the GIL in their loops and start no threads. What comes from the wire is checked before a
    value of it is used: ``decode``, ``accumulate`` and ``blend`` all begin with :meth:`check`.
    """

    name: str
    """How the genesis calls it."""

    @abstractmethod
    def nbytes(self, n: int) -> int:
        """Bytes of ``n`` encoded values."""

    @abstractmethod
    def encode_into(self, values: Floats, out: bytearray | memoryview) -> None:
        """Encode into memory that is there already; a frozen contribution reuses its own from round to round.

        Args:
            values: Flat, contiguous fp32.
            out: ``nbytes(values.size)`` writable bytes at any address; undefined after an error.

        Raises:
            NodeError: ``TRN_NOT_FINITE``: a value is NaN, infinite or larger than ``limits.LARGEST``.
            TypeError: Not a flat contiguous fp32 array.
            ValueError: ``out`` has another length or cannot be written.
        """

    @abstractmethod
    def check(self, data: Buffer, n: int) -> None:
        """Refuse bytes that no honest encoder of ``n`` values makes.

        Raises:
            NodeError: ``TRN_CODEC``: wrong length, or a value or scale that is not finite or out of bounds.
        """

    @abstractmethod
    def decode_into(self, data: Buffer, out: Floats) -> None:
        """Decode ``out.size`` values into ``out``; leaves it untouched when the bytes are refused.

        Raises:
            NodeError: ``TRN_CODEC``, see :meth:`check`.
        """

    @abstractmethod
    def accumulate(self, total: Floats, data: Buffer, weight: float) -> None:
        """``total += weight * decoded`` in fp32, product and sum rounded one after the other.

        Raises:
            NodeError: ``TRN_CODEC``, see :meth:`check`; ``total`` is untouched then.
        """

    @abstractmethod
    def decode_part(self, data: Buffer, n: int, start: int, out: Floats) -> None:
        """Decode the ``out.size`` values from ``start`` on, of ``n`` that have passed :meth:`check`.

        Args:
            data: The encoded bytes of all ``n`` values.
            n: How many they are.
            start: A multiple of ``limits.BLOCK``.
            out: Flat fp32; ends at a multiple of ``limits.BLOCK`` or with the last value.
        """

    @abstractmethod
    def blend(self, mean: Floats, data: Buffer, ratio: float, clip: float = 1.0) -> None:
        """``mean += ratio * (clip * decoded - mean)`` in fp32, each operation rounded separately.

        Raises:
            NodeError: ``TRN_CODEC``, see :meth:`check`; ``mean`` is untouched then.
        """

    def encode(self, values: Floats) -> bytes:
        """Encode into new bytes.

        Raises:
            NodeError: ``TRN_NOT_FINITE``, see :meth:`encode_into`.
            TypeError: Not a flat contiguous fp32 array.
        """
        out = bytearray(self.nbytes(flat(values).size))
        self.encode_into(values, out)
        return bytes(out)

    def decode(self, data: Buffer, n: int) -> Floats:
        """Decode ``n`` values into a new array.

        Raises:
            NodeError: ``TRN_CODEC``, see :meth:`check`; nothing was allocated then.
        """
        self.check_length(data, n)
        out = np.empty(n, np.float32)
        self.decode_into(data, out)
        return out

    def check_length(self, data: Buffer, n: int) -> None:
        """The first part of :meth:`check`.

        Raises:
            NodeError: ``TRN_CODEC``: wrong length.
        """
        size = memoryview(data).nbytes
        if size != self.nbytes(n):
            raise NodeError(
                Code.TRN_CODEC, f"{n} values in {self.name} take {self.nbytes(n)} bytes, but {size} came."
            )


def flat(values: Floats) -> Floats:
    """``values`` itself, if kernels can take it.

    Raises:
        TypeError: Not a flat contiguous fp32 array.
    """
    if values.dtype != np.float32 or values.ndim != 1 or not values.flags.c_contiguous:
        raise TypeError(
            f"a flat contiguous float32 array is needed, not {values.dtype} of shape {values.shape}"
        )
    return values


def writable(out: bytearray | memoryview, size: int) -> npt.NDArray[np.uint8]:
    """The memory of ``out`` as bytes.

    Raises:
        ValueError: It has not ``size`` bytes, or cannot be written.
    """
    array = np.frombuffer(out, np.uint8)
    if array.size != size or not array.flags.writeable:
        raise ValueError(f"{size} writable bytes are needed, not {array.size}")
    return array


def aligned(data: Buffer, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
    """A read-only array over the first bytes of ``data``; copied only where they are unaligned."""
    array = np.frombuffer(data, dtype, count)
    if not array.flags.aligned:
        array = array.copy()
    return array


def refuse_value(values: Floats, index: int) -> NodeError:
    """The error for a value that may not be encoded."""
    value = float(values[index])
    what = "is larger than a codec takes" if np.isfinite(value) else "is not finite"
    return NodeError(Code.TRN_NOT_FINITE, f"The value {value:g} at position {index} {what}.")
