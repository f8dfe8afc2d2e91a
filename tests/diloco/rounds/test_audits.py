"""Who checks whom, who loses ownership, who is struck off: pure functions of beacons and Readys."""

from collections import Counter
from dataclasses import replace

import pytest
from blake3 import blake3

from diloco.rounds.audits import AUDITORS, convicted, drawn_chunk, unproven_after
from diloco.rounds.duties import speak
from diloco.rounds.events import Contribution, Observed, Say
from diloco.rounds.planning import make_value
from diloco.rounds.roster import make_plan
from diloco.rounds.statements import Rate, Ready
from diloco.rounds.values import Elector, Unproven
from tests.diloco.rounds.swarm import Swarm

VOTERS = tuple("abcdef")
ELECTORATE = tuple(Elector(peer=peer) for peer in VOTERS)


def beacon(number: int) -> bytes:
    return blake3(bytes([number])).digest()


def says(unshown: str = "", found: str = "") -> Ready:
    return Ready(epoch=0, round=0, attempt=0, base=b"", unshown=tuple(unshown), convicted=tuple(found))


@pytest.mark.failure_mode(37)
def test_each_owner_has_two_auditors_in_each_round_and_nobody_checks_itself() -> None:
    chunks = range(40, 60)
    checks = Counter[str]()
    seen = set()
    for number in range(200):
        drawn = {v: drawn_chunk(beacon(number), "c", v, VOTERS, chunks) for v in VOTERS}
        auditors = [voter for voter, chunk in drawn.items() if chunk is not None]
        assert len(auditors) == AUDITORS and "c" not in auditors
        checks.update(auditors)
        seen |= {chunk for chunk in drawn.values() if chunk is not None}
    assert seen == set(chunks)
    assert min(checks.values()) > 200 * AUDITORS / 5 / 2, "the beacon draws all alike"


@pytest.mark.failure_mode(37)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 1.0])
def test_a_share_of_false_chunks_is_met_as_often_as_the_page_says(share: float) -> None:
    """docs/rounds.md, audits: in each round with a probability of at least 1 - (1 - q)^2."""
    chunks = range(100)
    false = set(range(round(100 * share)))
    rounds = 1000
    met = 0
    for number in range(rounds):
        drawn = {
            drawn_chunk(blake3(number.to_bytes(4, "big")).digest(), "c", voter, VOTERS, chunks)
            for voter in VOTERS
        }
        met += bool(drawn & false)
    expected = 1 - (1 - share) ** 2
    assert met / rounds >= expected - 3 * (expected * (1 - expected) / rounds) ** 0.5


def test_with_one_other_voter_it_is_that_one() -> None:
    assert drawn_chunk(beacon(0), "a", "b", ("a", "b"), [7]) == 7
    assert drawn_chunk(beacon(0), "a", "a", ("a", "b"), [7]) is None


def test_two_voters_that_were_shown_nothing_cost_eight_rounds_of_ownership() -> None:
    none = dict.fromkeys(VOTERS, says())
    two = {**none, "a": says("c"), "b": says("c")}
    assert unproven_after((), ELECTORATE, two) == (Unproven(peer="c", rounds=8),)
    left: tuple[Unproven, ...] = (Unproven(peer="c", rounds=8),)
    for rounds in range(7, 0, -1):
        left = unproven_after(left, ELECTORATE, none)
        assert left == (Unproven(peer="c", rounds=rounds),)
    assert unproven_after(left, ELECTORATE, none) == (), "it heals by itself"


@pytest.mark.failure_mode(29)
def test_the_word_of_one_of_oneself_or_of_strangers_is_not_enough() -> None:
    for readys in (
        {"a": says("c"), "b": says()},
        {"a": says("c"), "c": says("c")},
        {"a": says("c"), "x": says("c"), "y": says("c")},
    ):
        assert unproven_after((), ELECTORATE, readys) == ()
    two = ELECTORATE[:2]
    assert unproven_after((), two, {"a": says("b")}) == (Unproven(peer="b", rounds=8),)


def test_a_penalty_is_bounded() -> None:
    left: tuple[Unproven, ...] = ()
    for _ in range(100):
        left = unproven_after(left, ELECTORATE, {"a": says("c"), "b": says("c")})
    assert left[0].rounds <= 64


@pytest.mark.failure_mode(29)
def test_more_than_half_of_the_other_voters_have_to_hold_evidence() -> None:
    def by(*voters: str) -> dict[str, Ready]:
        return {**dict.fromkeys("abcdefxyz", says()), **dict.fromkeys(voters, says(found="c"))}

    assert convicted(ELECTORATE, by("a", "b", "d")) == {"c"}
    assert convicted(ELECTORATE, by("a", "b")) == set()
    assert convicted(ELECTORATE, by("a", "b", "c")) == set(), "the accused has no say"
    assert convicted(ELECTORATE, by("a", "b", "x", "y", "z")) == set(), "nor has who has no vote"
    assert convicted(ELECTORATE[:3], {"a": says(found="x"), "b": says(found="x")}) == {"x"}
    assert convicted(ELECTORATE[:2], {"a": says(found="b"), "b": says(found="a")}) == {"a", "b"}


def test_what_a_voter_observes_goes_into_its_readys_and_comes_of_it_what_the_plan_says() -> None:
    swarm = Swarm(("anna", "bert", "carl", "dora"), rounds=3)
    seen = {peer: Rate(peer=peer, rate=100 if peer != "dora" else 1) for peer in swarm.nodes}
    for name in swarm.nodes:
        rates = tuple(rate for peer, rate in sorted(seen.items()) if peer != name)
        found = ("dora",) if name in ("anna", "bert") else ()
        swarm.feed(name, Observed(rates, found))
    swarm.run(when=lambda: all(node.state.finished for node in swarm.nodes.values()), until=600)
    swarm.check()
    values = [certified.value for certified in swarm.nodes["anna"].disk.chain]
    assert [entry.peer for entry in values[1].unproven] == ["dora"]
    assert values[-1].unproven[0].rounds > values[1].unproven[0].rounds, "it is reported in every round"


def test_what_those_without_a_vote_observe_is_not_said() -> None:
    state = Swarm(("anna",)).nodes["anna"].state
    seen = Observed((Rate(peer="bert", rate=7),), ("bert",), ("bert",))
    for name, rates in (("anna", seen.rates), ("zoe", ())):
        outside = replace(state, me=name, base=b"b" * 32, observed=seen, contribution=Contribution())
        _, effects = speak(outside, 0.0)
        (ready,) = [effect.body for effect in effects if isinstance(effect, Say)]
        assert isinstance(ready, Ready)
        assert (ready.rates, bool(ready.unshown), bool(ready.convicted)) == (rates, bool(rates), bool(rates))


@pytest.mark.failure_mode(35, 37)
def test_a_convicted_voter_is_banned_and_one_without_a_vote_is_only_sent_away() -> None:
    """Names that cost nothing would fill any list."""
    state = Swarm(("anna", "bert", "carl", "dora")).nodes["anna"].state
    tip = replace(state.value, members=("zoe",))
    readys = {
        peer: Ready(
            epoch=0, round=0, attempt=0, base=tip.base, convicted=("dora", "zoe") if peer != "dora" else ()
        )
        for peer in ("anna", "bert", "carl", "dora", "zoe")
    }
    plan = make_plan(state.rules, tip, readys)
    assert plan is not None
    value = make_value(state.rules, tip, state.tip.digest, plan, 0, ())
    assert value.banned == ("dora",)
    assert {elector.peer for elector in value.electorate} == {"anna", "bert", "carl"}
    assert value.members == ()
