"""A warm start: where it ends, what it measures, and when it gives up."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from diloco.architecture import initial_parameters
from diloco.model import model_with
from protocol.errors import Code, NodeError
from rl.training.warmstart import (
    Evaluation,
    Plan,
    Solved,
    flat,
    solve_rate,
    solved_task,
    warm_start,
    written,
)
from tests.rl.training.reversing import ENVIRONMENT, MODEL, RENDERER, groups

PLAN = Plan(low=0.02, high=0.2, lr=5e-3, batch=32, held_out=64)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def held_out() -> Sequence[Solved]:
    return [solved_task(ENVIRONMENT.task(10**6 + seed), RENDERER) for seed in range(64)]


async def test_it_ends_at_the_first_evaluation_within_the_bounds_and_rollouts_agree() -> None:
    told: list[Evaluation] = []
    started = warm_start(MODEL, ENVIRONMENT, RENDERER, 1, PLAN, told=told.append)
    assert PLAN.low <= started.solved <= PLAN.high
    assert told[-1].solved == started.solved and told[-1].step == started.steps
    assert all(each.solved < PLAN.low for each in told[:-1])
    assert told[-1].loss < told[0].loss
    fresh = solve_rate(model_with(MODEL, started.params), held_out())
    assert fresh == pytest.approx(started.solved, abs=0.05), "other tasks of the same environment"
    # What one forward pass says is what sampling finds.
    made = await groups(range(10**6, 10**6 + 64), 0, started.params)
    drawn = np.mean([rollout.reward == 1.0 for group in made for rollout in group.rollouts])
    assert drawn == pytest.approx(fresh, abs=0.03)
    again = warm_start(MODEL, ENVIRONMENT, RENDERER, 1, PLAN)
    assert np.array_equal(again.params, started.params), "the same weights from the same seed"


def test_one_that_learns_past_the_bounds_goes_back_and_learns_slower() -> None:
    plan = replace(PLAN, low=0.020, high=0.030, every=20, most=400)
    told: list[Evaluation] = []
    started = warm_start(MODEL, ENVIRONMENT, RENDERER, 1, plan, told=told.append)
    assert any(each.solved > plan.high for each in told), "or this test shows nothing"
    assert plan.low <= started.solved <= plan.high
    assert started.steps < 20 * len(told), "steps that were taken back do not count"


def test_one_that_never_gets_there_is_given_up_with_a_sentence() -> None:
    with pytest.raises(NodeError, match=r"10 steps.*2%.*20%") as caught:
        warm_start(MODEL, ENVIRONMENT, RENDERER, 1, replace(PLAN, most=10))
    assert caught.value.code is Code.TRN_MODEL
    narrow = MODEL.model_copy(update={"context": 10})
    with pytest.raises(NodeError, match="context of 10"):
        warm_start(narrow, ENVIRONMENT, RENDERER, 1, PLAN)


def test_a_solved_task_is_the_conversation_in_which_the_model_answers_so() -> None:
    task = ENVIRONMENT.task(5)
    solved = solved_task(task, RENDERER)
    prompt = RENDERER.prompt(task.messages)
    assert solved.tokens[: solved.prompt] == prompt and solved.tokens[-1] == RENDERER.end
    assert RENDERER.text(solved.tokens[solved.prompt :]) == written(task)


def test_the_weights_of_a_model_come_back_flat() -> None:
    params = initial_parameters(MODEL, 3)
    assert np.array_equal(flat(model_with(MODEL, params), MODEL), params)
