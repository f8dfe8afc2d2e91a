"""The beacon: nonces that were committed to a round before, and what it costs to keep one back."""

from dataclasses import replace
from typing import Any

import pytest

from diloco.rounds import beacon
from diloco.rounds.electorate import next_electorate, next_tie_breaker
from diloco.rounds.events import Arrived, Say
from diloco.rounds.statements import Ready
from diloco.rounds.values import Elector
from protocol.envelope import seal
from tests.diloco.rounds.swarm import RUN, KeyedSigner, Node, Swarm

FIVE = ("anna", "bert", "carl", "dora", "emil")


def electors(swarm: Swarm, number: int) -> set[str]:
    return {elector.peer for elector in swarm.nodes["anna"].disk.chain[number].value.electorate}


class Keeping(Swarm):
    """One voter changes its Readys before it says them."""

    liar = "emil"
    first = 1

    def change(self, ready: Ready) -> Ready:
        return replace(ready, reveal=b"")

    def _carry_out(self, node: Node, effect: Any) -> None:
        mine = node.name == self.liar and isinstance(effect, Say) and isinstance(effect.body, Ready)
        if mine and effect.body.round >= self.first:
            effect = Say(self.change(effect.body))
        super()._carry_out(node, effect)


class Later(Keeping):
    """It reveals another nonce than the one it committed to."""

    def change(self, ready: Ready) -> Ready:
        return replace(ready, reveal=b"\5" * 32)


class Never(Keeping):
    """It never commits."""

    first = 0

    def change(self, ready: Ready) -> Ready:
        return replace(ready, beacon_commitment=b"")


class Once(Keeping):
    """It keeps its nonce back once."""

    def change(self, ready: Ready) -> Ready:
        return replace(ready, reveal=b"") if ready.round == 1 else ready


def test_every_value_lists_the_nonces_of_all_that_were_there_in_the_round_before() -> None:
    swarm = Swarm(FIVE, rounds=4)
    swarm.run(until=600)
    reveals = [[r.peer for r in c.value.reveals] for c in swarm.nodes["anna"].disk.chain]
    assert reveals == [[], [], list(FIVE), list(FIVE), list(FIVE)]
    swarm.check()


def test_the_order_of_leaders_follows_the_secrets_of_the_voters_and_nothing_known_before() -> None:
    orders = set()
    for seed in range(4):
        swarm = Swarm(FIVE, rounds=3)
        swarm.salt = bytes([seed])
        for name in FIVE:
            swarm.restart(name)
        swarm.run(when=lambda swarm=swarm: swarm.nodes["anna"].state.round == 2)
        state = swarm.nodes["anna"].state
        orders.add(tuple(state.leader(attempt) for attempt in range(5)))
    assert len(orders) > 1


@pytest.mark.parametrize("kind", [Keeping, Later, Never])
def test_a_voter_that_does_not_do_its_part_in_two_values_leaves_the_electorate(kind: type[Keeping]) -> None:
    swarm = kind(FIVE, rounds=6)
    swarm.run(when=lambda: swarm.nodes["anna"].state.round == kind.first + 1)
    assert "emil" in electors(swarm, kind.first + 1)
    swarm.run(when=lambda: swarm.nodes["anna"].state.round == kind.first + 2)
    assert electors(swarm, kind.first + 2) == set(FIVE) - {"emil"}
    assert swarm.nodes["anna"].state.value.members == ("emil",), "it may contribute"
    swarm.check()


def test_a_voter_that_keeps_its_nonce_back_once_stays() -> None:
    swarm = Once(FIVE, rounds=6)
    swarm.run(until=600)
    assert electors(swarm, 2) == electors(swarm, 6) == set(FIVE)
    (emil,) = (e for e in swarm.nodes["anna"].disk.chain[-1].value.electorate if e.peer == "emil")
    assert emil.withheld == 0


def test_being_absent_every_other_round_is_no_way_to_choose_which_nonces_count() -> None:
    nonces = [beacon.nonce_of(b"k" * 32, RUN, 0, number) for number in range(5)]
    others = [Elector(peer=name) for name in FIVE[:4]]

    def ready(number: int) -> Ready:
        return Ready(
            epoch=0, round=number, attempt=0, base=b"", reveal=nonces[number],
            beacon_commitment=beacon.commitment_to(nonces[number + 1]),
        )  # fmt: skip

    voters: tuple[Elector, ...] = (*others, Elector(peer="emil"))
    for number, listed in enumerate((True, False, True, False)):
        readys = {name: ready(number) for name in FIVE[:4]} | ({"emil": ready(number)} if listed else {})
        voters, _ = next_electorate(voters, readys, (), (), 31)
        assert ("emil" in {e.peer for e in voters}) == (number < 3)


def test_the_nonce_is_the_same_in_all_attempts_and_after_a_restart_and_another_in_each_round() -> None:
    swarm = Swarm(FIVE, rounds=3)
    swarm.train_time = lambda name, r: 0.5
    said: dict[int, set[bytes]] = {}
    swarm.run(when=lambda: swarm.nodes["anna"].state.said >= 0)
    for _ in range(2):
        (ready,) = [s.message for k, s in swarm.nodes["anna"].said.items() if k[0] is Ready]
        said.setdefault(ready.round, set()).add(ready.reveal)
        swarm.kill("anna")
        swarm.restart("anna")
        swarm.run(when=lambda: swarm.nodes["anna"].state.said >= 0)
    assert all(len(nonces) == 1 for nonces in said.values())
    key = swarm.nodes["anna"].state.beacon_key
    places = {beacon.nonce_of(key, RUN, epoch, number) for epoch in range(3) for number in range(3)}
    assert len(places) == 9


def test_a_nonce_said_twice_counts_as_the_first_ready_said_it() -> None:
    swarm = Swarm(FIVE, rounds=2)
    swarm.run(when=lambda: "bert" in swarm.nodes["anna"].state.readys)
    held = swarm.nodes["anna"].state.readys["bert"]
    other = seal(KeyedSigner(swarm.nodes["bert"].name), RUN, replace(held.message, reveal=b"\1" * 32))
    swarm.feed("anna", Arrived(other))
    assert swarm.nodes["anna"].state.readys["bert"] == held


def test_the_next_tie_breaker_is_never_a_new_seat() -> None:
    voters = tuple(Elector(peer=name) for name in FIVE)
    for number in range(20):
        drawn = next_tie_breaker("gone", voters, {"anna", "bert"}, bytes([number]) * 32)
        assert drawn in ("anna", "bert")


@pytest.mark.parametrize("seed", range(6))
def test_a_joiner_with_a_seat_is_not_drawn_as_tie_breaker_when_the_old_one_leaves(seed: int) -> None:
    swarm = Swarm(FIVE[:3], rounds=8, seed=seed)
    swarm.run(when=lambda: swarm.nodes["anna"].state.round == 1)
    old = swarm.nodes["anna"].state.value.tie_breaker
    donor = next(node for name, node in swarm.nodes.items() if name != old).disk
    for name in ("fred", "gina"):
        swarm.add(name, donor.chain, donor.states)
        swarm._tick(name)
    swarm.leave(old)
    swarm.run(until=600, when=lambda: any(old in c.value.left for c in donor.chain))
    (left,) = (c.value for c in donor.chain if old in c.value.left)
    before = {e.peer for e in donor.chain[left.round].value.electorate}
    assert left.tie_breaker in before - {old}
