"""The rules hold where a schedule is steered to the places that chance finds seldom."""

from collections.abc import Callable

import pytest

from tests.sim import scenes


@pytest.mark.parametrize(
    "scene",
    (
        scenes.the_leader_is_cut_off,
        scenes.the_tie_breaker_leaves_unheard,
        scenes.the_tie_breaker_leaves_while_the_other_trains,
        scenes.a_leader_that_lives_is_never_ready,
        scenes.the_second_leader_lives_and_is_never_ready,
        scenes.a_voter_is_heard_too_late_in_every_other_round,
    ),
    ids=lambda scene: scene.__name__,
)
def test_the_scene_is_played_to_its_end(scene: Callable[[], None]) -> None:
    scene()
