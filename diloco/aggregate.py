"""How the owner of a chunk turns the members' contributions into one result.

Pure functions of the contributions that are included, their weights and their order (the roster's): no state
of the owner, no clock, no thread count. So an auditor with the same contributions gets the same bytes.

The weighted mean is kept as a running one (West, 1979): the k-th contribution x with weight w moves the mean
m by (w / W)·(x − m), where W is the exact integer sum of the weights so far. The textbook form, a sum of w·x
divided by the sum of w, rounds a constant away from itself: three equal contributions of equal weight come
back changed in one value out of seven. Here a contribution equal to the mean changes nothing, whatever the
weights. Hence one peer gets exactly what it sent, equal contributions give exactly that, and the divisor is
always the weight that is really in.
"""

from collections.abc import Sequence

import numpy as np

from diloco.codec import Buffer, Codec, Floats


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

    def add(self, data: Buffer, weight: int) -> None:
        """Take one more contribution in; it must come after those before it in the roster.

        Args:
            data: Its encoded bytes.
            weight: Its weight, a positive integer (tokens).

        Raises:
            NodeError: ``TRN_CODEC``: the bytes are refused; the mean is as before, and the next may be added.
            ValueError: The weight is not positive; a contribution without weight is left out instead.
        """
        if weight <= 0:
            raise ValueError(f"a weight must be positive, not {weight}")
        if self._weight == 0:
            self._codec.decode_into(data, self._mean)
        else:
            # Python divides integers of any size with one rounding; the second, to fp32, is the codec's.
            self._codec.blend(self._mean, data, weight / (self._weight + weight))
        self._weight += weight

    def result(self) -> Floats:
        """The mean, fp32 of shape (n,); the object must not be fed any more once it is used.

        Raises:
            ValueError: Nothing was added.
        """
        if self._weight == 0:
            raise ValueError("there is no mean of nothing")
        return self._mean


def mean(codec: Codec, contributions: Sequence[Buffer], weights: Sequence[int], n: int) -> Floats:
    """Weighted mean of one chunk.

    Args:
        codec: How contributions are encoded.
        contributions: Encoded bytes in roster order.
        weights: Their weights, positive integers (tokens), in the same order.
        n: Values of the chunk.

    Returns:
        fp32 of shape (n,).

    Raises:
        NodeError: ``TRN_CODEC``: a contribution is refused.
        ValueError: No contribution, a weight that is not positive, or not one weight for each.
    """
    running = RunningMean(codec, n)
    for data, weight in zip(contributions, weights, strict=True):
        running.add(data, weight)
    return running.result()


def reduce_chunk(codec: Codec, contributions: Sequence[Buffer], weights: Sequence[int], n: int) -> bytes:
    """The reduced chunk: the weighted mean, encoded once. All members, the owner too, decode these bytes.

    Arguments and errors are those of :func:`mean`.
    """
    return codec.encode(mean(codec, contributions, weights, n))
