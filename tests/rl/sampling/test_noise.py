import numpy as np
import pytest

from rl.sampling import choose, noise, noise_at

SEED = bytes(range(32))


def test_the_noise_is_the_same_on_every_machine() -> None:
    # Regenerating these numbers means that no rollout of a running run can be checked any more.
    assert noise(SEED, 0, 5) == pytest.approx(
        [
            0.21710741700258984,
            0.4222749980425253,
            0.38937702478053193,
            0.8356089252854167,
            -0.30070611659752816,
        ],
        rel=1e-13,
    )


def test_another_token_or_another_half_of_the_seed_gives_other_noise() -> None:
    drawn = [
        noise(seed, t, 4) for seed, t in ((SEED, 0), (SEED, 1), (SEED[:31] + b"\0", 0), (b"\1" + SEED[1:], 0))
    ]
    assert len({tuple(each) for each in drawn}) == 4


def test_a_larger_vocabulary_begins_with_the_noise_of_a_smaller_one() -> None:
    assert np.array_equal(noise(SEED, 7, 1001)[:33], noise(SEED, 7, 33))


def test_the_noise_of_some_tokens_is_that_of_all() -> None:
    some = np.array([0, 999, 3])
    assert np.array_equal(noise_at(SEED, 2, 1000, some), noise(SEED, 2, 1000)[some])


def test_the_noise_is_finite_and_has_the_mean_and_deviation_of_gumbels_law() -> None:
    drawn = noise(SEED, 0, 2**20)
    assert np.isfinite(drawn).all()
    assert drawn.mean() == pytest.approx(0.5772157, abs=0.005)
    assert drawn.std() == pytest.approx(np.pi / np.sqrt(6), abs=0.005)


def test_choices_follow_the_distribution() -> None:
    chances = np.array([0.5, 0.3, 0.15, 0.05])
    logprobs = np.log(chances).astype(np.float32)
    counts = np.bincount([choose(logprobs, noise(SEED, t, 4)) for t in range(20_000)], minlength=4)
    assert counts / 20_000 == pytest.approx(chances, abs=0.015)


def test_what_is_cut_is_never_chosen() -> None:
    logprobs = np.array([-np.inf, 0, -np.inf], np.float32)
    assert {choose(logprobs, noise(SEED, t, 3)) for t in range(100)} == {1}


@pytest.mark.parametrize(
    ("seed", "t", "vocab"),
    [(b"short", 0, 4), (SEED, -1, 4), (SEED, 2**63, 4), (SEED, 0, 0), (SEED, 0, 2**25)],
)
def test_what_is_no_seed_or_number_is_refused(seed: bytes, t: int, vocab: int) -> None:
    with pytest.raises(ValueError):
        noise(seed, t, vocab)
