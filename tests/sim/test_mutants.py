"""Each rule that looks fussy is needed: taken away, some schedule splits or halts the run, and the judge sees it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.sim import mutants, scenes
from tests.sim.judge import Broken
from tests.sim.mutants import Mutant
from tests.sim.play import play
from tests.sim.schedule import DISKS, EVERYTHING, LEAVERS, VOTES, Profile, draw

FOUND_BY_CHANCE: dict[Mutant, Profile] = {
    mutants.no_lock_between_attempts: VOTES,
    mutants.majority_of_the_next_electorate: VOTES,
    mutants.votes_forgotten_by_a_restart: VOTES,
    mutants.a_tie_breaker_that_follows_the_attempt: VOTES,
    mutants.votes_of_different_attempts_added_up: EVERYTHING,
    mutants.a_close_before_the_leaders_own_vote_is_on_disk: VOTES,
    mutants.a_lost_record_that_is_not_noticed: DISKS,
    mutants.a_vote_that_is_not_a_promise: VOTES,
    mutants.a_taken_up_value_that_is_refused: VOTES,
    mutants.a_timer_that_runs_without_a_quorum: EVERYTHING,
    mutants.certificates_not_repeated_to_the_late: EVERYTHING,
}
SHOWN_BY_A_SCENE: dict[Mutant, Callable[[], None]] = {
    mutants.leaders_of_ones_own_view: scenes.the_leader_is_cut_off,
    mutants.a_drainer_that_leaves_at_once: scenes.the_tie_breaker_leaves_unheard,
}
MOST_SEEDS = 400
HOLDING_SEEDS = 15


@pytest.fixture
def mutated(request: pytest.FixtureRequest) -> Iterator[None]:
    """The mutant of the test's parameter is at work."""
    with ExitStack() as stack:
        for patched in request.param():
            stack.enter_context(patched)
        yield


def name_of(one: object) -> str:
    return getattr(one, "__name__", "")


def test_there_are_thirteen() -> None:
    assert len({*FOUND_BY_CHANCE, *SHOWN_BY_A_SCENE}) == 13


@pytest.mark.parametrize(("mutated", "profile"), FOUND_BY_CHANCE.items(), ids=name_of, indirect=["mutated"])
def test_chance_finds_the_mutant(mutated: None, profile: Profile) -> None:
    assert any(play(draw(seed, profile)).broken for seed in range(MOST_SEEDS))


@pytest.mark.parametrize("profile", (DISKS, LEAVERS), ids=("disks", "leavers"))
def test_the_rules_as_they_are_hold_in_the_schedules_made_for_mutants(profile: Profile) -> None:
    assert not [
        played.broken for seed in range(HOLDING_SEEDS) if (played := play(draw(seed, profile))).broken
    ]


@pytest.mark.parametrize(("mutated", "scene"), SHOWN_BY_A_SCENE.items(), ids=name_of, indirect=["mutated"])
def test_a_scene_shows_the_mutant(mutated: None, scene: Callable[[], None]) -> None:
    with pytest.raises(Broken):
        scene()
