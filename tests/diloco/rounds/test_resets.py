"""Resets, forks and clones: what ends a run that nobody can decide, and what stops a member."""

from dataclasses import replace
from datetime import timedelta

import pytest

from diloco.rounds.certificate import Certified
from diloco.rounds.events import Arrived, Decision, RivalCame, TwinSeen
from diloco.rounds.rescue import seats_of
from diloco.rounds.statements import AskReset
from diloco.rounds.values import value_digest
from diloco.rounds.waiting import waiting
from protocol.messages import encode
from tests.diloco.rounds.swarm import Swarm
from tests.diloco.rounds.test_lies import ready, says

FIVE = ("anna", "bert", "carl", "dora", "emil")
MINUTES = 60.0


def lost_quorum(rounds: int = 8, seed: int = 0) -> Swarm:
    """Three of five voters are gone for good in round 2, at once."""
    swarm = Swarm(FIVE, rounds=rounds, seed=seed)
    swarm.run(when=lambda: all(node.state.round == 2 for node in swarm.nodes.values()))
    for name in FIVE[2:]:
        swarm.kill(name)
    return swarm


def chain(swarm: Swarm, name: str = "anna") -> list[Certified]:
    return swarm.nodes[name].disk.chain


def test_voters_that_see_no_quorum_for_long_ask_for_a_reset_and_not_before() -> None:
    swarm = lost_quorum()
    swarm.run(until=swarm.now + 4 * MINUTES)
    assert not any(node.state.asks for node in swarm.live())
    swarm.run(until=swarm.now + 2 * MINUTES)
    for node in swarm.live():
        assert set(node.state.asks) == {"anna", "bert"}
        (asked,) = {sealed.message.tip for sealed in node.state.asks.values()}
        assert asked == chain(swarm)[-1].digest
    assert len(chain(swarm)) == 3


def test_who_could_decide_again_before_long_does_not_ask() -> None:
    swarm = lost_quorum()
    swarm.run(until=swarm.now + 4 * MINUTES)
    swarm.restart("carl")
    swarm.run(until=swarm.now + 30 * MINUTES)
    assert all(node.state.finished and not node.state.asks for node in swarm.live())


def test_a_reset_goes_on_with_those_who_asked_and_the_lost_follow_when_they_come_back() -> None:
    swarm = lost_quorum()
    swarm.run(until=swarm.now + 60)
    reset = swarm.make_reset("anna", ["anna", "bert"])
    swarm.give_reset(reset, to=["anna", "bert"])
    swarm.run(until=swarm.now + 60)
    assert chain(swarm)[-1].value.epoch == 1 and chain(swarm)[-1].value.round > 2
    assert reset.value.origin == chain(swarm)[0].digest and reset.value.begins
    assert {c.value.origin for c in chain(swarm)[4:]} == {reset.digest}
    for name in FIVE[2:]:
        swarm.restart(name)
    swarm.give_reset(reset, to=FIVE[2:])
    swarm.run(until=swarm.now + 600)
    assert all(node.state.finished and node.state.epoch == 1 for node in swarm.nodes.values())
    swarm.check()


def test_what_an_older_epoch_decided_after_the_reset_is_void_for_who_had_decided_it() -> None:
    swarm = Swarm(FIVE, rounds=8)
    swarm.run(when=lambda: all(node.state.round == 2 for node in swarm.nodes.values()))
    left = {"anna", "bert"}
    swarm.cut = lambda a, b: (a in left) != (b in left)
    swarm.run(until=swarm.now + 60)
    assert len(chain(swarm, "carl")) > len(chain(swarm)), "the majority has gone on"
    swarm.give_reset(swarm.make_reset("anna", ["anna", "bert"]), to=left)
    swarm.run(until=swarm.now + 60)
    swarm.cut = lambda a, b: False
    swarm.give_reset(chain(swarm)[3])
    swarm.run(until=swarm.now + 600)
    assert all(node.state.epoch == 1 for node in swarm.nodes.values())
    swarm.check()


def test_a_reset_lets_a_voter_without_its_vote_record_vote_again_and_only_the_process_it_names() -> None:
    for named in (True, False):
        swarm = Swarm(FIVE[:2], rounds=6)
        swarm.run(when=lambda swarm=swarm: all(node.state.round == 2 for node in swarm.nodes.values()))
        for name in FIVE[:2]:
            node = swarm.nodes[name]
            node.state = replace(node.state, abstains=True)
        swarm.run(until=swarm.now + 6 * MINUTES)
        assert len(chain(swarm)) == 3, "nobody may vote"
        asks = [sealed.message for sealed in swarm.nodes["anna"].state.asks.values()]
        assert len(asks) == 2 and all(ask.lost_record for ask in asks)
        boots = {name: swarm.nodes[name].state.boot if named else b"x" * 16 for name in FIVE[:2]}
        swarm.give_reset(swarm.make_reset("anna", FIVE[:2], boots=boots))
        swarm.run(until=swarm.now + 300)
        assert all(node.state.finished == named for node in swarm.nodes.values())
        swarm.check()


def test_two_resets_of_one_epoch_stop_everyone_until_a_higher_one_of_the_root_key() -> None:
    swarm = lost_quorum()
    one = swarm.make_reset("anna", ["anna", "bert"], b"1")
    other = swarm.make_reset("anna", ["anna"], b"2")
    swarm.give_reset(one)
    swarm.run(until=swarm.now + 0.5)
    swarm.feed("bert", RivalCame(other))
    swarm.run(until=swarm.now + 5)
    assert {who for who, reason in swarm.halts if reason == "two-resets"} == {"anna", "bert"}
    before = len(chain(swarm))
    swarm.run(until=swarm.now + 300)
    assert len(chain(swarm)) == before
    words = waiting(swarm.nodes["anna"].state, swarm.now)
    assert (words.phase, words.reason) == ("halted", "two-resets") and "root key" in words.sentence
    higher = swarm.make_reset("anna", ["anna", "bert"], b"3")
    swarm.give_reset(higher, root=False)
    assert all(node.state.halted for node in swarm.live()), "a delegate cannot end this"
    swarm.give_reset(higher)
    swarm.run(until=swarm.now + 600)
    assert all(node.state.finished and node.state.epoch == 2 for node in swarm.live())
    swarm.check()


def test_a_reset_that_is_not_newer_changes_nothing() -> None:
    swarm = lost_quorum()
    reset = swarm.make_reset("anna", ["anna", "bert"])
    swarm.give_reset(reset, to=["anna"])
    state = swarm.nodes["anna"].state
    swarm.give_reset(reset, to=["anna"])
    assert swarm.nodes["anna"].state == state and not swarm.halts


def test_two_certificates_of_one_round_stop_a_member_until_a_reset() -> None:
    swarm = Swarm(FIVE, rounds=8)
    swarm.run(when=lambda: swarm.nodes["anna"].state.round == 2)
    mine = chain(swarm)[-1]
    value = replace(mine.value, beacon=b"other" * 6)
    data = encode(value)
    swarm.feed("anna", RivalCame(Certified(value, data, value_digest(data), votes=mine.votes)))
    assert swarm.halts == [("anna", "two-certificates")]
    swarm.run(until=swarm.now + 100)
    assert len(chain(swarm)) == 3 and len(chain(swarm, "bert")) > 3, "the others have seen one only"
    swarm.feed("anna", Decision(chain(swarm, "bert")[3]))
    assert len(chain(swarm)) == 3, "it does not commit"
    swarm.give_reset(swarm.make_reset("bert", FIVE), root=False)
    swarm.run(until=swarm.now + 600)
    assert all(node.state.finished for node in swarm.nodes.values())
    swarm.check()


@pytest.mark.failure_mode(32)
@pytest.mark.parametrize("younger", [True, False])
def test_of_two_processes_with_one_key_the_older_stops(younger: bool) -> None:
    swarm = Swarm(FIVE, rounds=4)
    swarm.run(until=2.0)
    state = swarm.nodes["anna"].state
    twin = TwinSeen(b"t" * 16, state.started + (5000 if younger else -5000))
    swarm.feed("anna", TwinSeen(state.boot, state.started))
    swarm.feed("anna", twin)
    assert swarm.nodes["anna"].alive != younger
    swarm.run(until=600)
    assert all(node.state.finished for node in swarm.live())
    swarm.check()


@pytest.mark.failure_mode(32)
def test_a_clone_is_noticed_by_its_ready_in_a_proposal() -> None:
    swarm = Swarm(FIVE, rounds=4)
    swarm.run(until=2.0)
    clone = swarm.nodes["anna"].state
    twin = replace(ready(clone), boot=b"t" * 16, started=clone.started + 5000)
    for name in FIVE[1:]:
        swarm.feed(name, Arrived(says("anna", twin)))
    swarm.run(until=60, when=lambda: not swarm.nodes["anna"].alive)
    assert not swarm.nodes["anna"].alive and swarm.nodes["anna"].state.halted == "superseded"
    swarm.run(until=600)
    assert all(node.state.finished for node in swarm.live())


def test_ones_own_ready_of_an_earlier_life_is_no_clone() -> None:
    swarm = Swarm(FIVE, rounds=4)
    swarm.run(when=lambda: swarm.nodes["anna"].state.said >= 0)
    before = swarm.nodes["anna"].state.readys["anna"]
    swarm.kill("anna")
    swarm.run(until=swarm.now + 1)
    swarm.restart("anna")
    swarm.feed("anna", Arrived(before))
    swarm.run(until=600)
    assert all(node.state.finished for node in swarm.nodes.values())
    assert len(swarm.live()) == 5


def test_where_nobody_present_has_a_seat_those_that_vote_yet_go_on() -> None:
    value = lost_quorum().nodes["anna"].state.value
    present = {"anna": True, "bert": True, "zoe": False}
    assert seats_of(value, present) == present
    assert seats_of(replace(value, banned=("bert",)), present) == {"anna": True, "zoe": False}
    assert seats_of(replace(value, unseated=("anna",), seated=("zoe",)), present) == {
        "anna": False, "bert": True, "zoe": True,
    }  # fmt: skip
    assert seats_of(replace(value, unseated=("anna", "bert")), present) == present


def test_a_wish_of_a_stranger_is_not_kept() -> None:
    swarm = Swarm(FIVE, rounds=4)
    swarm.run(until=2.0)
    state = swarm.nodes["anna"].state
    body = AskReset(epoch=0, round=0, attempt=0, tip=state.tip.digest, base=b"b", boot=b"b" * 16)
    swarm.feed("anna", Arrived(says("zoe", body)))
    swarm.feed("anna", Arrived(says("bert", body)))
    assert set(swarm.nodes["anna"].state.asks) == {"bert"}
    assert swarm.timing.lost == timedelta(minutes=5)
