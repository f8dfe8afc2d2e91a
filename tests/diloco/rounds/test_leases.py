"""Who trains what: no position is lost or leased twice, and leases fit the speed of their members."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco.rounds.leases import (
    Ledger,
    assign,
    assign_timed,
    cut,
    samples_of,
    settle,
    sizes_after,
    spans_of,
)
from diloco.rounds.planning import books_after
from diloco.rounds.roster import bitmap
from diloco.rounds.values import Contributor, Elector, Lease, ReducedChunk, Span, Value
from tests.diloco.rounds.swarm import Swarm

STEP, MOST = 4, 400


def positions(spans: tuple[Span, ...] | list[Span]) -> list[int]:
    return [p for span in spans for p in range(span.start, span.start + span.count)]


def test_a_lease_is_cut_where_its_training_ended() -> None:
    lease = Lease(peer="a", start=10, count=3, more=(Span(start=50, count=2), Span(start=90, count=4)))
    assert samples_of(lease) == 9
    for done in range(12):
        first, rest = cut(spans_of(lease), done)
        everything = positions(spans_of(lease))
        assert (positions(first), positions(rest)) == (everything[:done], everything[done:])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), timed=st.booleans())
def test_over_any_history_each_position_is_certified_leased_or_in_the_pool_and_only_one_of_these(
    seed: int, timed: bool
) -> None:
    random = Random(seed)
    books, taken = Ledger((), (), 0), set[int]()
    members = ["a", "b", "c", "d"]
    for _ in range(20):
        here = [m for m in members if random.random() < 0.9] or members[:1]
        if timed:
            books = assign_timed(books, {m: random.choice([STEP, 7, 40]) for m in here})
        else:
            books = assign(books, here, 8)
        held = positions([span for lease in books.leases for span in spans_of(lease)])
        free = positions(list(books.returned))
        assert len(held) == len(set(held)) and not set(held) & set(free) and not taken & {*held, *free}
        assert taken | set(held) | set(free) == set(range(books.cursor))
        certified = {m: random.randint(1, 50) for m in here if random.random() < 0.8}
        for lease in books.leases:
            if lease.peer in certified:
                taken |= set(positions(cut(spans_of(lease), certified[lease.peer])[0]))
        books = settle(books, certified, [m for m in members if random.random() < 0.9])


def test_returned_ranges_are_put_together_until_a_lease_has_its_size() -> None:
    books = assign_timed(Ledger((), (Span(start=3, count=2), Span(start=9, count=5)), 20), {"a": 4, "b": 8})
    assert [positions(spans_of(lease)) for lease in books.leases] == [
        [3, 4, 9, 10],
        [11, 12, 13, *range(20, 25)],
    ]
    assert (books.returned, books.cursor) == ((), 25)
    assert [lease.size for lease in books.leases] == [4, 8]


def leased(**sizes: int) -> tuple[Lease, ...]:
    return tuple(
        Lease(peer=peer, start=1000 * i, count=size, size=size)
        for i, (peer, size) in enumerate(sizes.items())
    )


def after(leases: tuple[Lease, ...], certified: Mapping[str, int], members: str) -> dict[str, int]:
    return sizes_after(leases, certified, list(members), most=MOST, step=STEP)


def test_a_lease_is_half_as_much_again_as_what_was_certified() -> None:
    sizes = after(leased(a=80, b=80, c=80), {"a": 80, "b": 40, "c": 4}, "abc")
    assert sizes == {"a": 120, "b": 60, "c": 8}
    assert after(leased(a=MOST), {"a": MOST}, "a") == {"a": MOST}


@pytest.mark.failure_mode(29)
def test_what_a_member_claims_beyond_its_lease_does_not_make_the_next_one_larger() -> None:
    assert after(leased(a=80, b=80), {"a": 80, "b": 80_000}, "ab") == {"a": 120, "b": 120}


def test_a_newcomer_is_leased_what_is_usual_and_the_first_of_a_run_the_most() -> None:
    assert after(leased(a=40, b=80, c=160), {}, "abcd") == {"a": 40, "b": 80, "c": 160, "d": 80}
    assert after((), {}, "ab") == {"a": MOST, "b": MOST}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(2, 100), st.integers(0, 500)), min_size=1, max_size=6))
def test_no_lease_grows_by_more_than_a_half_in_a_round(given: list[tuple[int, int]]) -> None:
    leases = leased(**{chr(97 + i): steps * STEP for i, (steps, _) in enumerate(given)})
    certified = {chr(97 + i): done for i, (_, done) in enumerate(given)}
    sizes = after(leases, certified, "".join(certified))
    for lease in leases:
        assert 2 * STEP <= sizes[lease.peer] <= max(1.5 * lease.count, 2 * STEP)
        assert sizes[lease.peer] % STEP == 0


def round_of(speeds: Mapping[str, int], tip: Value) -> tuple[Value, dict[str, float]]:
    """One round of a fixed time of 10: what each did of its lease, and when it was ready; the books after it."""
    rules = replace(Swarm([]).rules, timed=True, samples=MOST, samples_per_step=STEP)
    roster, ready = [], {}
    for lease in tip.leases:
        whole = samples_of(lease)
        done = min(whole, max(STEP, speeds[lease.peer] * 10 // STEP * STEP))
        ready[lease.peer] = done / speeds[lease.peer]
        roster.append(Contributor(peer=lease.peer, weight=done, tokens=done, samples=done))
    everyone = bitmap(range(len(roster)), len(roster))
    chunks = [ReducedChunk(digest=b"", included=everyone)] * len(rules.chunk_sizes)
    books = books_after(rules, tip, roster, chunks, list(speeds), list(speeds))
    return (
        replace(tip, leases=books.leases, returned=books.returned, cursor=books.cursor, roster=tuple(roster)),
        ready,
    )


def test_peers_of_unequal_speed_are_ready_about_the_same_time_and_the_faster_has_done_more() -> None:
    """Speeds in samples per second; a round trains for 10 s. One peer becomes slow on the way, and fast again."""
    speeds = {"a": 4, "b": 8, "c": 36}
    tip = Value(
        epoch=0, round=-1, previous=b"", base=b"", electorate=tuple(Elector(peer=peer) for peer in speeds),
        leases=tuple(Lease(peer=peer, start=8 * i, count=8, size=8) for i, peer in enumerate(speeds)), cursor=24,
    )  # fmt: skip
    done: list[dict[str, int]] = []
    for number in range(40):
        speeds["b"] = 2 if 15 <= number < 20 else 8
        tip, ready = round_of(speeds, tip)
        done.append({entry.peer: entry.samples for entry in tip.roster})
        if 10 <= number < 15 or number >= 32:
            assert max(ready.values()) - min(ready.values()) <= STEP / min(speeds.values())
            assert max(ready.values()) <= 10
        assert len(tip.returned) <= len(speeds), "what is returned is leased again and does not pile up"
    assert done[14] == done[39] == {"a": 40, "b": 80, "c": 360}
    assert done[19]["b"] == 20
    leases = {lease.peer: samples_of(lease) for lease in tip.leases}
    assert leases == {"a": 60, "b": 120, "c": MOST}
    assert median(leases.values()) == 120


def test_a_contribution_that_did_not_arrive_whole_makes_no_larger_lease() -> None:
    rules = replace(Swarm([]).rules, timed=True, samples=MOST, samples_per_step=STEP)
    tip = Value(
        epoch=0, round=0, previous=b"", base=b"", electorate=(Elector(peer="a"), Elector(peer="b")),
        leases=leased(a=80, b=80), cursor=2000, returned=(),
    )  # fmt: skip
    roster = [Contributor(peer=peer, weight=80, tokens=80, samples=80) for peer in "ab"]
    whole, half = ReducedChunk(digest=b"", included=b"\3"), ReducedChunk(digest=b"", included=b"\1")
    chunks = [whole, half, whole]
    books = books_after(rules, tip, roster, chunks, "ab", "ab")
    assert {lease.peer: lease.size for lease in books.leases} == {"a": 120, "b": 80}
