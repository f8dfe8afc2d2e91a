"""The outer step: closed-form trajectories, exact bits, separate rounding."""

from fractions import Fraction

import numpy as np
import pytest

from diloco.golden import pattern
from diloco.outer_step import outer_step


def diloco_in_fractions(
    rounds: int, start: Fraction, inner: int, eta: Fraction, lr: Fraction, mu: Fraction, target: Fraction
) -> list[tuple[Fraction, Fraction]]:
    """(w, v) after each round for the loss (w − target)²/2 and ``inner`` steps of SGD: all exact."""
    w, v, states = start, Fraction(0), []
    for _ in range(rounds):
        g = (w - target) * (1 - (1 - eta) ** inner)
        v = mu * v + g
        w -= lr * (g + mu * v)
        states.append((w, v))
    return states


def test_it_equals_the_closed_form_of_a_one_parameter_model_bit_for_bit() -> None:
    """With coefficients that are powers of two nothing is rounded for the first rounds: equality is exact."""
    start, eta, lr, mu, target = Fraction(8), Fraction(1, 2), Fraction(1, 2), Fraction(1, 2), Fraction(1)
    w, v = np.array([8], np.float32), np.zeros(1, np.float32)
    for expected_w, expected_v in diloco_in_fractions(4, start, 1, eta, lr, mu, target):
        inner = w - np.float32(eta) * (w - np.float32(target))
        outer_step(w, v, w - inner, float(lr), float(mu), w, v)
        assert Fraction(float(w[0])) == expected_w
        assert Fraction(float(v[0])) == expected_v


@pytest.mark.parametrize("peers", [1, 3])
def test_it_follows_the_eigenvalues_of_the_linear_model_over_many_rounds(peers: int) -> None:
    """DiLoCo on (w − b_k)²/2, the members' targets b_k: error and momentum obey one 2×2 linear map per round."""
    inner_steps, eta, lr, mu, rounds = 20, 0.05, 0.7, 0.9, 40
    targets = np.linspace(-1.0, 2.0, peers) if peers > 1 else np.array([0.25])
    shrink = 1 - (1 - eta) ** inner_steps
    # e' = e − lr·((1 + μ)·s·e + μ²·v),  v' = s·e + μ·v  with e = w − mean(b), s = shrink
    matrix = np.array([[1 - lr * (1 + mu) * shrink, -lr * mu * mu], [shrink, mu]])
    eigenvalues, vectors = np.linalg.eig(matrix)
    coefficients = np.linalg.solve(vectors, np.array([5.0 - targets.mean(), 0.0]))

    w, v = np.array([5.0], np.float32), np.zeros(1, np.float32)
    for round in range(1, rounds + 1):
        pseudo = []
        for target in targets:
            mine = w.copy()
            for _ in range(inner_steps):
                mine = mine - np.float32(eta) * (mine - np.float32(target))
            pseudo.append(w - mine)
        gradient = np.mean(pseudo, axis=0, dtype=np.float32)
        outer_step(w, v, gradient, lr, mu, w, v)
        error, momentum = (vectors @ (coefficients * eigenvalues**round)).real
        assert w[0] - targets.mean() == pytest.approx(error, abs=2e-5)
        assert v[0] == pytest.approx(momentum, abs=2e-5)


def test_every_operation_is_rounded_separately() -> None:
    params, momentum, gradient = pattern(1), pattern(2), pattern(3)
    lr, mu = np.float32(0.7), np.float32(0.9)
    expected_v = mu * momentum + gradient
    expected_p = params - lr * (gradient + mu * expected_v)
    fused_v = (np.float64(mu) * momentum + gradient).astype(np.float32)
    assert (fused_v != expected_v).mean() > 0.05, "the values cannot tell a fused operation"
    new_params, new_momentum = np.empty_like(params), np.empty_like(params)
    outer_step(params, momentum, gradient, 0.7, 0.9, new_params, new_momentum)
    assert new_momentum.tobytes() == expected_v.tobytes()
    assert new_params.tobytes() == expected_p.tobytes()


def test_chunks_one_by_one_and_in_place_give_the_bits_of_the_whole() -> None:
    params, momentum, gradient = pattern(1), pattern(2), pattern(3)
    whole_p, whole_v = np.empty_like(params), np.empty_like(params)
    outer_step(params, momentum, gradient, 0.7, 0.9, whole_p, whole_v)
    for start in range(0, params.size, 250):
        p, v, g = (array[start : start + 250] for array in (params, momentum, gradient))
        outer_step(p, v, g, 0.7, 0.9, p, v)
    assert params.tobytes() == whole_p.tobytes()
    assert momentum.tobytes() == whole_v.tobytes()


def test_inputs_are_left_alone_and_may_be_read_only() -> None:
    inputs = pattern(1), pattern(2), pattern(3)
    before = [array.tobytes() for array in inputs]
    for array in inputs:
        array.flags.writeable = False
    outer_step(*inputs, 0.7, 0.9, np.empty(1237, np.float32), np.empty(1237, np.float32))
    assert [array.tobytes() for array in inputs] == before


def test_shapes_and_types_that_do_not_fit_are_refused() -> None:
    a, b = np.zeros(4, np.float32), np.zeros(5, np.float32)
    with pytest.raises(ValueError, match="one shape"):
        outer_step(a, a, b, 0.7, 0.9, a, a)
    with pytest.raises(TypeError):
        outer_step(a, a, a.astype(np.float64), 0.7, 0.9, a, a)
