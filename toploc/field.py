"""Arithmetic in GF(65497): interpolation and evaluation of proof polynomials.

65497 is the largest prime below 2^16 that the proof format uses; 2^16 = 39 modulo it, so a product is reduced by
folding its high half times 39 onto its low half. Two folds of anything below 2^34 leave less than 69,000, which is
small enough to multiply again: values stay unreduced inside the loops and are made canonical once at the end.
"""

import numpy as np
import numpy.typing as npt

from toploc.kernels import inlined, kernel

PRIME = 65497
"""The field's size, and the largest modulus a proof may have."""

_SLACK = 2 * PRIME  # above every value that two folds can leave


@kernel
def _inverses(prime):  # type: ignore[no-untyped-def]
    table = np.zeros(prime, dtype=np.int32)
    table[1] = 1
    for value in range(2, prime):
        table[value] = (prime - prime // value) * np.int64(table[prime % value]) % prime
    return table


INVERSES: npt.NDArray[np.int32] = _inverses(PRIME)
"""``INVERSES[a] * a = 1`` for every a but 0."""


@inlined
def fold(value):  # type: ignore[no-untyped-def]
    """A smaller number equal to ``value`` modulo the prime."""
    return (value & 0xFFFF) + (value >> 16) * 39


@inlined
def canonical(value):  # type: ignore[no-untyped-def]
    """``value`` (at least 0, below 2^34) modulo the prime."""
    value = fold(fold(value))
    return value - PRIME if value >= PRIME else value


@kernel
def largest_injective(points, seen):  # type: ignore[no-untyped-def]
    """The largest m up to the prime for which ``points`` (int64, at least 0) are distinct modulo m; 0 when none is.

    ``seen`` is a bit set of 1,024 zeroed uint64 and is zero again afterwards.
    """
    top = 0
    for i in range(points.size):
        top = max(top, points[i])
    one = np.uint64(1)
    for modulus in range(PRIME, 0, -1):
        collision = False
        upto = points.size
        for i in range(points.size):
            place = points[i] % modulus
            bit = one << np.uint64(place & 63)
            if seen[place >> 6] & bit:
                collision = True
                upto = i
                break
            seen[place >> 6] |= bit
        for i in range(upto):
            seen[(points[i] % modulus) >> 6] = np.uint64(0)
        if not collision:
            return modulus
        if modulus > top or modulus < points.size:  # two equal points, or fewer places than points
            return 0
    return 0


@kernel
def interpolate(x, y, inverses, work, out):  # type: ignore[no-untyped-def]
    """Coefficients (ascending degree) of the polynomial of degree below n through n points.

    Newton's divided differences, then Horner on the Newton basis; n^2 multiplications.

    Args:
        x: int64, distinct, in [0, PRIME).
        y: int64, in [0, 2^16); taken modulo PRIME.
        inverses: ``INVERSES``.
        work: int64, at least 2 n long.
        out: uint16, at least n long; receives the canonical coefficients.
    """
    count = x.size
    difference = work[:count]
    poly = work[count : 2 * count]
    for i in range(count):
        difference[i] = y[i]
        poly[i] = 0
    # After level i, poly[i] is not yet final: newton coefficient i waits in out until Horner needs it.
    out[0] = canonical(difference[0]) if count else 0
    for level in range(1, count):
        for m in range(count - level):
            gap = x[m + level] - x[m]
            gap += (gap >> 63) & PRIME
            difference[m] = fold(fold((difference[m + 1] - difference[m] + _SLACK) * inverses[gap]))
        out[level] = canonical(difference[0])
    if count:
        poly[count - 1] = out[count - 1]
    for i in range(count - 2, -1, -1):
        minus = PRIME - x[i]
        for place in range(i, count - 1):
            poly[place] = fold(fold(poly[place] + minus * poly[place + 1]))
        poly[i] += out[i]
    for i in range(count):
        out[i] = canonical(poly[i])


@kernel
def evaluate(coefficients, x, out):  # type: ignore[no-untyped-def]
    """Values of one polynomial at many points, modulo the prime.

    Args:
        coefficients: uint16, ascending degree.
        x: int64, in [0, 2^16).
        out: int64, as long as x.
    """
    for i in range(x.size):
        out[i] = 0
    for degree in range(coefficients.size - 1, -1, -1):
        coefficient = np.int64(coefficients[degree])
        for i in range(x.size):
            out[i] = fold(fold(out[i] * x[i] + coefficient))
    for i in range(x.size):
        out[i] = canonical(out[i])
