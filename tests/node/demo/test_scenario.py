"""The scenario, decided scene by scene."""

from dataclasses import replace

import pytest

from node.demo.scenario import (
    Cast,
    Finish,
    Kill,
    Launch,
    Leave,
    Reduce,
    Scene,
    Script,
    Step,
    decide,
    expected,
)

CAST = Cast.of(4)
SCRIPT = Script.of(10)
ADDRESSES = {name: f"/ip4/127.0.0.1/tcp/1/p2p/{name}" for name in CAST.names}
TRAINING = Scene(
    fresh=True,
    launched=frozenset(CAST.members),
    addresses={name: ADDRESSES[name] for name in CAST.members},
)
JOINED = replace(
    TRAINING,
    done={Step.JOIN: 2},
    launched=frozenset(CAST.names),
    committed=5,
    contributing=frozenset(CAST.names),
)


def at(scene: Scene, **changes: object) -> tuple[object, ...]:
    return decide(CAST, SCRIPT, replace(scene, **changes))  # type: ignore[arg-type]


def test_the_founder_makes_the_run_alone() -> None:
    assert at(Scene(fresh=True)) == (Launch("node-1", make_run=True),)


def test_the_others_wait_for_its_address_and_join_by_it() -> None:
    begun = Scene(fresh=True, launched=frozenset({"node-1"}))
    assert at(begun) == ()
    assert at(begun, addresses={"node-1": ADDRESSES["node-1"]}) == tuple(
        Launch(name, join=ADDRESSES["node-1"]) for name in ("node-2", "node-3", "node-4")
    )


def test_one_joins_while_the_others_train_by_the_address_of_one_that_is_not_the_founder() -> None:
    assert at(TRAINING, committed=SCRIPT.join - 2) == ()
    (launch,) = at(TRAINING, committed=SCRIPT.join - 1)
    assert launch == Launch("node-5", join=ADDRESSES["node-3"], step=Step.JOIN, round=SCRIPT.join)
    assert CAST.guide != CAST.founder


def test_nothing_happens_twice() -> None:
    assert at(JOINED) == ()
    done = {Step.JOIN: 2, Step.KILL: 6, Step.LEAVE: 8}
    assert at(JOINED, done=done, founder_reduce=Reduce(8, 0.5), leaver_training=9) == ()


@pytest.mark.parametrize(
    ("round", "fraction", "dies"),
    [(6, 0.2, True), (6, 0.8, True), (6, 0.19, False), (6, 0.81, False), (5, 0.5, False), (7, 0.5, True)],
)
def test_the_founder_is_killed_in_the_middle_of_a_late_reduce(
    round: int, fraction: float, dies: bool
) -> None:
    assert at(JOINED, founder_reduce=Reduce(round, fraction)) == (
        (Kill("node-1", round, fraction),) if dies else ()
    )


def test_the_kill_waits_for_the_joiner_but_not_for_ever() -> None:
    alone = frozenset(CAST.members)
    assert at(JOINED, contributing=alone, founder_reduce=Reduce(6, 0.5)) == ()
    assert at(JOINED, contributing=alone, founder_reduce=Reduce(SCRIPT.kill_anyway, 0.5)) != ()


def test_nobody_is_killed_in_a_round_that_the_others_have_committed() -> None:
    assert at(JOINED, committed=6, founder_reduce=Reduce(6, 0.5)) == ()


def test_two_rounds_after_the_kill_another_leaves() -> None:
    killed = replace(JOINED, done={Step.JOIN: 2, Step.KILL: 6})
    assert at(killed, leaver_training=7) == ()
    assert at(killed, leaver_training=None) == ()
    assert at(killed, leaver_training=8) == (Leave("node-2", 8),)


@pytest.mark.parametrize("rounds", [4, 5, 8, 10, 30])
def test_there_is_time_for_every_step(rounds: int) -> None:
    script = Script.of(rounds)
    assert 0 < script.join < script.kill <= script.kill_anyway < rounds
    assert all(killed < script.leave(killed) < rounds for killed in range(script.kill, rounds - 1))


def test_it_ends_when_all_that_are_left_have_finished() -> None:
    done = {Step.JOIN: 2, Step.KILL: 6, Step.LEAVE: 8}
    assert at(JOINED, done=done, finished=frozenset({"node-3", "node-4"})) == ()
    assert at(JOINED, done=done, finished=frozenset(CAST.survivors)) == (Finish(),)


def test_who_is_gone_is_not_started_again_and_the_first_that_is_left_opens() -> None:
    done = {Step.JOIN: 2, Step.KILL: 6}
    assert expected(CAST, done) == ("node-2", "node-3", "node-4", "node-5")
    resumed = Scene(fresh=False, done=done, committed=6)
    assert at(resumed) == (Launch("node-2"),)
    opened = replace(resumed, launched=frozenset({"node-2"}), addresses={"node-2": ADDRESSES["node-2"]})
    assert at(opened) == tuple(
        Launch(name, join=ADDRESSES["node-2"]) for name in ("node-3", "node-4", "node-5")
    )


def test_two_nodes_are_enough() -> None:
    cast = Cast.of(2)
    assert (cast.founder, cast.leaver, cast.guide, cast.survivors) == (
        "node-1",
        "node-2",
        "node-2",
        ("node-3",),
    )
