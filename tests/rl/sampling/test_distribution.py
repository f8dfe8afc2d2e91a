import numpy as np
import pytest
import torch

from rl.sampling import Sampling, processed

LOGITS = np.log(np.array([0.4, 0.3, 0.2, 0.06, 0.04])).astype(np.float32)


def shares(**settings: float | int) -> list[float]:
    return [round(float(each), 6) for each in np.exp(processed(LOGITS, Sampling(**settings)))]  # type: ignore[arg-type]


def test_without_cuts_it_is_the_softmax_of_the_tempered_logits() -> None:
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    for temperature in (0.5, 1.0, 1.7):
        ours = processed(logits.numpy(), Sampling(temperature=temperature))
        assert ours.dtype == np.float32
        assert ours == pytest.approx(torch.log_softmax(logits / temperature, -1).numpy(), abs=2e-6)


def test_what_is_kept_is_normalised_again() -> None:
    assert shares(top_k=2) == pytest.approx([4 / 7, 3 / 7, 0, 0, 0], abs=1e-6)
    assert shares(top_p=0.85) == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0, 0], abs=1e-6)


def test_top_p_counts_within_what_top_k_left() -> None:
    assert shares(top_k=2, top_p=0.55) == [1, 0, 0, 0, 0]
    assert shares(top_p=0.55) == pytest.approx([4 / 7, 3 / 7, 0, 0, 0], abs=1e-6)


def test_the_most_likely_token_always_stays() -> None:
    assert shares(top_p=1e-6) == [1, 0, 0, 0, 0]


def test_temperature_0_takes_the_largest_and_of_equal_ones_the_first() -> None:
    assert shares(temperature=0) == [1, 0, 0, 0, 0]
    assert np.flatnonzero(processed(np.zeros(7, np.float32), Sampling(temperature=0)) == 0).tolist() == [0]


def test_of_equal_tokens_at_a_cut_the_first_stay() -> None:
    equal = np.zeros(10, np.float32)
    assert np.flatnonzero(np.isfinite(processed(equal, Sampling(top_k=3)))).tolist() == [0, 1, 2]
    assert np.flatnonzero(np.isfinite(processed(equal, Sampling(top_p=0.35)))).tolist() == [0, 1, 2, 3]


def test_cuts_are_those_of_a_full_sort() -> None:
    draw = np.random.default_rng(3)
    for _ in range(200):
        logits = draw.normal(scale=draw.uniform(0.1, 8), size=300).astype(np.float32)
        top_k, top_p = int(draw.integers(0, 300)), float(draw.uniform(0.01, 1))
        chance = np.exp(logits.astype(np.float64) - logits.max())
        order = np.argsort(-logits, kind="stable")[: top_k or None]
        before = np.cumsum(chance[order]) - chance[order]
        kept = order[before < top_p * chance[order].sum()]
        ours = processed(logits, Sampling(top_k=top_k, top_p=top_p))
        assert sorted(kept) == np.flatnonzero(np.isfinite(ours)).tolist()
        assert ours[kept] == pytest.approx(np.log(chance[kept] / chance[kept].sum()), abs=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_that_are_not_finite_are_refused(value: float, temperature: float) -> None:
    logits = LOGITS.copy()
    logits[2] = value
    with pytest.raises(ValueError, match="not finite"):
        processed(logits, Sampling(temperature=temperature))


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1.0}, {"temperature": float("nan")}, {"temperature": 1e-9}, {"top_p": 0.0}, {"top_p": 1.1},
        {"top_k": -1}, {"max_tokens": 0}, {"stop": ("",)}, {"stop": ("x" * 257,)}, {"stop": ("x",) * 17},
        {"eos": (-1,)},
    ],
)  # fmt: skip
def test_settings_that_are_no_distribution_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Sampling(**settings)  # type: ignore[arg-type]
