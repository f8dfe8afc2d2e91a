"""Cuts of top-k and top-p in training: both sides of a ratio are of the distribution that was sampled."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from diloco.model import model_with
from protocol.errors import Code, NodeError
from rl.sampling import Sampling, choose, noise, processed
from rl.training.packing import Example
from rl.training.truncation import all_kept, cut, kept, packed
from tests.rl.training.test_packing import CONTEXT, SMALL, VOCAB, Bench, example, mesh

__all__ = ["mesh"]  # the fixture

CUTS = [Sampling(top_p=0.9), Sampling(top_k=7), Sampling(temperature=0.8, top_p=0.6, top_k=40)]
SEED = bytes(range(32))


@pytest.mark.failure_mode(50)
@pytest.mark.parametrize("sampling", [*CUTS, Sampling(top_p=1e-6), Sampling(top_k=1)], ids=repr)
def test_what_is_kept_is_what_the_law_of_sampling_keeps(sampling: Sampling) -> None:
    random = np.random.default_rng(3)
    logits = random.normal(0, 3, (60, VOCAB)).astype(np.float32)
    logits[:20] = np.round(logits[:20])  # ties at the cuts
    laws = np.stack([processed(row, sampling) for row in logits])
    tempered = torch.from_numpy(logits) / sampling.temperature
    found = kept(tempered, sampling.top_k, sampling.top_p)
    assert np.array_equal(found.numpy(), np.isfinite(laws))
    logs = torch.log_softmax(cut(tempered, packed(found)), -1).numpy()
    np.testing.assert_allclose(logs[np.isfinite(laws)], laws[np.isfinite(laws)], atol=1e-5)
    assert (np.exp(logs[~np.isfinite(laws)]) == 0).all()


def test_nothing_is_cut_until_something_is() -> None:
    tempered = torch.randn(3, VOCAB)
    assert torch.equal(cut(tempered, all_kept(3, VOCAB)), tempered)


def sharp(bench: Bench, seed: int = 1) -> np.ndarray:
    """Weights whose distributions are far from even, so that a cut shows."""
    return bench.state.params + np.random.default_rng(seed).normal(0, 0.3, len(bench.state.params)).astype(
        "f4"
    )


def drawn(params: np.ndarray, sampling: Sampling, start: Example) -> Example:
    """A transcript that the law draws after a prompt of 3, with the log-probabilities that a worker reports."""
    module = model_with(SMALL, params)
    tokens, logprobs = list(start.tokens[:3]), [0.0] * 3
    while len(tokens) < len(start.tokens):
        with torch.no_grad():
            row = module(input_ids=torch.tensor(tokens)[None].long()).logits[0, -1].numpy()
        law = processed(row, sampling)
        tokens.append(choose(law, noise(SEED, len(tokens), VOCAB)))
        logprobs.append(float(law[tokens[-1]]))
    return replace(start, tokens=np.array(tokens, np.int32), logprobs=np.array(logprobs, np.float32))


@pytest.fixture(params=CUTS, ids=repr)
def cutting(
    request: pytest.FixtureRequest, tmp_path: Path, mesh: DeviceMesh
) -> Iterator[tuple[Bench, Sampling]]:
    sampling: Sampling = request.param
    made = Bench(
        tmp_path, mesh, temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k,
        entropy_coefficient=0.01,
    )  # fmt: skip
    made.state.back()[0][:] = sharp(made)
    made.state.flip(0)
    made.policies = {3: made.weights(3, made.state.params)}
    yield made, sampling


@pytest.mark.failure_mode(50)
def test_log_probabilities_are_those_of_the_distribution_that_was_drawn_from(
    cutting: tuple[Bench, Sampling],
) -> None:
    bench, sampling = cutting
    one = drawn(bench.state.params, sampling, example(1, CONTEXT, 3))
    (step,) = bench.objective.steps(bench.work([one]), bench.place)
    (part,) = step.parts
    reported = one.logprobs[one.sampled]
    np.testing.assert_allclose(part.behaviour.numpy(), reported, atol=1e-4)
    whole = drawn_from_everything(bench.state.params, one, sampling)
    assert np.abs(whole - reported).max() > 0.05, "the whole softmax is another distribution"


def drawn_from_everything(params: np.ndarray, one: Example, sampling: Sampling) -> np.ndarray:
    with torch.no_grad():
        logits = model_with(SMALL, params)(input_ids=torch.tensor(one.tokens)[None].long()).logits[0]
    logs = torch.log_softmax(logits[:-1] / sampling.temperature, -1)
    return logs.gather(1, torch.tensor(one.tokens[1:]).long()[:, None])[:, 0].numpy()[one.sampled[1:]]


@pytest.mark.failure_mode(50)
def test_every_ratio_is_one_under_equal_policies_and_finite_under_others(
    cutting: tuple[Bench, Sampling],
) -> None:
    bench, sampling = cutting
    examples = [drawn(bench.state.params, sampling, example(seed, 14, 3)) for seed in (1, 2)]
    bench.train(bench.work(examples))
    ((_, _, metrics),) = bench.told
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-5) == metrics["ratio_max"]
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6) and np.isfinite(metrics["entropy"])
    # A policy that would itself have cut what was drawn: the ratio is of the same tokens of the vocabulary.
    bench.policies = {3: bench.weights(3, sharp(bench, 2))}
    bench.train(bench.work(examples))
    ((_, _, metrics),) = bench.told
    assert metrics["ratio_max"] > 1.5 and metrics["kl"] > 0.01
    assert all(np.isfinite(value) for value in metrics.values()) and bench.done.finite
    assert np.isfinite(bench.state.gradient).all() and bench.state.gradient.any()


@pytest.mark.failure_mode(50)
def test_reported_log_probabilities_are_not_believed_where_something_was_cut(
    cutting: tuple[Bench, Sampling],
) -> None:
    bench, _ = cutting
    with pytest.raises(NodeError, match="no policy version") as caught:
        bench.objective.steps(bench.work([example(1, 9, 3, version=-1)]), bench.place)
    assert caught.value.code is Code.RL_BATCH
