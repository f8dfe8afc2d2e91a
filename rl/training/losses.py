"""Losses of single tokens, by name, and their sum over a micro-batch. Pure functions of tensors.

A ratio is the probability of a sampled token now, divided by the one it was sampled with. All inputs are flat: one
value per sampled token, so padding, prompts and an environment's words never come here, and a micro-batch without a
sampled token is an empty tensor: its loss is 0 and so are its gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rl.training.settings import ObjectiveSection

_LARGEST = 20.0
"""Logarithm of the largest ratio that is computed. Beyond it an exponential overflows in fp32, and infinity times the
zero gradient of a clip is no number."""


@dataclass(frozen=True)
class TokenLoss:
    """What a loss says of each token.

    Attributes:
        values: The loss.
        cut: Where the ratio was outside of what counts, so that the token moves nothing.
    """

    values: Tensor
    cut: Tensor


def log_ratio(logprobs: Tensor, behaviour: Tensor) -> Tensor:
    """Logarithm of the ratios, bounded on both sides; without a gradient beyond the bounds."""
    return (logprobs - behaviour).clamp(-_LARGEST, _LARGEST)


def two_sided_clip(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, settings: ObjectiveSection
) -> TokenLoss:
    """GRPO with a bound for negative advantages as well (INTELLECT-2, section 3.4).

    Minus the smaller of min(ratio, delta) · advantage and clip(ratio, 1 - epsilon, 1 + epsilon) · advantage.
    """
    ratio = log_ratio(logprobs, behaviour).exp()
    low, high = 1 - settings.epsilon, 1 + settings.epsilon
    values = -torch.minimum(ratio.clamp(max=settings.delta) * advantages, ratio.clamp(low, high) * advantages)
    too_good = (advantages > 0) & (ratio > high)
    too_bad = (advantages < 0) & ((ratio < low) | (ratio > settings.delta))
    return TokenLoss(values, too_good | too_bad)


def icepop(logprobs: Tensor, behaviour: Tensor, advantages: Tensor, settings: ObjectiveSection) -> TokenLoss:
    """Importance sampling that leaves out tokens whose ratio is below alpha or above beta (IcePop, Ling 2025)."""
    ratio = log_ratio(logprobs, behaviour).exp()
    kept = (ratio >= settings.alpha) & (ratio <= settings.beta)
    return TokenLoss(-torch.where(kept, ratio, 0.0) * advantages, ~kept)


def policy_gradient(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, settings: ObjectiveSection
) -> TokenLoss:
    """REINFORCE (Williams 1992); the group's mean is the baseline, and is in the advantages already."""
    return TokenLoss(-logprobs * advantages, torch.zeros_like(logprobs, dtype=torch.bool))


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, ObjectiveSection], TokenLoss]] = {
    "two-sided-clip": two_sided_clip,
    "icepop": icepop,
    "policy-gradient": policy_gradient,
}


def divergence(kind: str, logprobs: Tensor, reference: Tensor) -> Tensor:
    """An estimate of KL(policy ‖ reference) from each token, with its gradient (Schulman 2020).

    With x = reference - logprobs: ``k1`` is -x, ``k2`` is x² / 2, ``k3`` is exp(x) - 1 - x.
    """
    x = (reference - logprobs).clamp(-_LARGEST, _LARGEST)
    if kind == "k1":
        return -x
    return x.square() / 2 if kind == "k2" else x.exp() - 1 - x


@dataclass(frozen=True)
class Measured:
    """The loss of a micro-batch, and what there is to say about it.

    Attributes:
        loss: Summed over its tokens; to be divided by the sampled tokens of the whole step on all ranks.
        sums: float64[``SUMS``], summed over its tokens as well.
        peaks: float64[``PEAKS``], the largest of each.
    """

    loss: Tensor
    sums: Tensor
    peaks: Tensor


SUMS = ("entropy", "kl", "reference_kl", "clipped", "ratio")
"""Nats; nats of divergence between sampling and trained policy; the same from the reference; share; mean ratio."""
PEAKS = ("ratio_max",)


def measure(
    logprobs: Tensor,
    entropy: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    reference: Tensor | None,
    settings: ObjectiveSection,
) -> Measured:
    """The loss of the sampled tokens of a micro-batch, with penalties.

    Args:
        logprobs: float[N] of the sampled tokens under the policy in training.
        entropy: float[N] of the distributions that they are from.
        behaviour: float[N] log-probabilities under the policy that sampled them.
        advantages: float[N].
        reference: float[N] log-probabilities under the reference policy; needed where ``kl_coefficient`` is not 0.
        settings: Which loss, with which coefficients.
    """
    token = LOSSES[settings.loss](logprobs, behaviour, advantages, settings)
    values = token.values
    apart = torch.zeros_like(logprobs) if reference is None else divergence(settings.kl, logprobs, reference)
    if settings.kl_coefficient:
        values = values + settings.kl_coefficient * apart
    if settings.entropy_coefficient:
        values = values - settings.entropy_coefficient * entropy
    with torch.no_grad():
        logs = log_ratio(logprobs, behaviour)
        ratio = logs.exp()
        moved = ratio - 1 - logs  # k3 of KL(behaviour ‖ policy): the tokens come from the former
        columns = (entropy, moved, apart, token.cut, ratio)
        sums = torch.stack([column.double().sum() for column in columns])
        peak = ratio.double().amax() if len(ratio) else ratio.new_zeros((), dtype=torch.float64)
    return Measured(values.sum(), sums.cpu(), peak.reshape(1).cpu())
