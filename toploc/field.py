"""Arithmetic in GF(65497): interpolation and evaluation of proof polynomials.

65497 is the largest prime below 2^16 that the proof format uses; 2^16 = 39 modulo it, so a product is reduced by
folding its high half times 39 onto its low half, twice. A product of two canonical numbers plus a third fits into 32
bits, which a processor's vectors hold twice as many of as of 64.
"""

import numpy as np
import numpy.typing as npt

from toploc.kernels import inlined, kernel

PRIME = 65497
"""The field's size, and the largest modulus a proof may have."""

_PRIME = np.uint32(PRIME)
_LOW = np.uint32(0xFFFF)
_HIGH = np.uint32(16)
_EXCESS = np.uint32(39)


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
def reduced(value):  # type: ignore[no-untyped-def]
    """A uint32 modulo the prime."""
    value = np.uint32((value & _LOW) + (value >> _HIGH) * _EXCESS)
    value = np.uint32((value & _LOW) + (value >> _HIGH) * _EXCESS)
    return min(value, np.uint32(value - _PRIME))  # what is below the prime wraps and becomes large


@inlined
def _difference(a, b):  # type: ignore[no-untyped-def]
    """``a - b`` modulo the prime, of two canonical uint32."""
    gap = np.uint32(a - b)
    return min(gap, np.uint32(gap + _PRIME))


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
def interpolate(positions, modulus, values, inverses, out):  # type: ignore[no-untyped-def]
    """Coefficients (ascending degree) of the polynomial of degree below n through (position modulo m, value), n times.

    Newton's form first: the coefficient of each basis polynomial (x - x_0) ... (x - x_k-1) is what is left of y_k over
    the basis at x_k, and is taken off the later points at once. Then Horner's rule on that form. 3/2 n^2
    multiplications, n divisions; the loops over points are what the compiler vectorizes.

    Args:
        positions: int64, at least 0, distinct modulo ``modulus``.
        modulus: m, up to PRIME.
        values: uint16, as many; taken modulo PRIME.
        inverses: ``INVERSES``.
        out: uint16, at least n long; receives the canonical coefficients.
    """
    count = positions.size
    if count == 0:
        return
    x = np.empty(count, dtype=np.uint32)
    now = np.empty(count, dtype=np.uint32)
    then = np.empty(count, dtype=np.uint32)
    rest, basis = now, then  # what is left of the values, and the basis polynomial, at each point
    for i in range(count):
        x[i] = positions[i] % modulus
        rest[i] = reduced(np.uint32(values[i]))
        basis[i] = 1
    for k in range(count):
        coefficient = reduced(np.uint32(rest[k] * inverses[basis[k]]))
        out[k] = coefficient  # where Newton's coefficients wait until Horner needs them
        minus = np.uint32(_PRIME - coefficient)
        left, root = x[k + 1 : count], x[k]
        a, b = rest[k + 1 : count], basis[k + 1 : count]
        for m in range(left.size):
            a[m] = reduced(np.uint32(a[m] + minus * b[m]))
            b[m] = reduced(np.uint32(b[m] * _difference(left[m], root)))
    for i in range(count):
        now[i] = 0
    now[count - 1] = out[count - 1]
    for i in range(count - 2, -1, -1):
        minus = np.uint32(_PRIME - x[i])
        a, b, c = now[i : count - 1], now[i + 1 : count], then[i : count - 1]
        for m in range(count - 1 - i):
            c[m] = reduced(np.uint32(a[m] + minus * b[m]))
        then[count - 1] = now[count - 1]
        then[i] = reduced(np.uint32(then[i] + out[i]))
        now, then = then, now
        if i > 0:
            now[i - 1] = 0
    for i in range(count):
        out[i] = now[i]


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
        coefficient = np.uint32(coefficients[degree])
        for i in range(x.size):
            out[i] = reduced(np.uint32(out[i] * x[i] + coefficient))
