"""How the owner of a chunk turns the members' contributions into one result.

Pure functions of the contributions that are included, their weights, their clip factors and their order (the
roster's): no state of the owner, no clock, no thread count. So an auditor with the same contributions gets the same
bytes.

The weighted mean is kept as a running one (West, 1979): the k-th contribution x with weight w moves the mean
m by (w / W)·(x − m), where W is the exact integer sum of the weights so far. The textbook form, a sum of w·x
divided by the sum of w, rounds a constant away from itself: three equal contributions of equal weight come
back changed in one value out of seven. Here a contribution equal to the mean changes nothing, whatever the
weights. Hence one peer gets exactly what it sent, equal contributions give exactly that, and the divisor is
always the weight that is really in.

The trimmed mean and the median (Yin and others, 2018) are taken value by value. A contribution of weight w counts as w
equal ones, so that many light contributors cannot outvote few heavy ones. Each sorts the contributions by value and
leaves out the same weight at both ends: a fifth for the trimmed mean, all but the middle for the median. Both need
``FEWEST`` contributions in the chunk; with fewer the plain mean is taken.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from numba import types

from diloco.codec import Buffer, Codec, Floats
from diloco.compiled import FLOATS_OUT, kernel

Aggregation = Literal["mean", "trimmed_mean", "median"]

FEWEST = 5
"""Contributions from which on a chunk is trimmed; of fewer too little would be left."""

_TRIM = 5  # one part in so many of the weight is left out at each end of a trimmed mean
_PART = 2**14  # values that are decoded of all contributions at once
_FEW = 32  # contributions that are sorted by insertion
_ROWS = types.Array(types.float32, 2, "C", readonly=True)
_WEIGHTS = types.Array(types.int64, 1, "C", readonly=True)


class RunningMean:
    """The weighted mean of one chunk, fed in roster order, for example while contributions still arrive.

    Not for several threads at once.

    Args:
        codec: How contributions are encoded.
        n: Values of the chunk.
    """

    def __init__(self, codec: Codec, n: int) -> None:
        self._codec = codec
        self._mean = np.empty(n, np.float32)
        self._weight = 0

    @property
    def weight(self) -> int:
        """The sum of the weights that are in."""
        return self._weight

    def add(self, data: Buffer, weight: int, clip: float = 1.0) -> None:
        """Take one more contribution in; it must come after those before it in the roster.

        Args:
            data: Its encoded bytes.
            weight: Its weight, a positive integer (tokens).
            clip: Factor of all its values, over 0 and at most 1, representable in fp32.

        Raises:
            NodeError: ``TRN_CODEC``: the bytes are refused; the mean is as before, and the next may be added.
            ValueError: The weight is not positive; a contribution without weight is left out instead.
        """
        if weight <= 0:
            raise ValueError(f"a weight must be positive, not {weight}")
        if self._weight == 0:
            self._codec.decode_into(data, self._mean)
            self._mean *= np.float32(clip)
        else:
            # Python divides integers of any size with one rounding; the second, to fp32, is the codec's.
            self._codec.blend(self._mean, data, weight / (self._weight + weight), clip)
        self._weight += weight

    def result(self) -> Floats:
        """The mean, fp32 of shape (n,); the object must not be fed any more once it is used.

        Raises:
            ValueError: Nothing was added.
        """
        if self._weight == 0:
            raise ValueError("there is no mean of nothing")
        return self._mean


def aggregate(
    codec: Codec,
    contributions: Sequence[Buffer],
    weights: Sequence[int],
    n: int,
    *,
    clips: Sequence[float] | None = None,
    how: Aggregation = "mean",
) -> Floats:
    """The aggregate of one chunk.

    Args:
        codec: How contributions are encoded.
        contributions: Encoded bytes in roster order.
        weights: Their weights, positive integers (tokens), in the same order.
        n: Values of the chunk.
        clips: Their clip factors in the same order; None for none.
        how: Which aggregate; the trimmed ones need ``FEWEST`` contributions and are the mean below.

    Returns:
        fp32 of shape (n,).

    Raises:
        NodeError: ``TRN_CODEC``: a contribution is refused.
        ValueError: No contribution, a weight that is not positive, or not one weight and factor for each.
    """
    factors = [1.0] * len(contributions) if clips is None else list(clips)
    left_out = trimmed_weight(how, weights)
    if left_out == 0:
        running = RunningMean(codec, n)
        for data, weight, clip in zip(contributions, weights, factors, strict=True):
            running.add(data, weight, clip)
        return running.result()
    if min(weights) <= 0 or sum(weights) >= 2**62:
        raise ValueError(f"weights must be positive and below 2**62 together, not {min(weights)} and more")
    for data, _, _ in zip(contributions, weights, factors, strict=True):
        codec.check(data, n)
    out = np.empty(n, np.float32)
    for start in range(0, n, _PART):
        part = out[start : start + _PART]
        rows = np.empty((len(weights), part.size), np.float32)
        for row, data, clip in zip(rows, contributions, factors, strict=True):
            codec.decode_part(data, n, start, row)
            row *= np.float32(clip)
        _middle(rows, np.array(weights, np.int64), np.int64(left_out), part)
    return out


def trimmed_weight(how: Aggregation, weights: Sequence[int]) -> int:
    """Weight that is left out at each end of the values of one place; 0 for the plain mean."""
    if how == "mean" or len(weights) < FEWEST:
        return 0
    total = sum(weights)
    return total // _TRIM if how == "trimmed_mean" else (total - 1) // 2


@kernel(types.void(_ROWS, _WEIGHTS, types.int64, FLOATS_OUT))
def _middle(
    values: npt.NDArray[np.float32], weights: npt.NDArray[np.int64], left_out: np.int64, out: Floats
) -> None:
    """The running mean, in fp64 and in ascending order, of what is between the two ends of each column."""
    rows, columns = values.shape
    column = np.empty(rows, np.float32)
    weight = np.empty(rows, np.int64)
    last = np.int64(weights.sum() - left_out)
    for place in range(columns):
        if rows <= _FEW:  # insertion, which like the other way keeps equal values in roster order
            for row in range(rows):
                value, to = values[row, place], row
                while to > 0 and column[to - 1] > value:
                    column[to], weight[to] = column[to - 1], weight[to - 1]
                    to -= 1
                column[to], weight[to] = value, weights[row]
        else:
            unordered = values[:, place].copy()
            order = np.argsort(unordered, kind="mergesort")
            for row in range(rows):
                column[row], weight[row] = unordered[order[row]], weights[order[row]]
        mean, kept, end = 0.0, np.int64(0), np.int64(0)
        for row in range(rows):
            begin, end = end, np.int64(end + weight[row])
            part = np.int64(min(end, last) - max(begin, left_out))
            if part > 0:
                kept = np.int64(kept + part)
                mean = mean + np.float64(part) / np.float64(kept) * (np.float64(column[row]) - mean)
        out[place] = np.float32(mean)


def longest(
    norms: Sequence[float], weights: Sequence[int], *, clips: Sequence[float], how: Aggregation = "mean"
) -> float:
    """The largest L2 norm that an aggregate of contributions with these norms can have.

    A mean is no longer than the mean of the lengths. What is kept of a place, of weight K out of W, has a mean whose
    square is at most the mean of all squares times W / K. A median exceeds in magnitude none of at least half of the
    weight, so its square is at most twice the mean of all squares.

    Args:
        norms: L2 norms before clipping.
        weights: Weights in the same order, positive.
        clips: Clip factors in the same order.
        how: Which aggregate.
    """
    clipped = [norm * clip for norm, clip in zip(norms, clips, strict=True)]
    total, left_out = sum(weights), trimmed_weight(how, weights)
    if left_out == 0:
        return sum(w * v for w, v in zip(weights, clipped, strict=True)) / total
    grows = 2.0 if how == "median" else total / (total - 2 * left_out)
    return math.sqrt(grows * sum(w * v * v for w, v in zip(weights, clipped, strict=True)) / total)


def reduce_chunk(
    codec: Codec,
    contributions: Sequence[Buffer],
    weights: Sequence[int],
    n: int,
    *,
    clips: Sequence[float] | None = None,
    how: Aggregation = "mean",
) -> bytes:
    """The reduced chunk: the aggregate, encoded once. All members, the owner too, decode these bytes.

    Arguments and errors are those of :func:`aggregate`.
    """
    return codec.encode(aggregate(codec, contributions, weights, n, clips=clips, how=how))
