"""Random fault schedules on simulated runs: 200 seeds in every run of the tests, thousands in ``make soak``."""

import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import pytest

from tests.sim.__main__ import report
from tests.sim.faults import KINDS
from tests.sim.play import Played, play
from tests.sim.schedule import draw

SOAK_SEEDS = 2_000
SOAK_EVENTS = 10_000_000


SEEDS = range(200)


@cache
def played(seed: int) -> Played:
    """The run of a seed, played once."""
    return play(draw(seed))


@pytest.mark.failure_mode(11, 30, 31, 32)
@pytest.mark.parametrize("first", SEEDS[::25])
def test_no_seed_breaks_an_invariant(first: int) -> None:
    assert not [report(one) for seed in range(first, first + 25) if (one := played(seed)).broken]


def test_everything_that_can_go_wrong_is_in_the_schedules_and_happens() -> None:
    schedules = [played(seed).schedule for seed in SEEDS]
    drawn = Counter(fault.kind for schedule in schedules for fault in schedule.faults)
    assert min(drawn[kind] for kind in KINDS) > 5, drawn
    shapes = [schedule.shape for schedule in schedules]
    assert {shape.fragments for shape in shapes} >= {1, 2, 3} and max(s.coordinators for s in shapes) == 2
    happened = sum((played(seed).happened for seed in SEEDS), Counter())
    for kind in ("Renew", "Halt", "Stop", "Resync", "CatchUp", "Say AskReset", "Say Pass", "pause", "resume"):
        assert happened[kind] > 2, happened


def soak(seed: int) -> Played:
    """Play one seed; a function of its own for other processes."""
    return play(draw(seed))


@pytest.mark.soak
@pytest.mark.failure_mode(11, 30, 31, 32)
def test_ten_million_events_break_no_invariant() -> None:
    totals = {"seeds": 0, "events": 0, "rounds": 0, "attempts": 0}
    seed = 0
    with ProcessPoolExecutor() as pool:
        while totals["seeds"] < SOAK_SEEDS or totals["events"] < SOAK_EVENTS:
            for played in pool.map(soak, range(seed, seed + 200), chunksize=10):
                assert not played.broken, report(played)
                totals["seeds"] += 1
                totals["events"] += played.events
                totals["rounds"] += played.rounds
                totals["attempts"] += played.attempts
            seed += 200
            print(json.dumps(totals), flush=True)
