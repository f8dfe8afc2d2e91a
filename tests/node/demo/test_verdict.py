"""The verdict: everything that may be missing is named."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from node.demo.verdict import judge
from node.eventlog import Event
from tests.node.demo.story import Story, digest, loss_at, whole

SAMPLES = ("one", "two")


def failures(story: Story, samples: tuple[str, ...] = SAMPLES) -> list[str]:
    return [sentence for check in judge(story.facts(), samples) for sentence in check.wrong]


def test_a_whole_story_has_no_failure() -> None:
    assert failures(whole()) == []


def drop_step(story: Story, step: str) -> None:
    story.journal = [event for event in story.journal if event.get("step") != step]


def set_fields(event: Event, **fields: object) -> Event:
    return Event(event.t, event.kind, {**event.fields, **fields})


def other_digest(story: Story) -> None:
    story.change(
        "node-4",
        lambda event: set_fields(event, momentum="ff" * 32) if event.kind == "run.finished" else event,
    )


def small_fall(story: Story) -> None:
    for name in story.cast.names:
        story.change(
            name,
            lambda event: (
                set_fields(event, loss=7.0 - 0.09 * event["round"]) if event.kind == "evaluation" else event
            ),
        )


def set_journal(kind: str, node: str | None, **fields: object) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        story.journal = [
            set_fields(event, **fields) if event.kind == kind and event.get("node") == node else event
            for event in story.journal
        ]

    return change


def trained_twice(story: Story) -> None:
    again = next(e for e in story.nodes["node-3"] if e.kind == "train.begin" and e["round"] == story.killed)
    story.tell("node-3", again.t + 0.5, "train.begin", **again.fields)


def lost_steps(story: Story) -> None:
    def change(event: Event) -> Event:
        if event.kind == "commit" and event["round"] in (story.killed, story.killed + 1):
            return set_fields(event, roster=[each for each in event["roster"] if each[-1] != "4"])
        return event

    for name in story.cast.names:
        story.change(name, change)


def late_kill(story: Story) -> None:
    killed = next(event.t for event in story.journal if event.get("step") == "kill")
    story.tell("node-1", killed - 0.001, "reduce.end", round=story.killed, attempt=0, seconds=1.0)


def wrong_state(story: Story) -> None:
    story.change(
        "node-5",
        lambda event: (
            set_fields(event, digest=digest("state", 3)) if event.kind == "state.downloaded" else event
        ),
    )


def one_holder(story: Story) -> None:
    story.change(
        "node-5",
        lambda event: set_fields(event, holders=["x"]) if event.kind == "state.downloaded" else event,
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (other_digest, "digests of the momentum differ"),
        (small_fall, "fell by 0.900 nats"),
        (lambda story: drop_step(story, "join"), "node-5 was never started"),
        (lambda story: drop_step(story, "kill"), "node-1 was never killed"),
        (lambda story: drop_step(story, "leave"), "node-2 was never told to leave"),
        (lambda story: story.drop("node-5", "state.downloaded"), "did not download the state"),
        (one_holder, "from 1 member"),
        (wrong_state, "is not the members'"),
        (lambda story: story.drop("node-2", "goodbye"), "did not say goodbye"),
        (lambda story: story.drop("node-2", "drain.begin"), "did not drain"),
        (set_journal("demo.exit", "node-2", status=1), "ended with status 1 after SIGTERM"),
        (set_journal("demo.exit", "node-1", status=0), "not by SIGKILL"),
        (set_journal("demo.exit", "node-3", status=1), "node-3 ended with status 1"),
        (
            lambda story: story.does(9e9, "demo.left-behind", node="node-1", processes=2),
            "2 processes of node-1",
        ),
        (late_kill, "had ended the all-reduce"),
        (lost_steps, "inner steps of node-4 in round 6 were lost"),
        (trained_twice, "node-3 trained the same samples of round 6 twice"),
        (
            lambda story: story.does(9e9, "demo.launch", node="node-3", how="run"),
            "node-3 was started 2 times",
        ),
        (lambda story: story.drop("node-4", "run.finished"), "node-4 did not finish"),
        (lambda story: story.does(9e9, "demo.trouble", sentence="It rained."), "It rained."),
        (
            set_journal("demo.model", "node-3", parameters_digest="00"),
            "not those that the survivors agreed on",
        ),
        (set_journal("demo.model", "node-3", logit_difference=0.5), "differ by 0.5"),
        (set_journal("demo.model", "node-3", error="no file"), "cannot be used: no file"),
    ],
)
def test_what_did_not_happen_is_named(spoil: Callable[[Story], None], words: str) -> None:
    story = whole()
    spoil(story)
    found = failures(story)
    assert any(words in sentence for sentence in found), found


def test_a_round_that_was_never_committed_is_named() -> None:
    story = whole()
    for name in story.cast.names:
        story.change(name, lambda event: None if event.kind == "commit" and event["round"] == 9 else event)
    assert any("9 of 10 rounds were committed" in sentence for sentence in failures(story))


def test_a_demo_in_which_nothing_happened_fails_in_everything() -> None:
    checks = judge(Story().facts(), ())
    assert [check.name for check in checks if check.ok] == ["nothing went wrong on the way"]


def test_missing_samples_are_named() -> None:
    assert failures(whole(), ("one",)) == ["1 of 2 generated samples are missing."]


def test_the_baseline_counts_only_when_it_was_asked_for() -> None:
    story = whole()
    story.journal = [set_fields(e, compare=True) if e.kind == "demo.start" else e for e in story.journal]
    assert failures(story) == ["The synchronous baseline was not trained."]
    story.does(9e9, "demo.baseline", validation_loss=3.0, tokens=1, steps=1, seconds=1.0)
    assert failures(story) == []


def test_a_resumed_demo_may_train_again_what_was_not_committed() -> None:
    story = whole()
    trained_twice(story)
    first = story.journal[0]
    story.journal.insert(1, replace(first, t=first.t + 0.01))
    assert failures(story) == []


def test_a_missing_evaluation_of_the_killed_node_is_no_failure() -> None:
    story = whole()
    story.drop("node-1", "evaluation")
    assert failures(story) == []
    assert loss_at(0) - loss_at(10) > 1.0
