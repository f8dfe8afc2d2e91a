"""How a member begins: what it finds on disk binds it, and without a vote record it does not vote (rules 5 and 9)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from diloco.rounds.certificate import Certified
from diloco.rounds.events import Decision, Persist
from diloco.rounds.machine import advance
from diloco.rounds.recovery import recover, standing
from diloco.rounds.state import Ballot, State
from diloco.rounds.values import Boot, Value, value_digest
from protocol.messages import encode
from tests.diloco.rounds.swarm import Swarm

FIVE = ("anna", "bert", "carl", "dora", "emil")
BOOT = b"n" * 16


def begin(
    tip: Certified, name: str = "carl", promise: Persist | None = None, since: Sequence[Value] = ()
) -> State:
    swarm = Swarm(FIVE)
    return recover(
        name, swarm.rules, swarm.timing, boot=BOOT, started=1, tip=tip, beacon_key=bytes(32),
        admission=b"admit " + name.encode(), promise=promise, now=1.0, since=since,
    )  # fmt: skip


def of(value: Value) -> Certified:
    data = encode(value)
    return Certified(value, data, value_digest(data))


def start(*boots: Boot) -> Certified:
    return of(replace(Swarm(FIVE).start.value, boots=boots))


def test_a_voter_whose_nonce_the_start_record_lists_votes() -> None:
    assert not begin(start(Boot(peer="carl", nonce=BOOT))).abstains


@pytest.mark.failure_mode(32)
def test_a_voter_with_a_new_disk_abstains_before_the_first_decided_round_too() -> None:
    assert begin(start(Boot(peer="carl", nonce=b"o" * 16))).abstains
    assert begin(start()).abstains


def test_a_voter_with_its_record_votes_whatever_is_listed() -> None:
    assert not begin(start(), promise=Persist(0, 0, -1, 0, b"", b"")).abstains


@pytest.mark.failure_mode(32)
def test_one_with_a_seat_that_the_chain_does_not_know_yet_may_be_an_old_voter() -> None:
    assert begin(start(), name="gerd").abstains


@pytest.mark.failure_mode(32)
def test_a_record_that_another_process_with_the_key_has_begun_anew_since_is_none() -> None:
    tip = start(Boot(peer="carl", nonce=b"o" * 16))
    promise = Persist(0, 0, 0, 0, b"", b"")
    decided = replace(tip.value, round=0, boots=(Boot(peer="carl", nonce=b"t" * 16),))
    assert not begin(tip, promise=promise).abstains, "what was listed before its promise was its own record"
    assert not begin(of(replace(decided, boots=())), promise=promise).abstains
    for since in ((decided,), (decided, replace(decided, round=1, boots=()))):
        state = begin(of(since[-1]), promise=promise, since=since)
        assert state.abstains and state.ballot is None and state.promised == -1
    other = replace(decided, boots=(Boot(peer="bert", nonce=b"t" * 16),))
    assert not begin(of(other), promise=promise, since=(other,)).abstains


@pytest.mark.failure_mode(32)
def test_who_sees_its_key_listed_for_another_process_votes_no_more() -> None:
    swarm = Swarm(FIVE)
    swarm.run(when=lambda: swarm.nodes["anna"].state.round == 1)
    state = swarm.nodes["anna"].state
    for nonce, abstains in ((state.boot, False), (b"t" * 16, True)):
        listed = replace(
            state.value, round=1, previous=state.tip.digest, boots=(Boot(peer="anna", nonce=nonce),)
        )
        after, effects = advance(state, Decision(of(listed)), swarm.now)
        assert after.abstains == abstains and after.votes_here != abstains
        assert not any(isinstance(effect, Persist) for effect in effects)


def test_promise_and_vote_of_the_round_after_the_tip_bind() -> None:
    state = begin(start(), promise=Persist(0, 0, 3, 3, b"value", b"close"))
    assert (state.promised, state.recovered, state.ballot) == (3, 3, Ballot(2, b"value", b"close"))


def test_a_promise_of_another_round_does_not() -> None:
    state = begin(start(), promise=Persist(0, 5, 3, 3, b"value", b"close"))
    assert (state.promised, state.recovered, state.ballot) == (-1, -1, None)


def test_of_two_resets_what_the_one_that_goes_back_further_names_is_what_both_sides_have() -> None:
    swarm = Swarm(FIVE)
    swarm.run(when=lambda: all(node.state.round == 4 for node in swarm.nodes.values()))
    disk = swarm.nodes["anna"].disk
    chain = {c.value.round: c for c in disk.chain}

    def begin_after(number: int) -> Certified:
        named, base = chain[number], chain[number + 1].value.base
        return of(replace(named.value, epoch=1, previous=named.digest, begins=True, base=base))

    def links(number: int) -> list[Certified]:
        return [chain[number]] if number in chain else []

    early, late = (replace(begin_after(number), start=b"signed") for number in (0, 2))
    for mine, other in ((early, late), (late, early)):
        last, base = standing(chain[3], b"newest", mine, other, links)
        assert (last, base) == (chain[0], chain[1].value.base)
    assert standing(chain[3], b"newest", chain[-1], None, links) == (chain[3], b"newest")
    rival = of(replace(chain[2].value, beacon=b"x" * 32))
    assert standing(chain[3], b"newest", chain[-1], rival, links) == (chain[1], chain[2].value.base)
