"""Weights, clip factors, and who may own: pure functions of the value before and the listed Readys."""

import math
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco.rounds.roster import Plan, clip_factors, make_plan, weigh
from diloco.rounds.statements import Rate, Ready
from diloco.rounds.values import Elector, Lease, Unproven, Value
from tests.diloco.rounds.swarm import CHUNKS, SAMPLES, Swarm

RULES = Swarm([]).rules
FULL = SAMPLES * RULES.tokens_per_sample
BASE = b"b" * 32


def before(voters: str, members: str = "", count: int = SAMPLES, **fields: Any) -> Value:
    """The value before a round of one-letter peers."""
    leases = [Lease(peer=peer, start=i * count, count=count) for i, peer in enumerate(voters + members)]
    return Value(
        epoch=0, round=3, previous=b"", base=BASE, leases=tuple(leases), members=tuple(members),
        electorate=tuple(Elector(peer=peer) for peer in voters), tie_breaker=voters[0], **fields,
    )  # fmt: skip


def ready(length: float = 1.0, tokens: int = FULL, samples: int = SAMPLES, **fields: Any) -> Ready:
    """A Ready whose contribution has this L2 norm."""
    norms = (length**2 / len(CHUNKS),) * len(CHUNKS)
    return Ready(
        epoch=0, round=4, attempt=0, base=BASE, tokens=tokens, samples=samples, commitment=b"c" * 32,
        norms=norms, **fields,
    )  # fmt: skip


def plan(tip: Value, readys: dict[str, Ready]) -> Plan:
    made = make_plan(RULES, tip, readys)
    assert made is not None
    return made


def weights(made: Plan) -> dict[str, int]:
    return {entry.peer: entry.weight for entry in made.roster}


def clips(made: Plan) -> dict[str, float]:
    return {entry.peer: entry.clip for entry in made.roster}


@pytest.mark.failure_mode(36)
@pytest.mark.failure_mode(29)
def test_a_member_that_claims_a_thousand_times_its_tokens_weighs_what_it_was_leased() -> None:
    honest = dict.fromkeys("abc", ready())
    for lie in (
        ready(tokens=1000 * FULL),
        ready(tokens=1000 * FULL, samples=1000 * SAMPLES),
        ready(tokens=2**62, samples=2**62),
    ):
        made = plan(before("abcd"), {**honest, "d": lie})
        assert weights(made) == dict.fromkeys("abcd", FULL)
        assert {entry.tokens for entry in made.roster} == {FULL}
        assert {entry.samples for entry in made.roster} == {SAMPLES}


@pytest.mark.failure_mode(36)
def test_a_lease_larger_than_the_others_gives_at_most_four_times_the_median_weight() -> None:
    tip = before("abcd")
    large = Lease(peer="d", start=1000, count=1000 * SAMPLES)
    tip = replace(tip, leases=(*tip.leases[:3], large))
    made = plan(
        tip, {**dict.fromkeys("abc", ready()), "d": ready(tokens=1000 * FULL, samples=1000 * SAMPLES)}
    )
    assert weights(made) == {"a": FULL, "b": FULL, "c": FULL, "d": 4 * FULL}


def test_who_reports_fewer_tokens_or_samples_than_it_was_leased_weighs_that_much() -> None:
    readys = {"a": ready(), "b": ready(tokens=7), "c": ready(samples=2)}
    assert weights(plan(before("abc"), readys)) == {"a": FULL, "b": 7, "c": 2 * RULES.tokens_per_sample}


@pytest.mark.failure_mode(35)
@settings(max_examples=60, deadline=None)
@given(
    strangers=st.integers(1, 50),
    claimed=st.integers(1, 10 * FULL),
    held=st.lists(st.integers(1, FULL), min_size=1, max_size=5),
)
def test_free_identities_have_at_most_a_third_together_and_set_nobodys_cap(
    strangers: int, claimed: int, held: list[int]
) -> None:
    voters = "".join(chr(ord("A") + i) for i in range(len(held)))
    members = "".join(chr(0x400 + i) for i in range(strangers))
    seated = {peer: ready(tokens=tokens) for peer, tokens in zip(voters, held, strict=True)}
    alone = weights(plan(before(voters), seated))
    crowd = plan(before(voters, members), {**seated, **dict.fromkeys(members, ready(tokens=claimed))})
    got = weights(crowd)
    assert {peer: got[peer] for peer in voters} == alone
    assert sum(got.values()) - sum(alone.values()) <= sum(got.values()) / 3
    assert set(crowd.owners) <= set(voters)


def test_only_free_identities_make_no_round() -> None:
    assert plan(before("a", "xyz"), {"a": ready(tokens=0), **dict.fromkeys("xyz", ready())}).roster == ()


# ---- clipping


def test_a_contribution_is_clipped_at_three_times_the_median_of_its_length_for_its_tokens() -> None:
    made = plan(before("abcde"), {**dict.fromkeys("abcd", ready(2.0)), "e": ready(12.0)})
    assert clips(made) == {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 0.5}  # 3 · 2 / 12
    at = plan(before("abcde"), {**dict.fromkeys("abcd", ready(2.0)), "e": ready(6.0)})
    assert set(clips(at).values()) == {1.0}


def test_twice_the_length_of_four_times_the_tokens_is_the_usual_length() -> None:
    quarter = {"tokens": FULL // 4, "samples": SAMPLES // 4}
    readys = {**dict.fromkeys("abc", ready(1.0, **quarter)), "d": ready(6.0), "e": ready(3.0, **quarter)}
    assert set(clips(plan(before("abcde"), readys)).values()) == {1.0}
    readys["d"] = ready(12.0)
    assert clips(plan(before("abcde"), readys))["d"] == 0.5


def test_claimed_tokens_do_not_lengthen_what_is_allowed() -> None:
    readys = {**dict.fromkeys("abcd", ready(2.0)), "e": ready(12.0, tokens=2**60, samples=2**60)}
    assert clips(plan(before("abcde"), readys))["e"] == 0.5


def test_below_four_contributors_nothing_is_clipped() -> None:
    assert set(clips(plan(before("abc"), {"a": ready(), "b": ready(), "c": ready(1e6)})).values()) == {1.0}


def test_free_identities_do_not_set_the_usual_length() -> None:
    short = dict.fromkeys("uvwxyz", ready(1e-6))
    made = plan(before("abcd", "uvwxyz"), {**dict.fromkeys("abcd", ready(2.0)), **short})
    assert set(clips(made).values()) == {1.0}
    long = dict.fromkeys("uvwxyz", ready(1e6))
    made = plan(before("abcd", "uvwxyz"), {**dict.fromkeys("abcd", ready(2.0)), **long})
    assert {peer: clip == 1.0 for peer, clip in clips(made).items()} == {
        **dict.fromkeys("abcd", True),
        **dict.fromkeys("uvwxyz", False),
    }


def test_where_nearly_all_have_nothing_to_say_the_loud_one_is_silenced() -> None:
    made = plan(before("abcd"), {**dict.fromkeys("abc", ready(0.0)), "d": ready(5.0)})
    assert clips(made) == {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e17), st.integers(1, 2**40)), min_size=4, max_size=9))
def test_after_clipping_none_is_longer_than_the_limit(given: list[tuple[float, int]]) -> None:
    norms = {str(i): norm for i, (norm, _) in enumerate(given)}
    tokens = {str(i): count for i, (_, count) in enumerate(given)}
    factors = clip_factors(norms, tokens, set(norms))
    limit = 3 * median(math.sqrt(norms[peer] / tokens[peer]) for peer in norms)
    for peer, factor in factors.items():
        length = math.sqrt(norms[peer] / tokens[peer])
        assert 0 <= factor <= 1
        assert factor * length <= limit * (1 + 1e-6) + 1e-30
        assert factor == 1 or length > limit


@pytest.mark.parametrize("norm", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_norm_that_nothing_has_makes_no_contribution(norm: float) -> None:
    lie = replace(ready(), norms=(1.0, norm, 1.0))
    assert weights(plan(before("abcd"), {**dict.fromkeys("abc", ready()), "d": lie})).keys() == set("abc")


def test_weights_of_nobody_are_none() -> None:
    assert weigh(RULES, {}, set()) == {}


# ---- ownership


def rates(**measured: int) -> tuple[Rate, ...]:
    return tuple(Rate(peer=peer, rate=rate) for peer, rate in measured.items())


@pytest.mark.failure_mode(29)
def test_what_an_owner_says_of_itself_plays_no_part() -> None:
    honest = {peer: ready(rates=rates(a=100, b=100, c=100)) for peer in "abc"}
    boast = ready(rates=rates(a=10**12, b=100, c=100))
    made = plan(before("abc"), {**honest, "a": boast})
    assert made.owners == plan(before("abc"), honest).owners


@pytest.mark.failure_mode(35)
def test_free_identities_do_not_move_ownership() -> None:
    honest = {peer: ready(rates=rates(a=100, b=100, c=100)) for peer in "abc"}
    crowd = dict.fromkeys("uvwxyz", ready(rates=rates(a=10**12, b=0, c=0)))
    made = plan(before("abc", "uvwxyz"), {**honest, **crowd})
    assert made.owners == plan(before("abc"), honest).owners


def test_who_did_not_show_what_it_had_averaged_owns_nothing() -> None:
    readys = dict.fromkeys("abc", ready())
    assert set(plan(before("abc", unproven=(Unproven(peer="b", rounds=1),)), readys).owners) == {"a", "c"}
    assert set(
        plan(before("abc", unproven=tuple(Unproven(peer=peer, rounds=3) for peer in "abc")), readys).owners
    ) == {"a", "b", "c"}


def test_who_lost_its_vote_record_owns_no_chunk_unless_nobody_else_contributes() -> None:
    lost = ready(lost_record=True)
    made = plan(before("abcd"), {**dict.fromkeys("abc", ready()), "d": lost})
    assert set(made.owners) == set("abc") and weights(made)["d"] > 0
    alone = plan(before("abcd"), {**dict.fromkeys("abc", ready(tokens=0)), "d": lost})
    assert set(alone.owners) == {"d"}
