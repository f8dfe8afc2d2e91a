"""Losses against published values, and where their gradients are."""

import math
from collections.abc import Sequence

import pytest
import torch

from rl.training.losses import LOSSES, PEAKS, SUMS, Measured, TokenLoss, divergence, measure
from rl.training.settings import ObjectiveSection

ALL = sorted(LOSSES)


def tokens(
    ratios: Sequence[float], advantages: Sequence[float], name: str = "two-sided-clip", **keys: float
) -> tuple[TokenLoss, torch.Tensor]:
    """The loss of tokens whose ratios are these, and the gradient of each one's log-probability."""
    behaviour = torch.full((len(ratios),), -1.0, dtype=torch.float64)
    logprobs = (behaviour + torch.tensor(ratios, dtype=torch.float64).log()).requires_grad_()
    settings = ObjectiveSection(loss=name, **keys)  # type: ignore[arg-type]
    loss = LOSSES[name](logprobs, behaviour, torch.tensor(advantages, dtype=torch.float64), settings)
    (gradient,) = torch.autograd.grad(loss.values.sum(), logprobs)
    return loss, gradient


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (10.0, -1.0, 4.0, 0.0),
        (1.5, 1.0, -1.2, 0.0),
        (3.0, -1.0, 3.0, 3.0),
        (0.5, -1.0, 0.8, 0.0),
        (0.5, 1.0, -0.5, -0.5),
    ],
)
def test_the_two_sided_clip_at_published_points(
    ratio: float, advantage: float, loss: float, gradient: float
) -> None:
    got, slope = tokens([ratio], [advantage])
    assert got.values.item() == pytest.approx(loss)
    assert slope.item() == pytest.approx(gradient)
    assert bool(got.cut) == (gradient == 0.0)


def test_icepop_leaves_out_ratios_outside_of_its_bounds() -> None:
    ratios = [0.4, 0.51, 1.0, 4.9, 5.1]
    got, slope = tokens(ratios, [1.0] * 5, "icepop")
    assert got.values.sum().item() / 5 == pytest.approx(-(0.51 + 1 + 4.9) / 5)
    assert slope.tolist() == pytest.approx([0.0, -0.51, -1.0, -4.9, 0.0])
    assert got.cut.tolist() == [True, False, False, False, True]


def test_plain_policy_gradient_weighs_log_probabilities_by_advantages() -> None:
    got, slope = tokens([1.0, 7.0], [2.0, -3.0], "policy-gradient")
    assert slope.tolist() == [-2.0, 3.0] and not got.cut.any()


@pytest.mark.parametrize("name", ALL)
def test_on_policy_all_losses_have_the_gradient_of_the_policy(name: str) -> None:
    _, slope = tokens([1.0, 1.0], [1.5, -0.5], name)
    assert slope.tolist() == pytest.approx([-1.5, 0.5])


def whole(logprobs: torch.Tensor, advantages: Sequence[float], **keys: object) -> Measured:
    settings = ObjectiveSection(**keys)  # type: ignore[arg-type]
    entropy = -logprobs.detach()
    reference = torch.full_like(logprobs, -2.0).detach()
    return measure(logprobs, entropy, logprobs.detach(), torch.tensor(advantages), reference, settings)


def test_two_sequences_of_different_length_count_by_their_tokens() -> None:
    got = whole(torch.full((8,), -1.0), [1.0] * 2 + [-1.0] * 6)
    assert got.loss.item() / 8 == pytest.approx(0.5)
    sums = dict(zip(SUMS, got.sums.tolist(), strict=True))
    assert sums["ratio"] == 8 and sums["clipped"] == 0 and sums["kl"] == 0 and sums["entropy"] == 8
    assert dict(zip(PEAKS, got.peaks.tolist(), strict=True)) == {"ratio_max": 1.0}


def test_the_estimators_of_divergence_at_a_distance_of_one() -> None:
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert divergence("k1", zero, one).item() == -1.0
    assert divergence("k2", zero, one).item() == 0.5
    assert divergence("k3", zero, one).item() == pytest.approx(0.718281828)


def test_the_mean_of_k3_over_a_policy_s_own_samples_is_the_divergence() -> None:
    policy, other = (torch.tensor(p, dtype=torch.float64).log() for p in ([0.7, 0.2, 0.1], [0.3, 0.3, 0.4]))
    truth = (policy.exp() * (policy - other)).sum()
    for kind in ("k1", "k3"):
        assert (policy.exp() * divergence(kind, policy, other)).sum() == pytest.approx(truth)


@pytest.mark.failure_mode(51)
@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_the_gradient_changes_with_the_coefficient_of_the_divergence(kind: str) -> None:
    slopes = []
    for coefficient in (0.0, 0.1, 0.2):
        logprobs = torch.full((2,), -1.0, requires_grad=True)
        whole(logprobs, [1.0, -1.0], kl=kind, kl_coefficient=coefficient).loss.backward()
        assert logprobs.grad is not None
        slopes.append(logprobs.grad.clone())
    pull = slopes[1] - slopes[0]
    assert (pull > 0).all(), "towards the reference, which gives these tokens less"
    torch.testing.assert_close(slopes[2] - slopes[0], 2 * pull)


def test_the_gradient_changes_with_the_coefficient_of_the_entropy() -> None:
    slopes = []
    for coefficient in (0.0, 0.5):
        logits = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
        logs = torch.log_softmax(logits, -1)
        entropy = -(logs.exp() * logs).sum(-1)
        settings = ObjectiveSection(entropy_coefficient=coefficient)
        chosen = logs[:, 0]
        measure(chosen, entropy, chosen.detach(), torch.zeros(1), None, settings).loss.backward()
        assert logits.grad is not None
        slopes.append(logits.grad)
    assert not slopes[0].any() and slopes[1][0, 0] > 0, "the likeliest token loses"


@pytest.mark.failure_mode(41)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_without_a_sampled_token_the_loss_is_zero_and_the_gradient_finite(name: str, kind: str) -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    logprobs = torch.log_softmax(logits, -1)[torch.zeros(3, dtype=torch.bool), 0]
    got = whole(logprobs, [], loss=name, kl=kind, kl_coefficient=0.1, entropy_coefficient=0.1)
    assert got.loss.item() == 0.0 and not got.sums.any() and not got.peaks.any()
    got.loss.backward()
    assert logits.grad is not None and torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("apart", [-500.0, 500.0])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_policies_that_are_worlds_apart_give_finite_numbers(
    name: str, apart: float, advantage: float
) -> None:
    logprobs = torch.tensor([-600.0 + apart], requires_grad=True)
    settings = ObjectiveSection(loss=name, kl_coefficient=0.1)  # type: ignore[arg-type]
    far = torch.tensor([-600.0])
    got = measure(logprobs, torch.zeros(1), far, torch.tensor([advantage]), far, settings)
    got.loss.backward()
    assert logprobs.grad is not None and torch.isfinite(logprobs.grad).all()
    assert math.isfinite(got.loss.item()) and torch.isfinite(got.sums).all()
