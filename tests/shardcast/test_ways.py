from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardcast import limits
from shardcast.ways import Offer, cheapest_way, wants_snapshot


def digest(number: int) -> bytes:
    return bytes([number]) * 32


def full(version: int, size: int, form: str = "full") -> Offer:
    return Offer(f"policy/{version}/{form}", size, digest(version))


def delta(version: int, size: int, parent: int) -> Offer:
    return Offer(f"policy/{version}/delta", size, digest(version), digest(parent))


def test_who_has_the_version_before_takes_the_delta() -> None:
    offers = [full(8, 1000), delta(8, 20, 7)]
    assert cheapest_way(digest(8), {digest(7)}, offers) == (offers[1],)


def test_who_has_nothing_takes_the_smallest_whole_form() -> None:
    offers = [full(8, 1000), full(8, 680, "planes"), delta(8, 20, 7)]
    assert cheapest_way(digest(8), set(), offers) == (offers[1],)


def test_a_snapshot_and_deltas_after_it_may_be_cheaper_than_the_whole() -> None:
    offers = [full(6, 680, "planes"), full(8, 1000), delta(7, 20, 6), delta(8, 20, 7)]
    assert cheapest_way(digest(8), set(), offers) == (offers[0], offers[2], offers[3])


def test_a_chain_that_costs_more_than_the_whole_is_not_taken() -> None:
    offers = [full(8, 1000), delta(7, 600, 6), delta(8, 500, 7)]
    assert cheapest_way(digest(8), {digest(6)}, offers) == (offers[0],)


def test_a_chain_has_a_bound() -> None:
    chain = [delta(n, 1, n - 1) for n in range(1, limits.MAX_CHAIN + 2)]
    last = limits.MAX_CHAIN + 1
    assert cheapest_way(digest(last), {digest(0)}, chain) is None
    assert cheapest_way(digest(last), {digest(1)}, chain) == tuple(chain[1:])
    assert cheapest_way(digest(last), {digest(0)}, [*chain, full(last, 99)]) == (full(last, 99),)


def test_what_is_there_costs_nothing_and_what_nobody_offers_has_no_way() -> None:
    assert cheapest_way(digest(8), {digest(8)}, []) == ()
    assert cheapest_way(digest(8), set(), [delta(8, 20, 7), delta(7, 20, 8)]) is None


offers_ = st.builds(
    lambda result, parent, size: full(result, size) if parent == result else delta(result, size, parent),
    st.integers(0, 4), st.integers(0, 4), st.integers(1, 50),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(offers_, max_size=6, unique=True), st.sets(st.integers(0, 4), max_size=2), st.integers(1, 3))
def test_no_other_way_is_cheaper(offers: list[Offer], held: set[int], longest: int) -> None:
    there = {digest(number) for number in held}

    def leads(way: tuple[Offer, ...]) -> bool:
        have = set(there)
        for offer in way:
            if offer.parent is not None and offer.parent not in have:
                return False
            have.add(offer.result)
        return digest(4) in have

    possible = [way for n in range(longest + 1) for way in permutations(offers, n) if leads(way)]
    found = cheapest_way(digest(4), there, offers, longest)
    if found is None:
        assert possible == []
    else:
        assert leads(found) and len(found) <= longest
        assert sum(o.size for o in found) == min(sum(o.size for o in way) for way in possible)


@pytest.mark.parametrize(("deltas", "every", "wanted"), [
    (0, 5, True), (1, 5, False), (4, 5, False), (5, 5, True), (1, 1, True), (7, 1000, False), (8, 1000, True),
])  # fmt: skip
def test_a_snapshot_comes_first_and_then_every_so_many_versions(
    deltas: int, every: int, wanted: bool
) -> None:
    assert wants_snapshot(deltas, every) is wanted
