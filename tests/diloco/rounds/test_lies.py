"""Voters and contributors that lie: what the machine keeps stays small, no vote is believed without its Close."""

from dataclasses import replace
from typing import Any

import pytest

from diloco.rounds import hearing, planning
from diloco.rounds.events import Arrived
from diloco.rounds.records import Order
from diloco.rounds.roster import Plan
from diloco.rounds.state import State
from diloco.rounds.statements import Close, Pass, Ready, Vote
from diloco.rounds.values import Value, value_digest
from protocol.envelope import Sealed, seal
from protocol.messages import encode
from protocol.units import PeerId
from tests.diloco.rounds.swarm import RUN, KeyedSigner, Swarm

FIVE = ("anna", "bert", "carl", "dora", "emil")


def says(name: str, body: Any) -> Sealed[Any]:
    return seal(KeyedSigner(PeerId(name)), RUN, body)


def hear(swarm: Swarm, who: str, name: str, body: Any) -> None:
    swarm.feed(who, Arrived(says(name, body)))


def quiet(count: int = 5, rounds: int = 4) -> Swarm:
    """Members whose state is there and who have trained on nothing yet."""
    swarm = Swarm(FIVE[:count], rounds=rounds)
    swarm.train_time = lambda name, number: 1e6
    for name in FIVE[:count]:
        swarm.restart(name)
    swarm.run(until=1.0)
    return swarm


def leads(swarm: Swarm, attempt: int) -> str:
    return swarm.nodes["anna"].state.leader(attempt)


def ready(state: State, attempt: int = 0, **fields: Any) -> Ready:
    return Ready(epoch=state.epoch, round=state.round, attempt=attempt, base=state.base or b"", **fields)


def forged(state: State) -> bytes:
    """A value of this round that names what its maker likes."""
    value = Value(
        epoch=state.epoch, round=state.round, previous=state.tip.digest, base=state.base or b"",
        electorate=state.value.electorate[:1], banned=("emil",),
    )  # fmt: skip
    return encode(value)


def test_a_reported_vote_without_the_leaders_close_forces_nothing() -> None:
    swarm = Swarm(FIVE, rounds=3)
    leader = leads(swarm, 0)
    liar = next(name for name in FIVE if name != leader)
    data = forged(swarm.nodes[liar].state)
    swarm.run(until=1.0)
    swarm.nodes[liar].alive = False
    lie = ready(swarm.nodes[leader].state, voted_attempt=1, voted_value=data, voted_close=b"none")
    for name in FIVE:
        swarm.nodes[name].holds.add(value_digest(data))  # a value without chunks needs no bytes
        hear(swarm, name, liar, lie)
    swarm.run(until=600, when=lambda: len(swarm.nodes[leader].disk.chain) > 1)
    (certified,) = swarm.nodes[leader].disk.chain[1:]
    assert certified.data != data and certified.value.roster
    swarm.check()


@pytest.mark.parametrize(
    "lie", ["no close", "another's close", "another value", "a later attempt", "a stranger"]
)
def test_a_vote_is_believed_with_its_leaders_close_and_not_without(lie: str) -> None:
    swarm = Swarm(FIVE, rounds=3)
    swarm.run(until=1.0)
    state = swarm.nodes["anna"].state
    leader, voter = leads(swarm, 0), next(name for name in FIVE if name != leads(swarm, 0))
    data = forged(state)
    close = says(leader, Close(epoch=0, round=0, attempt=0, value=data)).raw
    honest = ready(state, attempt=1, voted_attempt=1, voted_value=data, voted_close=close)

    def choice(peer: str, report: Ready) -> str:
        return planning.choose(state.rules, state.value, state.tip.digest, {peer: report}).kind

    assert choice(voter, honest) == "forced"
    assert choice(leader, replace(honest, voted_close=b"")) == "forced", "its own word is worth its Close"
    lies = {
        "no close": (voter, replace(honest, voted_close=b"")),
        "another's close": (
            voter,
            replace(honest, voted_close=says(voter, Close(epoch=0, round=0, attempt=0, value=data)).raw),
        ),
        "another value": (voter, replace(honest, voted_value=encode(replace(state.value, round=0)))),
        "a later attempt": (voter, replace(honest, attempt=0, voted_attempt=2)),
        "a stranger": ("zoe", honest),
    }
    assert choice(*lies[lie]) == "free"


def test_one_voter_cannot_take_a_run_to_the_end_of_all_attempts() -> None:
    swarm = quiet(3)
    for attempt in (2**62, 2**64 - 1, hearing.MOST_AHEAD + 1):
        hear(swarm, "anna", "bert", ready(swarm.nodes["anna"].state, attempt))
    assert swarm.nodes["anna"].state.highest_seen() == 0
    hear(swarm, "anna", "bert", ready(swarm.nodes["anna"].state, 3))
    assert swarm.nodes["anna"].state.highest_seen() == 3


def test_what_one_voter_says_in_a_round_stays_small() -> None:
    swarm = quiet()
    anna = swarm.nodes["anna"]
    for number in range(300):
        hear(swarm, "anna", "bert", Vote(epoch=0, round=0, attempt=number, value=bytes([number % 256]) * 32))
        hear(swarm, "anna", "bert", Vote(epoch=0, round=0, attempt=number, value=b"another"))
        hear(swarm, "anna", leads(swarm, number), Pass(epoch=0, round=0, attempt=number))
        close = Close(epoch=0, round=0, attempt=number, value=number.to_bytes(2, "big"))
        hear(swarm, "anna", leads(swarm, number), close)
    assert sum(len(held) for held in anna.state.votes.values()) == hearing.MOST_VOTES
    assert min(attempt for attempt, _ in anna.state.votes) == 300 - hearing.MOST_VOTES
    assert len(anna.state.passed) <= len(FIVE) + 1
    assert len(anna.state.bodies) <= hearing.MOST_BODIES


def test_a_close_that_is_checked_finds_room_among_those_that_are_not() -> None:
    swarm = Swarm(FIVE, rounds=2)
    anna = swarm.nodes["anna"]
    swarm.run(when=lambda: anna.state.plan is not None)
    for number in range(5, 500):
        close = Close(epoch=0, round=0, attempt=number, value=number.to_bytes(2, "big"))
        hear(swarm, "anna", leads(swarm, number), close)
    assert len(anna.state.bodies) == hearing.MOST_BODIES
    swarm.run(until=60, when=lambda: bool(anna.state.closes))
    (close,) = anna.state.closes.values()
    assert close.message.value in anna.state.bodies.values()


def test_long_readys_of_contributors_are_left_out_and_the_round_goes_on() -> None:
    swarm = Swarm(FIVE[:3], rounds=2)
    swarm.run(until=1.0)
    state = swarm.nodes["anna"].state
    for name in FIVE[:3]:
        for number in range(200):
            stranger = f"stranger-{number}"
            long = ready(state, admission=b"admit " + stranger.encode(), orders=(b"o" * 2048,) * 16)
            hear(swarm, name, stranger, long)
    swarm.run(until=300, when=lambda: len(swarm.nodes["anna"].disk.chain) > 1)
    (certified,) = swarm.nodes["anna"].disk.chain[1:]
    assert {elector.peer for elector in certified.value.electorate} >= set(FIVE[:3])
    assert certified.attempt == 0


def test_only_voters_restore_their_right_to_vote_through_a_value() -> None:
    swarm = Swarm(FIVE[:3], rounds=2)
    swarm.run(until=1.0)
    state = swarm.nodes["anna"].state
    for name in FIVE[:3]:
        for number in range(70):
            stranger = f"stranger-{number}"
            lost = ready(state, admission=b"admit " + stranger.encode(), lost_record=True, boot=b"b" * 16)
            hear(swarm, name, stranger, lost)
    swarm.run(until=300, when=lambda: len(swarm.nodes["anna"].disk.chain) > 1)
    (certified,) = swarm.nodes["anna"].disk.chain[1:]
    entered = {elector.peer for elector in certified.value.electorate}
    assert {boot.peer for boot in certified.value.boots} <= entered


def test_a_ban_of_every_voter_stops_the_run_and_no_member() -> None:
    swarm = Swarm(FIVE[:2], rounds=4)
    swarm.run(until=1.0)
    state = swarm.nodes["anna"].state
    orders = tuple(
        says("operator", Order(number=number + 1, kind="ban", peer=name)).raw
        for number, name in enumerate(FIVE[:2])
    )
    plan = Plan(state.base or b"", (), (), {n: ready(state, orders=orders) for n in FIVE[:2]})
    value = planning.make_value(state.rules, state.value, state.tip.digest, plan, 0, ())
    assert value.stopped and {e.peer for e in value.electorate} == set(FIVE[:2])
    assert set(value.banned) == set(FIVE[:2])
