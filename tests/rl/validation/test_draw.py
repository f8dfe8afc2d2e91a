import itertools

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.identity import Identity
from protocol.units import Digest
from rl.validation.draw import (
    LINKS,
    Chain,
    Shares,
    assigned,
    before,
    chain_secret,
    follows,
    is_audited,
    is_checked_twice,
    is_planted,
)
from rl.work.standing import Standing

CHAIN = Chain(b"s" * 32)
FILES = [Digest(blake3(bytes((number % 256, number // 256))).digest()) for number in range(4000)]
VALIDATORS = [Identity.ephemeral(bytes((number,)) * 32).peer_id for number in range(5)]
numbers = st.integers(1, LINKS)


@settings(deadline=None)
@given(numbers)
def test_each_link_hashes_to_the_one_before_down_to_the_anchor(number: int) -> None:
    link = CHAIN.link(number)
    assert before(link) == (CHAIN.anchor if number == 1 else CHAIN.link(number - 1))


@settings(max_examples=20, deadline=None)
@given(numbers, numbers)
def test_a_revealed_link_is_checked_against_any_that_is_known_before_it(one: int, other: int) -> None:
    assert follows(CHAIN.link(one), one, CHAIN.anchor, 0)
    assert follows(CHAIN.link(one), one, CHAIN.link(other), other) is (other < one)
    assert not follows(bytes(32), one, CHAIN.anchor, 0)
    assert not follows(CHAIN.link(one), one + 1, CHAIN.anchor, 0)


def test_a_chain_ends() -> None:
    for number in (0, -1, LINKS + 1):
        with pytest.raises(IndexError):
            CHAIN.link(number)


def test_a_node_has_the_same_chain_after_a_restart_and_another_one_in_another_run() -> None:
    key = b"k" * 32
    assert chain_secret(key, "run", 0) == chain_secret(key, "run", 0)
    assert len({chain_secret(key, run, number) for run in ("a", "b") for number in (0, 1)}) == 4


def share(draw: object) -> float:
    drawn = [draw(CHAIN.link(number), file) for number, file in enumerate(FILES, 1)]  # type: ignore[operator]
    return sum(drawn) / len(drawn)


def test_established_workers_are_audited_by_their_share_and_all_others_always() -> None:
    shares = Shares(established=0.125)
    assert share(lambda link, file: is_audited(link, file, Standing.ESTABLISHED, shares)) == pytest.approx(
        0.125, abs=0.02
    )
    for standing in (Standing.NEW, Standing.SUSPICIOUS):
        assert share(lambda link, file, of=standing: is_audited(link, file, of, shares)) == 1.0


def test_double_checks_and_planted_files_have_their_shares_and_are_drawn_apart() -> None:
    shares = Shares(twice=0.25, planted=0.25)
    twice = share(lambda link, file: is_checked_twice(link, file, shares))
    planted = share(lambda link, file: is_planted(link, file, shares))
    both = share(lambda link, file: is_planted(link, file, shares) and is_checked_twice(link, file, shares))
    assert twice == pytest.approx(0.25, abs=0.03)
    assert planted == pytest.approx(0.25, abs=0.03)
    assert both == pytest.approx(0.0625, abs=0.02)


def test_a_draw_depends_on_the_file_too_so_that_no_link_is_good_for_another_one() -> None:
    shares = Shares(established=0.5)
    link = CHAIN.link(1)
    drawn = {is_audited(link, file, Standing.ESTABLISHED, shares) for file in FILES[:40]}
    assert drawn == {True, False}


def test_every_validator_gets_its_part_and_the_order_of_the_list_does_not_matter() -> None:
    link = CHAIN.link(7)
    counts = dict.fromkeys(VALIDATORS, 0)
    for file in FILES[:1000]:
        (one,) = assigned(link, file, VALIDATORS)
        counts[one] += 1
        assert assigned(link, file, VALIDATORS[::-1], 2)[0] == one
    assert min(counts.values()) > 140


def test_the_second_validator_is_another_one() -> None:
    for file, count in itertools.product(FILES[:20], range(1, 6)):
        assert len(set(assigned(CHAIN.link(3), file, VALIDATORS, count))) == count
    assert len(assigned(CHAIN.link(3), FILES[0], VALIDATORS[:1], 2)) == 1
