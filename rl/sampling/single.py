"""Single values of the noise, for many tokens at once: for who knows which tokens were drawn.

Philox 4x64 with ten rounds (Salmon et al. 2011) in arrays, in the order in which numpy's generator hands out its words.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rl.sampling.noise import SEED_BYTES

_Words = npt.NDArray[np.uint64]
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def noise_of(
    seeds: Sequence[bytes], counts: Sequence[int], tokens: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """For each drawn token the noise that it was drawn with: ``noise(seed, t, vocab)[token]``.

    Args:
        seeds: 32 bytes for each rollout.
        counts: How many tokens each rollout sampled.
        tokens: int64[sum of counts], rollout after rollout; none is negative.

    Returns:
        float64[sum of counts].

    Raises:
        ValueError: A seed has not 32 bytes.
    """
    if any(len(seed) != SEED_BYTES for seed in seeds):
        raise ValueError(f"a seed has {SEED_BYTES} bytes")
    words = np.frombuffer(b"".join(seeds), "<u8").astype(np.uint64).reshape(-1, 4)
    first, second, third, fourth = np.repeat(words, counts, axis=0).T
    numbers = np.concatenate([np.arange(count) for count in counts] or [np.arange(0)]).astype(np.uint64)
    place = tokens.astype(np.uint64) // np.uint64(2)
    block = place // np.uint64(4) + np.uint64(1)  # numpy counts before it makes the first block
    made = _philox((block, numbers, third, fourth), (first, second))
    word = np.choose((place % np.uint64(4)).astype(np.int64), made)
    half = np.where(tokens % 2 == 1, word >> _HALF, word & _LOW).astype(np.float64)
    values: npt.NDArray[np.float64] = -np.log(-np.log((half + 0.5) * 2.0**-32))
    return values


def _philox(counter: tuple[_Words, _Words, _Words, _Words], key: tuple[_Words, _Words]) -> tuple[_Words, ...]:
    zero, one, two, three = counter
    left, right = key
    for number in range(_ROUNDS):
        if number:
            left, right = left + np.uint64(_STEPS[0]), right + np.uint64(_STEPS[1])
        high, low = _product(_MULTIPLIERS[0], zero)
        other_high, other_low = _product(_MULTIPLIERS[1], two)
        zero, one, two, three = other_high ^ one ^ left, other_low, high ^ three ^ right, low
    return zero, one, two, three


def _product(factor: int, words: _Words) -> tuple[_Words, _Words]:
    """The high and the low half of 128-bit products."""
    high, low = np.uint64(factor >> 32), np.uint64(factor & 0xFFFFFFFF)
    upper, lower = words >> _HALF, words & _LOW
    cross = high * lower + ((low * lower) >> _HALF)
    more = low * upper + (cross & _LOW)
    return high * upper + (cross >> _HALF) + (more >> _HALF), np.uint64(factor) * words
