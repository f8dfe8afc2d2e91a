from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.sampling import noise
from rl.sampling.noise import noise_rows
from rl.sampling.single import noise_of

seeds = st.binary(min_size=32, max_size=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(seeds, st.integers(0, 9)), max_size=5), st.integers(1, 3000), st.integers(0, 2**32))
def test_each_value_is_that_of_the_whole_noise_to_the_last_bit(
    rollouts: list[tuple[bytes, int]], vocab: int, chance: int
) -> None:
    counts = [count for _, count in rollouts]
    tokens = np.random.default_rng(chance).integers(0, vocab, sum(counts))
    wanted = [noise(seed, t, vocab) for seed, count in rollouts for t in range(count)]
    found = noise_of([seed for seed, _ in rollouts], counts, tokens)
    assert found.tolist() == [values[token] for values, token in zip(wanted, tokens, strict=True)]


def test_the_extremes_of_seed_and_token_are_right_too() -> None:
    for seed in (bytes(32), b"\xff" * 32):
        whole = noise(seed, 0, 200_001)
        assert noise_of([seed], [1], np.array([200_000]))[0] == whole[-1]


def test_a_short_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        noise_of([b"short"], [1], np.array([0]))


def test_rows_of_noise_are_the_single_ones_in_every_thread() -> None:
    seed, numbers = bytes(range(32)), np.array([0, 7, 2**40])
    wanted = [noise(seed, int(number), 77).tolist() for number in numbers]
    assert noise_rows(seed, numbers, 77).tolist() == wanted
    assert noise_rows(seed, numbers[:0], 77).shape == (0, 77)
    with ThreadPoolExecutor(3) as pool:
        rows = list(pool.map(lambda t: noise(seed, t % 50, 77)[t % 77], range(600)))
    assert rows == [noise(seed, t % 50, 77)[t % 77] for t in range(600)]
