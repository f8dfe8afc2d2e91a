"""The outer step of a round is one function of state and reduced bytes."""

import numpy as np
import pytest

from diloco.codec import codec
from diloco.layout import Grid
from diloco.outer_step import outer_step
from diloco.replay import replay

GRID = Grid(600, 256)
INT8 = codec("int8")


def vectors(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    params, momentum, gradient = random.standard_normal((3, GRID.size)).astype(np.float32)
    return params, momentum, gradient


def test_it_is_the_outer_step_of_the_decoded_chunks_also_in_place() -> None:
    params, momentum, gradient = vectors(1)
    chunks = [INT8.encode(gradient[part]) for part in GRID.slices()]
    decoded = np.concatenate(
        [INT8.decode(data, part.stop - part.start) for part, data in zip(GRID.slices(), chunks, strict=True)]
    )
    wanted, wanted_momentum = np.empty_like(params), np.empty_like(params)
    outer_step(params, momentum, decoded, 0.7, 0.9, wanted, wanted_momentum)
    out, out_momentum = np.empty_like(params), np.empty_like(params)
    replay(
        params, momentum, chunks, grid=GRID, codec=INT8, lr=0.7, mu=0.9,
        params_out=out, momentum_out=out_momentum,
    )  # fmt: skip
    assert out.tobytes() == wanted.tobytes() and out_momentum.tobytes() == wanted_momentum.tobytes()
    replay(
        params, momentum, chunks, grid=GRID, codec=INT8, lr=0.7, mu=0.9,
        params_out=params, momentum_out=momentum,
    )  # fmt: skip
    assert params.tobytes() == wanted.tobytes() and momentum.tobytes() == wanted_momentum.tobytes()


def test_a_round_without_a_contributor_keeps_every_bit() -> None:
    params, momentum, _ = vectors(2)
    out, out_momentum = np.empty_like(params), np.empty_like(params)
    replay(
        params, momentum, [], grid=GRID, codec=INT8, lr=0.7, mu=0.9, params_out=out, momentum_out=out_momentum
    )
    assert out.tobytes() == params.tobytes() and out_momentum.tobytes() == momentum.tobytes()


def test_chunks_of_another_grid_are_refused() -> None:
    params, momentum, gradient = vectors(3)
    chunks = [INT8.encode(gradient[part]) for part in GRID.slices()][:-1]
    with pytest.raises(ValueError):
        replay(
            params, momentum, chunks, grid=GRID, codec=INT8, lr=0.7, mu=0.9,
            params_out=params, momentum_out=momentum,
        )  # fmt: skip
