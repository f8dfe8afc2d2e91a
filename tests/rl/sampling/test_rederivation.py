import numpy as np
import pytest

from rl.sampling import Sampling, choose, noise, processed, rederive

SEED = bytes(range(32))
SETTINGS = [
    Sampling(),
    Sampling(temperature=0.7, top_p=0.9),
    Sampling(top_k=20),
    Sampling(temperature=1.3, top_k=50, top_p=0.95),
    Sampling(temperature=0),
]


def rows(count: int, scale: float = 3.0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(5).normal(scale=scale, size=(count, 400)).astype(np.float32)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_the_own_choice_comes_out_with_its_log_probability(sampling: Sampling) -> None:
    for t, logits in enumerate(rows(200)):
        logprobs = processed(logits, sampling)
        token = choose(logprobs, noise(SEED, t, 400))
        found = rederive(logits, sampling, SEED, t, token, 0.0)
        assert (found.chosen, found.gap, found.possible) == (token, 0, True)
        assert found.logprob == pytest.approx(float(logprobs[token]), abs=1e-5)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_no_difference_within_the_tolerance_refuses_an_honest_token(sampling: Sampling) -> None:
    draw = np.random.default_rng(6)
    differing = 0
    for t, logits in enumerate(rows(3000, 1.0)):
        theirs = logits + draw.uniform(-0.05, 0.05, 400).astype(np.float32)
        token = choose(processed(theirs, sampling), noise(SEED, t, 400))
        found = rederive(logits, sampling, SEED, t, token, 0.0501)
        assert found.possible
        differing += found.chosen != token
    assert differing > 10  # else nothing was shown


@pytest.mark.parametrize("sampling", SETTINGS)
def test_a_token_drawn_with_another_seed_is_mostly_impossible(sampling: Sampling) -> None:
    if sampling.temperature == 0:
        return
    refused = sum(
        not rederive(
            logits, sampling, SEED, t, choose(processed(logits, sampling), noise(SEED, t + 10_000, 400)), 0.01
        ).possible
        for t, logits in enumerate(rows(200, 1.0))
    )
    assert refused > 150


def test_a_token_far_below_the_cut_is_impossible_whatever_its_noise() -> None:
    logits = np.zeros(400, np.float32)
    logits[0] = 20
    token = int(np.argmax(noise(SEED, 0, 400)[1:])) + 1
    found = rederive(logits, Sampling(top_p=0.5), SEED, 0, token, 0.1)
    assert (found.chosen, found.gap, found.possible) == (0, float("inf"), False)


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError):
        rederive(np.zeros(4, np.float32), Sampling(), SEED, 0, 4, 0.1)
