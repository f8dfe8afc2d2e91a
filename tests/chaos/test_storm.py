"""Ten minutes of storm on six daemons, and one kill at every point of a round."""

import json
from pathlib import Path

import pytest

from tests.chaos.storm import STORM_RUN, storm
from tests.chaos.swarm import PHASES, Swarm, swarm
from tests.e2e.cluster import settings

BUDGET = {"memory": 6.0, "files": 2.0, "threads": 1.0, "shared": 0.5}
"""Most growth per minute, in the median of all lives: MB, file descriptors, threads, segments of shared memory."""


@pytest.mark.soak
@pytest.mark.failure_mode(3, 7, 12, 21, 26)
def test_a_storm_of_ten_minutes_costs_a_living_quorum_nothing(tmp_path: Path) -> None:
    report = storm(tmp_path, seconds=600, nodes=6, seed=0)
    print(json.dumps(report, indent=2))
    assert report["digest_mismatches"] == [] and report["states_compared"] > 50
    assert report["rounds_lost"] == 0
    assert report["steps"]["committed_share"] >= 0.95
    assert report["after_a_kill"]["without_a_commit"] == 0 and report["after_a_kill"]["attempts_max"] <= 2
    assert report["returns"]["still_away"] == [] and report["returns"]["rounds_after_a_kill_max"] <= 2
    for kind, most in BUDGET.items():
        assert report["leaks"][kind]["slope_per_minute_median"] <= most, kind


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> object:
    run = settings(STORM_RUN, {"start_members = 3": "start_members = 5"})
    with swarm(tmp_path_factory.mktemp("phases"), run=run) as made:
        first = made.add("ada").start("init")
        for name in ("bob", "cyd", "dan", "eve"):
            made.add(name).start("run", "--join", first.address)
        for node in made.everyone():
            first.contributed(node.peer)
        yield made


@pytest.mark.soak
@pytest.mark.failure_mode(4, 7, 26)
@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
@pytest.mark.parametrize("phase", list(PHASES))
def test_a_node_killed_at_any_point_costs_no_round_and_returns(
    steady: Swarm, phase: str, leads: bool
) -> None:
    victim = steady.caught(
        phase, lambda: [node for node in steady.observers() if (node is steady.leader()) == leads]
    )
    before = steady.newest()
    victim.kill()
    commit = steady.committed_after(before, without=victim.peer)
    assert commit["attempt"] <= 1, "settled within two attempts"
    observer = next(node for node in steady.observers() if node is not victim)
    place = observer.mark()
    victim.start("run", "--join", observer.address)
    observer.contributed(victim.peer, since=place)
    steady.check_digests()
    rounds = [event["round"] for event in observer.of("commit")]
    assert rounds == list(range(rounds[0], rounds[-1] + 1)), "no round is missing"
