"""The distribution that a token is drawn from, made from the model's logits."""

import math

import numpy as np
import numpy.typing as npt

from rl.sampling.settings import Sampling


def processed(logits: npt.NDArray[np.float32], sampling: Sampling) -> npt.NDArray[np.float32]:
    """Log-probabilities of the distribution that is sampled: temperature first, then top-k, then top-p.

    Of tokens with equal logits at a cut, the lower ids stay. What is kept is normalised again, so the log-probability
    of a drawn token is that of the distribution it was drawn from.

    Args:
        logits: float32[V].
        sampling: Temperature and cuts.

    Returns:
        float32[V], −inf where cut.

    Raises:
        ValueError: A logit is not finite.
    """
    if sampling.temperature == 0:
        _check_finite(float(logits.min()), float(logits.max()))
        out = np.full(len(logits), -np.inf, np.float32)
        out[int(np.argmax(logits))] = 0
        return out
    tempered = shifted(logits, sampling.temperature)
    if sampling.top_p == 1 and not 0 < sampling.top_k < len(logits):
        tempered -= np.float32(math.log(float(np.exp(tempered).sum())))
        return tempered
    kept = nucleus(tempered, sampling.top_k, sampling.top_p)
    out = np.full(len(logits), -np.inf, np.float32)
    values = tempered[kept]
    out[kept] = values - np.float32(math.log(float(np.exp(values).sum())))
    return out


def shifted(logits: npt.NDArray[np.float32], temperature: float) -> npt.NDArray[np.float32]:
    """``logits / temperature``, moved so that the largest is 0.

    Raises:
        ValueError: A logit is not finite.
    """
    largest = float(logits.max())
    _check_finite(float(logits.min()), largest)
    return (logits - np.float32(largest)) / np.float32(temperature)


def nucleus(tempered: npt.NDArray[np.float32], top_k: int, top_p: float) -> npt.NDArray[np.int64]:
    """Which tokens top-k and then top-p keep, the most likely first.

    Args:
        tempered: float32[V], the largest 0.
        top_k: 0 keeps all.
        top_p: Of the probability that top-k left.

    Returns:
        int64 ids, at least one.
    """
    count = len(tempered)
    ids = np.arange(count)
    if 0 < top_k < count:
        least = np.partition(tempered, count - top_k)[count - top_k]
        above = np.flatnonzero(tempered > least)
        ids = np.concatenate([above, np.flatnonzero(tempered == least)[: top_k - len(above)]])
        ids.sort()
    values = tempered[ids]
    if top_p < 1:
        weights = np.exp(values)
        total = float(weights.sum())
        # What lies below this sums to less than what may be cut, so it is cut, and need not be sorted.
        likely = np.flatnonzero(weights >= (1 - top_p) * total / (2 * len(values)))
        ids, values, weights = ids[likely], values[likely], weights[likely]
    order = np.argsort(-values, kind="stable")
    if top_p < 1:
        before = np.cumsum(weights[order], dtype=np.float64) - weights[order]
        order = order[: max(1, int(np.count_nonzero(before < top_p * total)))]
    return ids[order]


def _check_finite(least: float, largest: float) -> None:
    if not (math.isfinite(least) and math.isfinite(largest)):
        raise ValueError("the logits are not finite")
