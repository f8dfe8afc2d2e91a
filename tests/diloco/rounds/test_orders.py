"""The operator's orders act by being named in a value, from the next round on, in order of their numbers."""

from collections.abc import Callable

import pytest

from diloco.rounds.events import Arrived
from diloco.rounds.records import Order
from diloco.rounds.values import Value
from diloco.rounds.waiting import waiting
from tests.diloco.rounds.swarm import SAMPLES, Swarm
from tests.diloco.rounds.test_lies import ready, says

FIVE = ("anna", "bert", "carl", "dora", "emil")


def chain(swarm: Swarm, name: str = "anna") -> list[Value]:
    return [certified.value for certified in swarm.nodes[name].disk.chain]


def until_round(swarm: Swarm, number: int, name: str = "anna") -> None:
    swarm.run(until=swarm.now + 300, when=lambda: swarm.nodes[name].state.round >= number)
    assert swarm.nodes[name].state.round >= number


def voters(value: Value) -> set[str]:
    return {elector.peer for elector in value.electorate}


def roster(value: Value) -> set[str]:
    return {entry.peer for entry in value.roster}


def names(number: int) -> Callable[[Value], bool]:
    return lambda value: any(order.number == number for order in value.orders)


def ordered(swarm: Swarm, number: int) -> Value:
    """The value that takes an order up."""
    swarm.run(until=swarm.now + 300, when=lambda: any(map(names(number), chain(swarm))))
    (value,) = filter(names(number), chain(swarm))
    return value


@pytest.mark.parametrize("told", [FIVE, ("carl",)])
def test_a_paused_run_stands_still_and_one_voter_with_an_order_makes_it_go_on(told: tuple[str, ...]) -> None:
    swarm = Swarm(FIVE, rounds=8)
    until_round(swarm, 1)
    swarm.order(1, "pause")
    paused = ordered(swarm, 1)
    assert paused.paused and roster(paused) == set(FIVE)
    swarm.run(until=swarm.now + 1)
    before = swarm.now
    swarm.run(until=before + 3600)
    assert chain(swarm)[-1] == paused
    words = waiting(swarm.nodes["bert"].state, swarm.now)
    assert (words.phase, words.reason) == ("paused", "paused")
    swarm.order(2, "resume", to=told)
    resumed = ordered(swarm, 2)
    assert resumed.round == paused.round + 1 and not resumed.paused and not resumed.roster
    assert voters(resumed) == set(FIVE) and all(e.absent == 0 for e in resumed.electorate)
    swarm.run(until=swarm.now + 600)
    assert [roster(value) for value in chain(swarm)[resumed.round + 2 :]] == [set(FIVE)] * (7 - resumed.round)
    swarm.check()


def test_what_was_frozen_before_a_pause_is_given_after_it() -> None:
    swarm = Swarm(FIVE, rounds=8)
    until_round(swarm, 1)
    slow = swarm.nodes["emil"]
    swarm.cut = lambda a, b: "emil" in (a, b)
    swarm.order(1, "pause", to=FIVE[:4])
    paused = ordered(swarm, 1)
    assert "emil" not in roster(paused)
    swarm.run(until=swarm.now + 30)
    frozen = slow.state.contribution
    assert frozen is not None
    swarm.cut = lambda a, b: False
    swarm.run(until=swarm.now + 30)
    assert slow.state.value == paused and slow.state.contribution == frozen
    swarm.order(2, "resume")
    resumed = ordered(swarm, 2)
    until_round(swarm, resumed.round + 2)
    assert "emil" in roster(chain(swarm)[resumed.round + 2])
    swarm.check()


def test_a_paused_run_takes_up_an_order_and_stays_paused() -> None:
    swarm = Swarm(FIVE, rounds=8)
    swarm.order(1, "pause")
    ordered(swarm, 1)
    swarm.order(2, "ban", "emil", to=["dora"])
    value = ordered(swarm, 2)
    assert value.paused and value.banned == ("emil",) and not value.roster
    swarm.run(until=swarm.now + 600)
    assert chain(swarm)[-1] == value


def test_a_kicked_voter_is_out_of_the_next_round_and_comes_again() -> None:
    swarm = Swarm(FIVE, rounds=8)
    until_round(swarm, 1)
    swarm.order(1, "kick", "emil")
    value = ordered(swarm, 1)
    assert "emil" in roster(value), "what it gave before counts"
    assert "emil" not in voters(value) and all(lease.peer != "emil" for lease in value.leases)
    swarm.run(until=swarm.now + 600)
    assert "emil" in voters(chain(swarm)[value.round + 2])
    assert "emil" in roster(chain(swarm)[-1])
    swarm.check()


def with_guest(rounds: int = 8) -> Swarm:
    """A run whose fifth member was admitted without a seat."""
    swarm = Swarm(FIVE[:4], rounds=rounds)
    until_round(swarm, 1)
    donor = swarm.nodes["anna"].disk
    swarm.add("emil", donor.chain, donor.states, seat=False)
    swarm._tick("emil")
    swarm.run(until=swarm.now + 300, when=lambda: "emil" in swarm.nodes["anna"].state.value.members)
    assert "emil" not in voters(chain(swarm)[-1])
    return swarm


def test_a_seat_makes_a_voter_of_a_member_and_its_loss_a_member_of_a_voter() -> None:
    swarm = with_guest()
    swarm.order(1, "seat", "emil")
    value = ordered(swarm, 1)
    assert "emil" in voters(value) and not value.members
    swarm.order(2, "unseat", "emil")
    swarm.order(3, "unseat", "dora")
    value = ordered(swarm, 3)
    assert voters(value) == set(FIVE[:3]) and set(value.members) == {"dora", "emil"}
    swarm.run(until=swarm.now + 600)
    last = chain(swarm)[-1]
    assert voters(last) == set(FIVE[:3]) and roster(last) == set(FIVE)
    swarm.check()


def test_a_seat_given_by_order_is_kept_over_an_absence() -> None:
    swarm = with_guest(rounds=12)
    swarm.order(1, "seat", "emil")
    ordered(swarm, 1)
    swarm.kill("emil")
    swarm.run(until=swarm.now + 300, when=lambda: "emil" not in voters(chain(swarm)[-1]))
    swarm.restart("emil")
    swarm.run(until=swarm.now + 600)
    assert "emil" in voters(chain(swarm)[-1])


def test_who_has_a_seat_for_which_there_is_no_room_contributes_until_there_is() -> None:
    swarm = Swarm(FIVE[:3], rounds=12)
    object.__setattr__(swarm.rules, "max_voters", 3)
    until_round(swarm, 1)
    donor = swarm.nodes["anna"].disk
    swarm.add("emil", donor.chain, donor.states)
    swarm._tick("emil")
    until_round(swarm, 5)
    value = chain(swarm)[-1]
    assert value.members == ("emil",) and "emil" in roster(value)
    swarm.leave("bert")
    swarm.run(until=swarm.now + 100)
    assert voters(chain(swarm)[-1]) == {"anna", "carl", "emil"}


def test_a_parameter_acts_from_the_next_round_on_and_an_empty_value_gives_the_old_one_back() -> None:
    swarm = Swarm(FIVE, rounds=8)
    until_round(swarm, 1)
    swarm.order(1, "parameter", name="round.inner_steps", value="5")
    value = ordered(swarm, 1)
    assert [(p.name, p.value) for p in value.parameters] == [("round.inner_steps", "5")]
    assert {lease.count for lease in chain(swarm)[value.round].leases} == {SAMPLES}
    assert {lease.count for lease in value.leases} == {5 * swarm.rules.samples_per_step}
    until_round(swarm, value.round + 3)
    assert chain(swarm)[-1].parameters == value.parameters, "it stands until it is changed"
    swarm.order(2, "parameter", name="round.inner_steps")
    back = ordered(swarm, 2)
    assert back.parameters == () and {lease.count for lease in back.leases} == {SAMPLES}
    swarm.run(until=swarm.now + 600)
    swarm.check()


@pytest.mark.parametrize(
    ("name", "value"),
    [("model.hidden", "8"), ("outer.lr", "11"), ("outer.lr", "nan"), ("outer.lr", "x"), ("outer.lr", "٣"),
     ("round.inner_steps", "1.5"), ("round.inner_steps", "0"), ("", "1")],
)  # fmt: skip
def test_a_parameter_that_is_not_in_the_list_or_beyond_its_bounds_changes_nothing(
    name: str, value: str
) -> None:
    swarm = Swarm(FIVE[:3], rounds=3)
    swarm.order(7, "parameter", name=name, value=value)
    taken = ordered(swarm, 7)
    assert taken.order_number == 7 and taken.parameters == ()


def test_an_order_below_the_highest_taken_up_is_void() -> None:
    swarm = Swarm(FIVE[:3], rounds=6)
    swarm.order(5, "ban", "zoe")
    ordered(swarm, 5)
    swarm.order(3, "pause")
    swarm.run(until=600)
    values = chain(swarm)
    assert len(values) == 7 and not any(map(names(3), values)) and not values[-1].paused
    assert values[-1].order_number == 5


def test_orders_of_one_value_act_in_the_order_of_their_numbers() -> None:
    swarm = Swarm(FIVE[:3], rounds=3)
    for number, kind in ((3, "resume"), (2, "pause"), (1, "resume")):
        swarm.order(number, kind)
    value = ordered(swarm, 3)
    assert [order.number for order in value.orders] == [1, 2, 3] and not value.paused


def test_the_operator_ends_a_run() -> None:
    swarm = Swarm(FIVE[:3], rounds=0)
    until_round(swarm, 2)
    swarm.order(1, "finish")
    value = ordered(swarm, 1)
    swarm.run(until=swarm.now + 300)
    assert value.finished and chain(swarm)[-1] == value
    assert all(node.state.finished for node in swarm.nodes.values())
    assert "ended with round" in waiting(swarm.nodes["anna"].state, swarm.now).sentence
    swarm.check()


def test_an_order_that_the_operator_did_not_sign_is_not_taken_from_a_ready() -> None:
    swarm = Swarm(FIVE[:3], rounds=3)
    swarm.run(when=lambda: swarm.nodes["anna"].state.said >= 0)
    bert = swarm.nodes["bert"]
    forged = says("carl", Order(number=9, kind="pause"))
    swarm.feed("bert", Arrived(says("carl", ready(bert.state, 1, orders=(forged.raw,)))))
    assert bert.state.readys["carl"].message.orders and not bert.state.orders
