"""Runs of chunks in proportion to measured links."""

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco.rounds.partition import measured, owners_of, partition
from diloco.rounds.statements import Rate, Ready


def says(**measured: int) -> Ready:
    return Ready(
        epoch=0, round=0, attempt=0, base=b"", rates=tuple(Rate(peer=p, rate=r) for p, r in measured.items())
    )


def test_without_measurements_all_own_alike() -> None:
    assert partition(6, "abc") == tuple("aabbcc")
    assert Counter(partition(7, "abc")) == {"a": 3, "b": 2, "c": 2}
    assert partition(5, ()) == ()
    assert set(partition(2, "abcd")) < set("abcd")


@pytest.mark.failure_mode(9)
def test_one_slow_link_of_four_owns_in_proportion() -> None:
    assert Counter(partition(310, "abcd", {"a": 100, "b": 100, "c": 100, "d": 10})) == {
        "a": 100, "b": 100, "c": 100, "d": 10,
    }  # fmt: skip


def test_nobody_owns_more_than_two_equal_shares() -> None:
    assert Counter(partition(100, "abcd", {"a": 10**9, "b": 1, "c": 1, "d": 1})) == {
        "a": 50, "b": 17, "c": 17, "d": 16,
    }  # fmt: skip


def test_who_was_not_measured_counts_as_the_usual() -> None:
    assert Counter(partition(90, "abcd", {"a": 10, "b": 20, "c": 60})) == {
        "a": 9, "b": 18, "c": 45, "d": 18,
    }  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 300), st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 2**63), min_size=1))
def test_any_partition_is_whole_in_runs_and_bounded(chunks: int, rates: dict[str, int]) -> None:
    owners = sorted(rates)
    made = partition(chunks, owners, rates)
    assert len(made) == chunks
    assert len([owner for owner, _ in groupby(made)]) == len(set(made)), "one run each"
    assert list(made) == sorted(made)
    held = Counter(made)
    assert all(count <= max(1, 2 * chunks // len(owners)) for count in held.values())
    for one in owners:
        for other in owners:
            if 0 < rates[one] < rates[other]:
                assert held[one] <= held[other], "who is faster owns no less"


def test_the_lower_median_of_what_other_voters_report_counts() -> None:
    readys = {
        "a": says(a=10**9, b=30, c=50),
        "b": says(a=70, b=10**9),
        "c": says(a=10, b=20, c=10**9),
        "d": says(a=40),
        "stranger": says(a=0, b=0, c=0),
    }
    assert measured(readys, set("abcd")) == {"a": 40, "b": 20, "c": 50}


def test_a_relayed_peer_owns_nothing_unless_all_are_relayed() -> None:
    assert owners_of("abc", {"a": 0, "b": 5}, ()) == ("b", "c")
    assert owners_of("ab", {"a": 0, "b": 0}, ()) == ("a", "b")
    assert owners_of("abc", {"a": 0}, ("b", "c")) == ("a",)
