"""What members compute together is DiLoCo: the closed form on a linear model."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from diloco.member import exchange
from diloco.outer_state import OuterState
from diloco.reduce.reduction import Reduction
from tests.diloco.member.fleet import fleet, tiny_genesis

RATE, CURVE, STEPS = 0.1, 0.5, 4
LR, MU = 0.7, 0.9


def inner(weights: np.ndarray, target: float) -> np.ndarray:
    """Gradient descent on ``CURVE / 2 * (w - target)**2`` from the outer weights."""
    for _ in range(STEPS):
        weights = weights - np.float32(RATE * CURVE) * (weights - np.float32(target))
    return weights


def linear(number: int, round_number: int, state: OuterState) -> np.ndarray:
    return state.params - inner(state.params, float(number))


def closed_form(start: np.ndarray, peers: int, rounds: int) -> list[np.ndarray]:
    """Weights after each round in fp64: every inner step contracts the distance to the peer's target."""
    shrink = (1 - RATE * CURVE) ** STEPS
    centre = sum(range(1, peers + 1)) / peers
    weights, velocity, path = start.astype(np.float64), np.zeros(start.size), []
    for _ in range(rounds):
        gradient = (1 - shrink) * (weights - centre)
        velocity = MU * velocity + gradient
        weights = weights - LR * (gradient + MU * velocity)
        path.append(weights)
    return path


class Broken(Reduction):
    """A transport that fails in the first attempts of a round."""

    failures: dict[int, int] = {}  # noqa: RUF012 - set by the tests

    def start(self) -> None:
        if self.attempt.attempt >= self.failures.get(self.attempt.round, 0):
            super().start()


@pytest.mark.failure_mode(10)
@pytest.mark.failure_mode(3)
@pytest.mark.parametrize("failures", [{}, {1: 1}], ids=["without a failure", "with a failed attempt"])
async def test_three_rounds_of_one_to_three_peers_follow_the_closed_form(
    tmp_path: Path, failures: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "failures", failures)
    monkeypatch.setattr(exchange, "Reduction", Broken)
    async with asyncio.TaskGroup() as group:
        for peers in (1, 2, 3):
            group.create_task(_three_rounds(tmp_path / str(peers), peers, failures))


async def _three_rounds(folder: Path, peers: int, failures: dict[int, int]) -> None:
    genesis = tiny_genesis(
        rounds=3,
        outer={"lr": LR, "momentum": MU},
        round={"codec": "fp32"},
        deadline={"attempt": "1 s", "ready_floor": "500 ms"},
    )
    async with fleet(folder, peers, linear, genesis) as crowd:
        await crowd.all_finished()
        crowd.check_equal()
        wanted = closed_form(crowd.posts[0].paths[0], peers, 3)
        for post in crowd.posts:
            for number, weights in enumerate(wanted, start=1):
                np.testing.assert_allclose(post.paths[number], weights, rtol=2e-6, atol=2e-6)
        assert [certified.attempt for certified in crowd.chain()[1:]] == [0, failures.get(1, 0), 0]


@pytest.mark.failure_mode(3)
async def test_nobody_steps_while_the_transport_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "failures", {1: 3})
    monkeypatch.setattr(exchange, "Reduction", Broken)
    genesis = tiny_genesis(
        rounds=2, deadline={"attempt": "500 ms", "ready_floor": "200 ms", "attempt_growth": 1.1}
    )
    async with fleet(tmp_path, 3, linear, genesis) as crowd:

        def unchanged(number: int) -> None:
            post = crowd.posts[number]
            assert post.state.round == 1, "no step without a certificate"
            assert np.array_equal(post.state.params, post.paths[1])

        for number, post in enumerate(crowd.posts):
            for attempt in (1, 2, 3):
                post.on("ready.sent", lambda number=number: unchanged(number), round=1, attempt=attempt)
        await crowd.all_finished()
        crowd.check_equal()
        assert crowd.chain()[2].attempt >= 3
        assert sorted(entry.peer for entry in crowd.chain()[2].value.roster) == sorted(
            p.peer for p in crowd.posts
        )
        assert all(len(post.trained) == 2 for post in crowd.posts), "no inner step was repeated or lost"
