"""Could these tokens have been drawn with the noise of their seeds? Asked of every file, without the model.

A token is the largest of log-probability plus Gumbel noise, and the largest sum s of a normalised distribution is again
standard Gumbel: exp(−s) is exponential with mean 1, whatever the distribution was. The noise is known, so the reported
log-probability of each token gives one such number, and an honest rollout's are independent draws. A token that another
seed drew, that was edited, or whose log-probability is not that of the distribution it was drawn from, gives numbers
that are too large or too small, and their sum over n tokens, a Gamma(n) variable, shows it (Chernoff's bound).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from protocol.errors import Code
from protocol.units import Digest, PeerId
from rl.rollouts.record import Group, Rollout
from rl.sampling.single import noise_of
from rl.validation.verdict import Finding
from rl.work.seeds import token_seed

_LEAST = 1e-12
"""An honest rollout, or file, is refused with this probability at most."""
_MOST = 300.0  # of an exponent; a sum of many such numbers is still finite


def check_plausibility(groups: Sequence[Group], beacon: Digest, worker: PeerId) -> Iterator[Finding]:
    """Findings on a file whose tokens are of the vocabulary and whose log-probabilities are finite.

    Args:
        groups: What it holds; drawn at a temperature above 0.
        beacon: Of the policy version that was leased.
        worker: Who drew.
    """
    total, count = 0.0, 0
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    seeds = [token_seed(beacon, rollout.position, worker, rollout.index) for rollout in rollouts]
    for rollout, values in zip(rollouts, exponentials(rollouts, seeds), strict=True):
        total, count = total + float(values.sum()), count + len(values)
        worst = int(values.argmax())
        if len(values) * math.exp(-values[worst]) < _LEAST:
            place = int(np.flatnonzero(rollout.sampled)[worst])
            yield Finding(
                Code.RL_IMPLAUSIBLE,
                f"The noise of its seed cannot have drawn token {rollout.tokens[place]} at {place}: "
                f"it lies {math.log(values[worst]):.1f} below what draws.",
                rollout.position,
                rollout.index,
                {"place": place, "token": int(rollout.tokens[place]), "value": float(values[worst])},
            )
        elif tail(float(values.sum()), len(values)) < _LEAST:
            yield Finding(
                Code.RL_IMPLAUSIBLE,
                f"The noise of its seed cannot have drawn these {len(values)} tokens with these log-probabilities: "
                f"their sum is {values.sum():.4g}.",
                rollout.position,
                rollout.index,
                {"tokens": len(values), "sum": float(values.sum())},
            )
    if count and tail(total, count) < _LEAST:
        yield Finding(
            Code.RL_IMPLAUSIBLE,
            f"All log-probabilities together are not those of what was drawn: the sum over {count} tokens "
            f"is {total:.6g}.",
            evidence={"tokens": count, "sum": total},
        )


def exponentials(rollouts: Sequence[Rollout], seeds: Sequence[bytes]) -> list[npt.NDArray[np.float64]]:
    """For each rollout one number for each sampled token; of honest ones, independent and exponential with mean 1."""
    if not rollouts:
        return []
    masks = [rollout.sampled for rollout in rollouts]
    counts = [int(mask.sum()) for mask in masks]
    tokens = np.concatenate([rollout.tokens[mask] for rollout, mask in zip(rollouts, masks, strict=True)])
    logprobs = np.concatenate([rollout.logprobs[mask] for rollout, mask in zip(rollouts, masks, strict=True)])
    sums = logprobs.astype(np.float64) + noise_of(seeds, counts, tokens.astype(np.int64))
    return np.split(np.exp(np.clip(-sums, -_MOST, _MOST)), np.cumsum(counts)[:-1])


def tail(total: float, count: int) -> float:
    """Most that the probability of a sum at least as far from the mean can be, for ``count`` such numbers."""
    mean = total / count
    if mean <= 0:
        return 0.0
    return math.exp(max(-_MOST, -count * (mean - 1 - math.log(mean))))
