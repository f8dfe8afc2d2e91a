"""Runs of many members, in small: every member's part of the control traffic stays about the same."""

import pytest

from tests.sim.crowd import grow


@pytest.mark.parametrize("members", (10, 100))
def test_a_run_goes_on_while_members_are_replaced_in_every_round(members: int) -> None:
    grown = grow(members, rounds=8, replaced=1)
    assert grown.rounds == 8
    assert grown.everyone > 0.8


def test_the_control_traffic_of_a_member_grows_at_most_with_the_logarithm_of_the_members() -> None:
    small, large = (grow(members, rounds=4, replaced=1) for members in (40, 160))
    assert large.bytes_per_member_round < small.bytes_per_member_round * 2
