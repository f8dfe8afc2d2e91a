"""Who tells whom: everybody is told once by few, whoever is asked to compute it."""

import pytest

from diloco.rounds.planning import leaders
from diloco.rounds.routing import FAN, FEW, WATCHERS, Spread, hearers, voters, watchers
from diloco.rounds.values import Elector, Ghost, Value
from tests.diloco.rounds.swarm import Swarm


def value(seats: range, members: range, ghosts: range = range(0)) -> Value:
    return Value(
        epoch=0,
        round=0,
        previous=b"",
        base=b"",
        electorate=tuple(Elector(peer=f"p{n}") for n in seats),
        members=tuple(f"p{n}" for n in members),
        ghosts=tuple(Ghost(peer=f"p{n}", rounds=0) for n in ghosts),
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 40, 1000])
def test_a_decided_value_reaches_everybody_of_both_values_once(count: int) -> None:
    seats = min(31, count)
    tip = value(range(seats), range(seats, count))
    after = value(range(1, seats + 1), range(seats + 1, count), range(count, count + 2))
    spread = Spread(tip, after, b"d" * 32)
    told = [spread.order[0], *(spread.order[place] for peer in spread.order for place in spread.of(peer))]
    assert sorted(told) == sorted(
        {f"p{n}" for n in range(max(count, seats + 1))} | {f"p{count}", f"p{count + 1}"}
    )
    assert set(spread.order[:seats]) == voters(tip)
    assert all(len(list(spread.of(peer))) <= FAN for peer in spread.order)
    assert list(spread.of("a stranger")) == []


def test_another_value_has_another_tree() -> None:
    tip, after = value(range(31), range(31, 100)), value(range(31), range(31, 100))
    first, second = Spread(tip, after, b"a" * 32), Spread(tip, after, b"b" * 32)
    assert first.order != second.order and set(first.order) == set(second.order)


def test_in_a_small_run_everybody_hears_what_is_undecided() -> None:
    few, many = value(range(4), range(4, FEW)), value(range(31), range(31, 100))
    known = {f"p{n}" for n in range(FEW)}
    rules = Swarm(("p0",)).rules
    assert hearers(rules, few, "p1", known, 0) == known - {"p1"}
    assert hearers(rules, few, "p1", known | {"one more"}, 0) == voters(few) - {"p1"}
    assert hearers(rules, many, "p1", {f"p{n}" for n in range(100)}, 0) == voters(many) - {"p1"}


def test_a_voter_watches_all_voters_and_any_other_member_a_few() -> None:
    tip = value(range(31), range(31, 100))
    assert watchers(tip, "p3") == voters(tip) - {"p3"}
    few = [watchers(tip, f"p{n}") for n in range(31, 100)]
    assert {len(each) for each in few} == {WATCHERS}
    assert set().union(*few) == voters(tip)  # nobody is left to watch them all
    assert watchers(tip, "p99", wide=True) == voters(tip)


def test_who_is_watched_by_whom_hardly_changes_with_the_electorate() -> None:
    tip, after = value(range(31), range(31, 100)), value(range(1, 32), range(32, 100))
    kept = [watchers(tip, f"p{n}") & watchers(after, f"p{n}") for n in range(32, 100)]
    assert all(len(each) >= WATCHERS - 2 for each in kept)
    assert sum(map(len, kept)) > 0.9 * WATCHERS * len(kept)


def test_a_voter_tells_all_voters_and_any_other_member_those_who_lead() -> None:
    rules, tip = Swarm(("p0",)).rules, value(range(31), range(31, 100))
    order = leaders(rules, tip)
    known = {f"p{n}" for n in range(100)}
    assert hearers(rules, tip, "p3", known, 5) == voters(tip) - {"p3"}
    assert hearers(rules, tip, "p40", known, 0) == {order[0], order[1]}
    assert hearers(rules, tip, "p40", known, 30) == {order[30], order[0]}
