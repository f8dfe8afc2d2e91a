"""Gumbel noise that is the same on every machine, and the choice it makes."""

import threading

import numpy as np
import numpy.typing as npt

SEED_BYTES = 32
_MAX_VOCAB = 2**24
_own = threading.local()


def noise(seed: bytes, t: int, vocab: int) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise for every token of the vocabulary.

    Philox 4x64 (Salmon et al. 2011) is keyed by the seed's first half; its counter holds the block in the lowest
    64 bits, ``t`` in the next, the seed's second half in the rest. The words' 32-bit halves k, low half first, become
    −log(−log((k + ½) / 2³²)). The integers are equal everywhere, the logarithms to the last bit of their type.

    Args:
        seed: 32 bytes.
        t: Index of the sampled token in the rollout, over all its turns.
        vocab: Number of tokens.

    Returns:
        float64[vocab].

    Raises:
        ValueError: The seed has not 32 bytes, or a number is out of range.
    """
    return _gumbel(_integers(seed, t, vocab))


def noise_at(seed: bytes, t: int, vocab: int, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """``noise(seed, t, vocab)[tokens]``, with fewer logarithms."""
    return _gumbel(_integers(seed, t, vocab)[tokens])


def noise_rows(seed: bytes, numbers: npt.NDArray[np.int64], vocab: int) -> npt.NDArray[np.float64]:
    """``noise(seed, t, vocab)`` for several t, float64[len(numbers), vocab]."""
    rows = [_integers(seed, int(number), vocab) for number in numbers]
    return _gumbel(np.stack(rows)) if rows else np.empty((0, vocab))


def choose(logprobs: npt.NDArray[np.float32], noise: npt.NDArray[np.float64]) -> int:
    """The drawn token: the largest sum, of equal ones the first.

    Args:
        logprobs: float32[V], −inf where the distribution is cut.
        noise: float64[V].
    """
    return int(np.argmax(logprobs + noise))


def _integers(seed: bytes, t: int, vocab: int) -> npt.NDArray[np.uint32]:
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
    if not 0 <= t < 2**63 or not 0 < vocab <= _MAX_VOCAB:
        raise ValueError(f"there is no token {t} over a vocabulary of {vocab}")
    # A generator is made once in each thread and set to its place: making one takes four times as long.
    if not hasattr(_own, "philox"):
        _own.philox = np.random.Philox(key=0)
        _own.state = _own.philox.state
    words = np.frombuffer(seed, "<u8")
    _own.state["state"]["key"][:] = words[:2]
    _own.state["state"]["counter"][:] = (0, t, words[2], words[3])
    _own.philox.state = _own.state
    drawn: npt.NDArray[np.uint64] = _own.philox.random_raw((vocab + 1) // 2)
    return drawn.astype("<u8", copy=False).view("<u4")[:vocab]


def _gumbel(integers: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    values = integers.astype(np.float64)
    values += 0.5
    values *= 2.0**-32
    for _ in range(2):
        np.log(values, out=values)
        np.negative(values, out=values)
    return values
