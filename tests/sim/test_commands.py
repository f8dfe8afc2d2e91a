"""``make sim``: seeds are counted, one is told as a story, one that fails is shrunk to a schedule that replays."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.sim import mutants
from tests.sim.__main__ import main
from tests.sim.play import play
from tests.sim.schedule import draw
from tests.sim.shrink import shrink


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Votes are forgotten by a restart."""
    with ExitStack() as stack:
        for patched in mutants.votes_forgotten_by_a_restart():
            stack.enter_context(patched)
        yield


def test_seeds_are_played_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["seeds"], told["failed"]) == (3, 0)
    assert told["events"] > 1000 and told["attempts"] >= told["rounds"] > 10


def test_one_seed_is_told_as_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("DECIDED" in line for line in lines)
    assert lines[-1].startswith("Seed 5 holds")


def test_a_seed_replays_exactly() -> None:
    assert play(draw(11)) == play(draw(11))


def test_a_failing_seed_is_shrunk_and_its_schedule_still_fails(
    forgetful: None, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = next(seed for seed in range(100) if play(draw(seed)).broken)
    assert main(["--first", str(seed), "--seeds", "1"]) == 1
    told = capsys.readouterr().out
    assert f"make sim SEED={seed}" in told
    shown = sum(line.startswith("  ") for line in told.splitlines())
    assert 0 < shown < len(draw(seed).faults), "some of its faults are enough"


def test_a_schedule_is_shrunk_to_the_faults_that_break_it() -> None:
    schedule = draw(2)
    needed = {schedule.faults[1].kind, schedule.faults[-1].kind}
    small = shrink(schedule, lambda tried: needed <= {fault.kind for fault in tried.faults})
    assert {fault.kind for fault in small.faults} == needed
    assert all(fault.length <= 0.5 for fault in small.faults)
