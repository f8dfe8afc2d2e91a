"""Was this token drawn by the law? Asked by who computed the logits again, on other hardware or in another order.

Logits that were computed twice differ a little, so an honest token may differ from the one that comes out here. It
then is a *near tie*: had the tempered logits been off by at most the tolerance each, it would have been the choice.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rl.sampling.distribution import nucleus, shifted
from rl.sampling.noise import noise_at
from rl.sampling.settings import Sampling


@dataclass(frozen=True)
class Rederived:
    """What the law says about one claimed token.

    Attributes:
        chosen: The token that these logits give.
        logprob: The claimed token's log-probability under the sampled distribution, −inf where it is cut.
        gap: By how much log-probability plus noise of the claimed token lies below the choice's. 0 if it is the
            choice, inf if it is cut even where the cut is moved by the tolerance.
        possible: It is the choice, or a near tie.
    """

    chosen: int
    logprob: float
    gap: float
    possible: bool


def rederive(
    logits: npt.NDArray[np.float32], sampling: Sampling, seed: bytes, t: int, token: int, tolerance: float
) -> Rederived:
    """Judge one token.

    Args:
        logits: float32[V], computed by the validator.
        sampling: The rollout's.
        seed: 32 bytes, the rollout's.
        t: Index of the token among the sampled ones.
        token: What the worker says was drawn.
        tolerance: Largest honest difference of one logit, in units of the logits.

    Raises:
        ValueError: A logit is not finite, or the token is none of the vocabulary.
    """
    vocab = len(logits)
    if not 0 <= token < vocab:
        raise ValueError(f"token {token} is not of a vocabulary of {vocab}")
    if sampling.temperature == 0:
        tempered = shifted(logits, 1.0)
        best = int(np.argmax(tempered))
        gap = float(-tempered[token])
        return Rederived(best, 0.0 if token == best else -math.inf, gap, gap <= 2 * tolerance)
    slack = tolerance / sampling.temperature
    tempered = shifted(logits, sampling.temperature)
    kept = nucleus(tempered, sampling.top_k, sampling.top_p)
    scores = tempered[kept] + noise_at(seed, t, vocab, kept)
    place = int(np.lexsort((kept, -scores))[0])
    found = np.flatnonzero(kept == token)
    own = (
        float(scores[found[0]])
        if len(found)
        else float(tempered[token] + noise_at(seed, t, vocab, np.array([token]))[0])
    )
    logprob = -math.inf
    if len(found):
        logprob = float(tempered[token]) - math.log(float(np.exp(tempered[kept]).sum()))
    if not len(found) and not _may_stay(tempered, kept, sampling, token, slack):
        return Rederived(int(kept[place]), logprob, math.inf, False)
    # Rivals that the other computation may have cut do not count against the token.
    sure = _sure(tempered, kept, sampling, slack)
    rival = float(scores[sure].max(initial=-math.inf))
    gap = 0.0 if kept[place] == token else max(0.0, float(scores[place]) - own)
    return Rederived(int(kept[place]), logprob, gap, kept[place] == token or rival - own <= 2 * slack)


def _may_stay(
    tempered: npt.NDArray[np.float32],
    kept: npt.NDArray[np.int64],
    sampling: Sampling,
    token: int,
    slack: float,
) -> bool:
    """Whether a token that is cut here lies so near the cut that it may have been kept there."""
    loose = min(1.0, sampling.top_p * math.exp(2 * slack))
    edge = (
        tempered[nucleus(tempered, sampling.top_k, loose)[-1]]
        if loose > sampling.top_p
        else tempered[kept[-1]]
    )
    return bool(tempered[token] >= edge - 2 * slack)


def _sure(
    tempered: npt.NDArray[np.float32], kept: npt.NDArray[np.int64], sampling: Sampling, slack: float
) -> npt.NDArray[np.bool_]:
    """Which of the kept tokens no difference within the slack would have cut."""
    everything = sampling.top_p == 1 and not 0 < sampling.top_k < len(tempered)
    if everything:
        return np.ones(len(kept), np.bool_)
    tight = nucleus(tempered, sampling.top_k, sampling.top_p * math.exp(-2 * slack))
    sure: npt.NDArray[np.bool_] = tempered[kept] >= tempered[tight[-1]] + 2 * slack
    sure[0] = sure[0] or len(kept) == 1
    return sure
