import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.units import Digest, PeerId
from rl.work.leases import (
    Desk,
    Rules,
    WorkLease,
    abandon,
    abandons_too_much,
    answer,
    expire,
    grant,
    release,
)
from rl.work.standing import Standing

ANA, BEN, EVE = (Identity.ephemeral(letter * 32).peer_id for letter in (b"a", b"b", b"e"))
FILE = Digest(bytes(32))
RULES = Rules(outstanding=2, new_share=0.25, new_least=4, seconds=60.0)
TRUSTED = {ANA: Standing.ESTABLISHED, BEN: Standing.ESTABLISHED}


def lease_of(
    desk: Desk,
    worker: PeerId,
    positions: range,
    now: float = 0.0,
    standings: dict[PeerId, Standing] = TRUSTED,
) -> tuple[Desk, WorkLease]:
    desk, lease = grant(desk, worker, 1, positions, now=now, standings=standings, rules=RULES)
    assert lease is not None
    return desk, lease


def refusal(desk: Desk, worker: PeerId, counter: int) -> str:
    with pytest.raises(NodeError) as caught:
        answer(desk, worker, counter, FILE)
    assert caught.value.code is Code.RL_LEASE
    return caught.value.sentence


def test_leases_are_numbered_from_zero_for_each_worker() -> None:
    desk, first = lease_of(Desk(), ANA, range(4))
    desk, second = lease_of(desk, ANA, range(4, 8))
    desk, other = lease_of(desk, BEN, range(8, 12))
    assert (first.counter, second.counter, other.counter) == (0, 1, 0)
    assert first.positions == (0, 1, 2, 3)


def test_a_later_lease_is_not_answered_before_an_earlier_one() -> None:
    desk, _ = lease_of(Desk(), ANA, range(4))
    desk, second = lease_of(desk, ANA, range(4, 8))
    assert "before lease 0" in refusal(desk, ANA, 1)
    desk, _ = abandon(desk, ANA, 0)
    desk, over = answer(desk, ANA, 1, FILE)
    assert over == second
    assert desk.book(ANA).recent == (False, True)


def test_a_lease_is_answered_once_and_only_if_it_was_given() -> None:
    desk, _ = lease_of(Desk(), ANA, range(4))
    desk, _ = answer(desk, ANA, 0, FILE)
    assert "answered already" in refusal(desk, ANA, 0)
    assert "never given" in refusal(desk, ANA, 1)
    assert "never given" in refusal(desk, BEN, 0)


def test_a_lease_whose_time_is_up_counts_as_abandoned_and_its_positions_are_named() -> None:
    desk, lease = lease_of(Desk(), ANA, range(4), now=0.0)
    assert expire(desk, 59.9) == (desk, ())
    desk, over = expire(desk, 60.0)
    assert over == (lease,)
    assert "has ended" in refusal(desk, ANA, 0)
    assert desk.book(ANA).recent == (False,)


def test_a_worker_holds_no_more_leases_than_the_rules_say() -> None:
    desk, _ = lease_of(Desk(), ANA, range(4))
    desk, _ = lease_of(desk, ANA, range(4, 8))
    assert grant(desk, ANA, 1, range(8, 12), now=0.0, standings=TRUSTED, rules=RULES) == (desk, None)


def test_who_is_banned_gets_nothing_and_loses_what_it_holds() -> None:
    desk, lease = lease_of(Desk(), EVE, range(4))
    desk, over = release(desk, EVE)
    assert over == (lease,)
    with pytest.raises(NodeError) as caught:
        grant(desk, EVE, 1, range(4), now=0.0, standings={EVE: Standing.BANNED}, rules=RULES)
    assert caught.value.code is Code.RL_NO_WORK


def test_a_hundred_new_identities_share_one_quota() -> None:
    desk = Desk()
    for number in range(10):
        worker = Identity.ephemeral(bytes((number, 1)) * 16).peer_id
        standings = {**TRUSTED, worker: Standing.ESTABLISHED}
        desk, _ = lease_of(desk, worker, range(100 * number, 100 * number + 8), standings=standings)
    established = {peer: Standing.ESTABLISHED for peer in desk.books}
    for number in range(100):
        worker = Identity.ephemeral(bytes((number, 2)) * 16).peer_id
        desk, _ = grant(desk, worker, 1, range(2000, 2008), now=0.0, standings=established, rules=RULES)
    held = {
        peer: sum(len(lease.positions) for lease in book.outstanding) for peer, book in desk.books.items()
    }
    by_new = sum(count for peer, count in held.items() if peer not in established)
    assert 0 < by_new <= 0.25 * sum(held.values())


def test_new_workers_share_all_the_work_while_nobody_is_established() -> None:
    desk, _ = lease_of(Desk(), ANA, range(64), standings={})
    desk, _ = lease_of(desk, BEN, range(64, 128), standings={})
    assert len(desk.books) == 2


def test_a_worker_that_abandons_often_is_noticed_after_a_few_leases() -> None:
    desk = Desk()
    for counter in range(8):
        assert not abandons_too_much(desk.book(ANA), RULES)
        desk, _ = lease_of(desk, ANA, range(4))
        desk = abandon(desk, ANA, counter)[0] if counter % 2 else answer(desk, ANA, counter, FILE)[0]
    assert abandons_too_much(desk.book(ANA), RULES)


actions = st.lists(
    st.tuples(st.sampled_from(["grant", "answer", "abandon", "expire"]), st.sampled_from([ANA, BEN, EVE])),
    max_size=60,
)


@given(actions)
def test_every_position_is_outstanding_answered_or_free_and_counters_have_no_gap(
    steps: list[tuple[str, PeerId]],
) -> None:
    desk, free, done = Desk(), list(range(40)), 0
    ends: dict[PeerId, int] = {ANA: 0, BEN: 0, EVE: 0}
    for now, (action, worker) in enumerate(steps):
        outstanding = desk.book(worker).outstanding
        if action == "grant":
            desk, lease = grant(desk, worker, 1, free[:3], now=now, standings={}, rules=RULES)
            free = [position for position in free if lease is None or position not in lease.positions]
        elif action == "expire":
            desk, over = expire(desk, now)
            for lease in over:
                free = sorted({*free, *lease.positions})
                ends[lease.worker] += 1
        elif outstanding:
            end = answer if action == "answer" else None
            counter = outstanding[0].counter
            desk, lease = end(desk, worker, counter, FILE) if end else abandon(desk, worker, counter)
            ends[worker] += 1
            done += len(lease.positions) if end else 0
            free = free if end else sorted({*free, *lease.positions})
    held = [p for book in desk.books.values() for lease in book.outstanding for p in lease.positions]
    assert len(free) + len(held) + done == 40
    assert not set(free) & set(held)
    for worker, ended in ends.items():
        book = desk.book(worker)
        assert book.granted == ended + len(book.outstanding)
        assert [lease.counter for lease in book.outstanding] == sorted(
            lease.counter for lease in book.outstanding
        )
