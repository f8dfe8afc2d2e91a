"""The proof of one chunk: a polynomial through its largest activations, and its bytes."""

import base64
import binascii
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from toploc.field import INVERSES, PRIME, interpolate, largest_injective

MAX_POINTS = PRIME
"""More points than this cannot be distinct modulo any allowed modulus."""


class ProofPoly:
    """A polynomial over GF(65497) and the modulus that was applied to the positions. Immutable.

    Bytes: the modulus, then the coefficients by ascending degree, each a big-endian 16-bit number.
    """

    __slots__ = ("_coefficients", "_modulus")

    def __init__(self, coeffs: Sequence[int], modulus: int) -> None:
        """Hold ``coeffs`` (ascending degree) and ``modulus``, each in [0, 65535].

        Raises:
            ValueError: something is no whole number or out of range, or there are more than 65,497 coefficients.
        """
        if len(coeffs) > MAX_POINTS:
            raise ValueError(f"a proof has at most {MAX_POINTS} coefficients, not {len(coeffs)}")
        if not isinstance(modulus, int | np.integer) or not 0 <= modulus <= 0xFFFF:
            raise ValueError(f"modulus must be a whole number in [0, 65535], not {modulus}")
        wide = _integers(coeffs, "coeffs")
        if wide.size and (wide.min() < 0 or wide.max() > 0xFFFF):
            raise ValueError("coefficients must be in [0, 65535]")
        self._coefficients: npt.NDArray[np.uint16] = wide.astype(np.uint16)
        self._modulus = int(modulus)

    @classmethod
    def _of(cls, coefficients: npt.NDArray[np.uint16], modulus: int) -> Self:
        made = cls.__new__(cls)
        made._coefficients = coefficients
        made._modulus = modulus
        return made

    @classmethod
    def from_points(cls, x: Sequence[int], y: Sequence[int]) -> Self:
        """The proof through the points ``(x[i], y[i])``: positions (at least 0) and 16-bit patterns.

        Raises:
            ValueError: lengths differ, a position is negative or occurs twice, a pattern has more than 16 bits, or no
                modulus keeps the positions distinct.
        """
        return cls._through(_integers(x, "x"), _integers(y, "y"))

    @classmethod
    def from_points_tensor(cls, x: torch.Tensor, y: torch.Tensor) -> Self:
        """As ``from_points``, from one-dimensional tensors: integer ``x``; ``y`` integer or floating point.

        Floating-point ``y`` gives its bit patterns: 16-bit types as they are, float32 rounded to bfloat16.

        Raises:
            ValueError: as ``from_points``, or a tensor is not one-dimensional or of another type.
        """
        if x.dim() != 1 or y.dim() != 1:
            raise ValueError("x and y must be 1D tensors")
        if x.dtype not in _INTEGERS:
            raise ValueError(f"x must hold int32, uint32 or int64, not {x.dtype}")
        positions = x.cpu().to(torch.int64).contiguous().numpy()
        return cls._through(positions, _patterns(y.detach().cpu().contiguous()))

    @classmethod
    def _through(cls, x: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> Self:
        if x.size != y.size:
            raise ValueError("x and y must have the same length")
        if x.size > MAX_POINTS:
            raise ValueError(f"a proof goes through at most {MAX_POINTS} points, not {x.size}")
        if x.size and x.min() < 0:
            raise ValueError("positions must be at least 0")
        if y.size and (y.min() < 0 or y.max() > 0xFFFF):
            raise ValueError("values must be 16-bit patterns")
        return cls.through(x, y.astype(np.uint16))

    @classmethod
    def through(cls, x: npt.NDArray[np.int64], y: npt.NDArray[np.uint16]) -> Self:
        """As ``from_points`` for arrays already known to be in range.

        Raises:
            ValueError: no modulus keeps the positions distinct.
        """
        modulus = largest_injective(x, np.zeros(1024, np.uint64))
        if modulus == 0:
            raise ValueError("no modulus keeps the positions distinct")
        coefficients = np.empty(x.size, np.uint16)
        interpolate(x, modulus, y, INVERSES, coefficients)
        return cls._of(coefficients, modulus)

    @classmethod
    def null(cls, length: int) -> Self:
        """The proof that proves nothing: ``length`` zeros and modulus 0. Verification never accepts it.

        Raises:
            ValueError: a proof cannot have so many coefficients.
        """
        if not 0 <= length <= MAX_POINTS:
            raise ValueError(f"a proof has 0 to {MAX_POINTS} coefficients, not {length}")
        return cls._of(np.zeros(length, np.uint16), 0)

    @property
    def coeffs(self) -> list[int]:
        """Coefficients by ascending degree."""
        return [int(coefficient) for coefficient in self._coefficients]

    @property
    def coefficients(self) -> npt.NDArray[np.uint16]:
        """The same as an array; not to be written to."""
        return self._coefficients

    @property
    def modulus(self) -> int:
        """What positions are taken modulo of before the polynomial is evaluated; 0 in a null proof."""
        return self._modulus

    def __call__(self, x: int) -> int:
        """The polynomial at ``x`` modulo 65497; the proof's own modulus is *not* applied."""
        value = 0
        for coefficient in reversed(self.coeffs):
            value = (value * x + coefficient) % PRIME
        return value

    def __len__(self) -> int:
        """How many coefficients there are."""
        return int(self._coefficients.size)

    def __eq__(self, other: object) -> bool:
        """Same modulus and same coefficients."""
        if not isinstance(other, ProofPoly):
            return NotImplemented
        return self._modulus == other._modulus and np.array_equal(self._coefficients, other._coefficients)

    def __hash__(self) -> int:
        """Consistent with equality."""
        return hash((self._modulus, self._coefficients.tobytes()))

    def __repr__(self) -> str:
        """For people."""
        return f"ProofPoly[{self._modulus}]({self.coeffs})"

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        """Copies and pickles travel as the proof's bytes."""
        return (type(self).from_bytes, (self.to_bytes(),))

    def to_bytes(self) -> bytes:
        """2 bytes of modulus and 2 bytes per coefficient."""
        return self._modulus.to_bytes(2, "big") + self._coefficients.astype(">u2").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self:
        """The proof that ``data`` encodes. Range and degree are not judged here: see ``toploc.check``.

        Raises:
            TypeError: not bytes.
            ValueError: fewer than 2 bytes, an odd number, or more than 130,996.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a proof is bytes, not {type(data).__name__}")
        data = bytes(data)
        if not 2 <= len(data) <= 2 + 2 * MAX_POINTS or len(data) % 2:
            raise ValueError(
                f"a proof has an even number of bytes from 2 to {2 + 2 * MAX_POINTS}, not {len(data)}"
            )
        words = np.frombuffer(data, dtype=">u2").astype(np.uint16)
        return cls._of(words[1:], int(words[0]))

    def to_base64(self) -> str:
        """The bytes in standard base64 with padding."""
        return base64.b64encode(self.to_bytes()).decode("ascii")

    @classmethod
    def from_base64(cls, base64_str: str) -> Self:
        """The proof that ``to_base64`` gave; any other spelling of the same bytes is refused.

        Raises:
            TypeError: not a string.
            ValueError: not canonical base64, or not a proof's bytes.
        """
        if not isinstance(base64_str, str):
            raise TypeError(f"base64 text is a string, not {type(base64_str).__name__}")
        if len(base64_str) > 4 * (MAX_POINTS + 2):
            raise ValueError("base64 text is longer than any proof")
        try:
            text = base64_str.encode("ascii")
            data = base64.b64decode(text, validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise ValueError(f"not base64: {error}") from None
        if base64.b64encode(data) != text:
            raise ValueError("not canonical base64")
        return cls.from_bytes(data)


_INTEGERS = (torch.int32, torch.uint32, torch.int64)


def _integers(values: Sequence[int], name: str) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be a flat list of integers")
    if array.dtype == np.uint64:
        raise ValueError(f"{name} is out of range")
    return array.astype(np.int64)


def _patterns(y: torch.Tensor) -> npt.NDArray[np.int64]:
    if y.dtype in _INTEGERS:
        whole: npt.NDArray[np.int64] = y.to(torch.int64).numpy()
        return whole
    if y.dtype is torch.float32:
        y = y.to(torch.bfloat16)
    if y.dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"y must hold float16, bfloat16, float32, int32, uint32 or int64, not {y.dtype}")
    patterns: npt.NDArray[np.int64] = y.view(torch.int16).numpy().view(np.uint16).astype(np.int64)
    return patterns
