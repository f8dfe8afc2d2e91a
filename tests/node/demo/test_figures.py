"""Numbers from event logs."""

from itertools import pairwise

import pytest

from node.demo.figures import (
    compute_utilisation,
    fp32_every_step_bytes,
    reduction,
    seconds_to_next_commit,
    segments,
)
from node.demo.history import NodeHistory
from node.demo.scenario import Step
from node.eventlog import Event
from tests.node.demo.story import OPTIONS, PARAMETERS, TRAIN, whole


def node(*events: tuple[float, str, dict[str, object]]) -> NodeHistory:
    history = NodeHistory("node-1")
    for t, kind, fields in events:
        history.add(Event(t, kind, fields))
    return history


def test_bytes_are_added_over_restarts() -> None:
    found = node(
        (0, "node.start", {}),
        (1, "bytes", {"rounds": 10, "state": 1, "total": 11}),
        (2, "bytes", {"rounds": 30, "state": 1, "total": 31}),
        (3, "node.start", {}),
        (4, "bytes", {"rounds": 5, "state": 0, "total": 5}),
    ).bytes_sent
    assert found == {"rounds": 35, "state": 1, "total": 36}


def test_the_baseline_counts_each_round_s_own_members() -> None:
    members = [4, 4, 4, 4, 5, 5, 4, 4, 4, 3]
    per_step = sum(2 * (each - 1) for each in members) * 4 * PARAMETERS
    assert fp32_every_step_bytes(whole().facts()) == per_step * OPTIONS.inner_steps


def test_the_reduction_is_the_baseline_over_what_was_sent_for_rounds_alone() -> None:
    facts = whole().facts()
    sent = sum(each.bytes_sent["rounds"] for each in facts.history)
    assert reduction(facts) == pytest.approx(fp32_every_step_bytes(facts) / sent)
    assert any(each.bytes_sent["state"] for each in facts.history)


def test_nothing_sent_is_no_reduction() -> None:
    story = whole()
    for name in story.cast.names:
        story.drop(name, "bytes")
    assert reduction(story.facts()) is None


def test_utilisation_is_the_share_of_a_round_in_which_the_worker_trains() -> None:
    round_trip = node(
        (0, "node.start", {}),
        (10, "apply", {"round": 0}),
        (20, "train.begin", {"round": 0}),
        (26, "train.end", {"round": 0}),
        (30, "apply", {"round": 1}),
        (31, "train.begin", {"round": 1}),
        (36, "train.end", {"round": 1}),
        (40, "apply", {"round": 2}),
    )
    facts = whole().facts()
    facts.history.nodes.clear()
    facts.history.nodes["node-1"] = round_trip
    assert compute_utilisation(facts) == pytest.approx((0.6 + 0.5) / 2)


def test_utilisation_of_a_whole_story_is_about_the_training_s_share() -> None:
    found = compute_utilisation(whole().facts())
    assert found is not None and TRAIN / 20 < found < TRAIN / 14


def test_the_time_from_a_kill_to_the_next_commit_is_the_survivors() -> None:
    found = seconds_to_next_commit(whole().facts(), Step.KILL)
    assert found == pytest.approx(5.49, abs=0.02)


def test_a_killed_node_s_time_ends_at_the_kill() -> None:
    facts = whole().facts()
    killed = facts.deeds.steps[Step.KILL].t
    found = segments(facts.history["node-1"], killed)
    assert found[0].kind == "starting" and found[-1].kind == "reducing"
    assert found[-1].end == killed
    assert all(a.end <= b.begin for a, b in pairwise(found))


def test_between_two_lives_a_node_does_nothing() -> None:
    found = segments(
        node(
            (0, "node.start", {}),
            (5, "train.begin", {"round": 0}),
            (8, "train.step", {"round": 0}),
            (100, "node.start", {}),
            (110, "train.begin", {"round": 0}),
            (120, "train.end", {"round": 0}),
        )
    )
    assert [(each.kind, each.begin, each.end) for each in found] == [
        ("starting", 0, 5),
        ("training", 5, 8),
        ("starting", 100, 110),
        ("training", 110, 120),
    ]
