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

_WIDE = np.uint64
_SLACK = np.uint64(2 * PRIME)  # above every value that two folds can leave
_LOW = np.uint64(0xFFFF)
_HIGH = np.uint64(16)
_EXCESS = np.uint64(39)


@kernel
def _inverses(prime):  # type: ignore[no-untyped-def]
    table = np.zeros(prime, dtype=np.uint32)
    table[1] = 1
    for value in range(2, prime):
        table[value] = (prime - prime // value) * np.int64(table[prime % value]) % prime
    return table


INVERSES: npt.NDArray[np.uint32] = _inverses(PRIME)
"""``INVERSES[a] * a = 1`` for every a but 0."""


@inlined
def fold(value):  # type: ignore[no-untyped-def]
    """A smaller number equal to ``value`` modulo the prime."""
    return (value & _LOW) + (value >> _HIGH) * _EXCESS


@inlined
def canonical(value):  # type: ignore[no-untyped-def]
    """``value`` (uint64, below 2^34) modulo the prime."""
    value = fold(fold(value))
    return value - _WIDE(PRIME) if value >= _WIDE(PRIME) else value


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

    Newton's divided differences, then Horner on the Newton basis; n^2 multiplications. Every pass reads one row and
    writes another, and table look-ups have a loop of their own, so that the compiler vectorizes the rest.

    Args:
        x: uint32, distinct, below PRIME.
        y: uint32, below 2^16; taken modulo PRIME.
        inverses: ``INVERSES``.
        work: uint32 [3, n] at least.
        out: uint16, at least n long; receives the canonical coefficients.
    """
    count = x.size
    if count == 0:
        return
    now = work[0]
    then = work[1]
    gaps = work[2]
    for i in range(count):
        now[i] = y[i]
    out[0] = canonical(_WIDE(now[0]))  # the Newton coefficients wait in out until Horner needs them
    for level in range(1, count):
        left = count - level
        low, high, inverse = x[:left], x[level:], gaps[:left]
        for m in range(left):
            gap = np.uint32(high[m] - low[m])
            inverse[m] = inverses[min(gap, np.uint32(gap + np.uint32(PRIME)))]
        a, b, c = now[:left], now[1 : left + 1], then[:left]
        for m in range(left):
            c[m] = fold(fold((_WIDE(b[m]) + _SLACK - _WIDE(a[m])) * _WIDE(inverse[m])))
        now, then = then, now
        out[level] = canonical(_WIDE(now[0]))
    for i in range(count):
        now[i] = 0
    now[count - 1] = out[count - 1]
    for i in range(count - 2, -1, -1):
        minus = _WIDE(PRIME) - _WIDE(x[i])
        a, b, c = now[i : count - 1], now[i + 1 : count], then[i : count - 1]
        for m in range(count - 1 - i):
            c[m] = fold(fold(_WIDE(a[m]) + minus * _WIDE(b[m])))
        then[count - 1] = now[count - 1]
        then[i] += np.uint32(out[i])
        now, then = then, now
        if i > 0:
            now[i - 1] = 0
    for i in range(count):
        out[i] = canonical(_WIDE(now[i]))


@kernel
def evaluate(coefficients, x, out):  # type: ignore[no-untyped-def]
    """Values of one polynomial at many points, modulo the prime.

    Args:
        coefficients: uint16, ascending degree.
        x: uint32, below 2^16.
        out: uint32, as long as x.
    """
    for i in range(x.size):
        out[i] = 0
    for degree in range(coefficients.size - 1, -1, -1):
        coefficient = _WIDE(coefficients[degree])
        for i in range(x.size):
            out[i] = fold(fold(_WIDE(out[i]) * _WIDE(x[i]) + coefficient))
    for i in range(x.size):
        out[i] = canonical(_WIDE(out[i]))
