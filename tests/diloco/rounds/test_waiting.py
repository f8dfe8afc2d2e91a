"""A member says what it really waits for."""

from dataclasses import replace

import pytest

from diloco.rounds.events import Gone
from diloco.rounds.waiting import Waiting, waiting
from tests.diloco.rounds.swarm import Swarm

FIVE = ("anna", "bert", "carl", "dora", "emil")


def test_who_is_dead_is_named_when_it_is_missed_for_a_quorum() -> None:
    swarm = Swarm(("anna", "bert"), rounds=6)
    swarm.run(when=lambda: all(node.state.round == 2 for node in swarm.nodes.values()))
    dead = swarm.nodes["anna"].state.value.tie_breaker
    (left,) = {"anna", "bert"} - {dead}
    swarm.kill(dead)
    swarm.run(until=swarm.now + 300)
    state = swarm.nodes[left].state
    assert dead in state.gone
    words = waiting(state, swarm.now)
    assert (words.phase, words.reason, words.missing) == ("ready", "quorum", (dead,))
    assert "1 of 2 voters are ready, no quorum" in words.sentence and dead in words.sentence


def words_of(swarm: Swarm, name: str) -> Waiting:
    return waiting(swarm.nodes[name].state, swarm.now)


def test_voters_with_states_that_no_quorum_shares_wait_for_the_operator() -> None:
    swarm = Swarm(FIVE, rounds=6)
    swarm.run(when=lambda: all(node.state.round == 2 for node in swarm.nodes.values()))
    before = [node.disk.chain[-1].digest for node in swarm.nodes.values()]
    for number, name in enumerate(FIVE):
        swarm.kill(name)
        swarm.nodes[name].disk.states[-1] = bytes([number % 3]) * 32
        swarm.restart(name)
    swarm.run(until=swarm.now + 300)
    assert [node.disk.chain[-1].digest for node in swarm.nodes.values()] == before
    for name in FIVE:
        words = words_of(swarm, name)
        assert (words.phase, words.reason) == ("ready", "divergence")
        assert "3 different states" in words.sentence
    swarm.check()


def test_two_states_are_no_divergence_while_the_silent_may_share_one() -> None:
    swarm = Swarm(FIVE, rounds=6)
    swarm.run(when=lambda: all(node.state.round == 2 for node in swarm.nodes.values()))
    for name in FIVE[2:]:
        swarm.kill(name)
    swarm.kill("bert")
    swarm.nodes["bert"].disk.states[-1] = b"\1" * 32
    swarm.restart("bert")
    swarm.run(until=swarm.now + 100)
    assert words_of(swarm, "anna").reason == "quorum"


def test_a_voted_value_whose_bytes_nobody_has_is_named_as_the_reason_until_they_are_there() -> None:
    swarm = Swarm(FIVE[:3], rounds=3)
    leader = swarm.nodes["anna"].state.leader(0)
    followers = [name for name in FIVE[:3] if name != leader]
    swarm.run(when=lambda: any(swarm.nodes[name].votes for name in followers))
    voter = next(name for name in followers if swarm.nodes[name].votes)
    other = next(name for name in followers if name != voter)
    for name in FIVE[:3]:
        swarm.kill(name)
    there = dict.fromkeys((leader, other))
    for name in there:
        swarm.restart(name)
        swarm.nodes[name].holds.clear()
    for name in there:
        swarm.feed(name, Gone(voter))
    swarm.run(until=swarm.now + 100)
    for name in there:
        words = words_of(swarm, name)
        assert (words.phase, words.reason, words.missing) == ("ready", "bytes-lost", (voter,))
        assert voter in words.sentence
    assert all(len(swarm.nodes[name].disk.chain) == 1 for name in there)
    swarm.restart(voter)
    swarm.run(until=swarm.now + 300)
    assert all(node.state.finished for node in swarm.nodes.values())
    swarm.check()


@pytest.mark.failure_mode(32)
def test_a_voter_without_its_vote_record_says_why_it_abstains() -> None:
    swarm = Swarm(FIVE[:3], rounds=6)
    swarm.run(when=lambda: all(node.state.round == 2 for node in swarm.nodes.values()))
    swarm.kill("carl")
    swarm.nodes["carl"].disk.promise = None
    swarm.restart("carl")
    swarm.nodes["carl"].state = replace(swarm.nodes["carl"].state, abstains=True)
    swarm.run(until=swarm.now + 100, when=lambda: swarm.nodes["carl"].state.said >= 0)
    words = words_of(swarm, "carl")
    assert (words.phase, words.reason) == ("ready", "abstains")
    assert "record" in words.sentence
    assert not any(round_number == 2 for round_number, _ in swarm.nodes["carl"].votes)
    swarm.run(until=swarm.now + 300)
    assert all(node.state.finished for node in swarm.nodes.values())
    assert not swarm.nodes["carl"].state.abstains


def test_who_misses_a_quorum_says_when_it_will_ask_for_a_reset_and_then_that_it_has() -> None:
    swarm = Swarm(FIVE[:3], rounds=6)
    swarm.run(when=lambda: all(node.state.round == 2 for node in swarm.nodes.values()))
    for name in FIVE[1:3]:
        swarm.kill(name)
    swarm.run(until=swarm.now + 100)
    words = words_of(swarm, "anna")
    assert words.reason == "quorum" and words.until is not None
    assert 0 < words.until - swarm.now < swarm.timing.lost.total_seconds()
    swarm.run(until=words.until + 2)
    words = words_of(swarm, "anna")
    assert words.until is None and "1 voters have asked for a reset" in words.sentence
