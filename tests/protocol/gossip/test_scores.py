import pytest

from protocol.gossip import scores
from protocol.gossip.limits import BANNED_FOR, POINTS_BANNED, POINTS_HALVE, POINTS_MOST
from protocol.gossip.scores import Scores


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_bad_messages_cut_a_neighbour_off_and_only_for_a_time() -> None:
    clock = Clock()
    held = Scores(clock)
    cut = [held.bad("m") for _ in range(5)]
    assert cut == [False, False, False, False, True]
    assert held.banned("m") and not held.banned("other")
    clock.now += BANNED_FOR.total_seconds() + 1
    assert not held.banned("m")
    assert held.score("m") < 0, "it is not quite new"


def test_what_is_held_against_a_neighbour_fades() -> None:
    clock = Clock()
    held = Scores(clock)
    held.bad("m")
    before = held.score("m")
    clock.now += POINTS_HALVE.total_seconds()
    assert held.score("m") == pytest.approx(before / 2)


def test_good_messages_earn_little_and_not_without_end() -> None:
    held = Scores(Clock())
    for _ in range(10_000):
        held.good("m")
    assert held.score("m") == POINTS_MOST
    assert sum(not held.bad("m") for _ in range(10)) < 10, "earned points do not buy many bad ones"


def test_a_flood_costs_less_than_a_bad_message_but_adds_up() -> None:
    held = Scores(Clock())
    cut = [held.flood("m") for _ in range(int(-POINTS_BANNED))]
    assert cut.index(True) == len(cut) - 1


def test_strangers_cannot_make_it_forget_who_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "MAX_KNOWN", 10)
    held = Scores(Clock())
    while not held.bad("m"):
        pass
    for number in range(100):
        held.bad(f"stranger {number}")
    assert held.banned("m")
    assert len(held._accounts) == 10
