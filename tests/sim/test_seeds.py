"""Random fault schedules on simulated runs: 200 seeds in every run of the tests, thousands in ``make soak``."""

import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.sim.__main__ import report
from tests.sim.play import Played, play
from tests.sim.schedule import draw

SOAK_SEEDS = 2_000
SOAK_EVENTS = 10_000_000


@pytest.mark.failure_mode(11, 30, 31, 32)
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    played = [play(draw(seed)) for seed in range(first, first + 25)]
    assert not [report(one) for one in played if one.broken]


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
