"""The reckoning of a storm is right on logs of which one knows what they mean."""

from typing import Any

from node.eventlog import Event
from tests.chaos.accounts import Work, slope, states_of, work_of


def log(*lines: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(float(place), kind, fields) for place, (kind, fields) in enumerate(lines)]


STEP = ("train.step", {"round": 0, "step": 0})
FROZEN = ("contribution.frozen", {"round": 0})
SPENT = ("commit", {"spent": True, "epoch": 0})
UNSPENT = ("commit", {"spent": False, "epoch": 0})


def test_steps_of_a_spent_contribution_are_committed_and_those_after_it_are_open() -> None:
    assert work_of(log(STEP, STEP, FROZEN, SPENT, STEP)) == Work(2, 0, 1)


def test_a_contribution_that_is_offered_again_is_committed_once() -> None:
    assert work_of(log(STEP, FROZEN, UNSPENT, SPENT)) == Work(1, 0, 0)


def test_a_contribution_that_another_one_replaces_is_lost() -> None:
    assert work_of(log(STEP, FROZEN, UNSPENT, STEP, STEP, FROZEN, SPENT)) == Work(2, 1, 0)


def test_what_was_lost_while_the_node_was_away_is_its_own_affair() -> None:
    events = log(STEP, FROZEN, UNSPENT, STEP, STEP, FROZEN, SPENT)
    assert work_of(events, [range(2, 4)]) == Work(2, 0, 1)


def test_what_a_dead_worker_had_done_does_not_count() -> None:
    assert work_of(log(STEP, ("train.failed", {}), STEP, FROZEN, SPENT)) == Work(1, 0, 0)


def test_states_that_differ_are_named() -> None:
    one = log(("commit", {"epoch": 0}), ("apply", {"round": 1, "digest": "a"}))
    other = log(("commit", {"epoch": 0}), ("apply", {"round": 1, "digest": "b"}))
    assert states_of({"one": one, "two": one}) == (1, [])
    assert states_of({"one": one, "two": other}) == (1, ["epoch 0, round 1: ['one', 'two']"])


def test_a_slope_is_per_minute() -> None:
    assert abs(slope([(0.0, 5.0), (30.0, 6.0), (60.0, 7.0)]) - 2.0) < 1e-9
