"""What a member reports of others' links."""

from diloco.reduce.rates import ENOUGH, Rates
from diloco.rounds.statements import Rate


def direct(peer: str) -> bool:
    return False


def test_bytes_and_seconds_of_a_pull_are_a_rate_and_older_pulls_fade() -> None:
    rates = Rates()
    rates.add("a", 10 * ENOUGH, 2.0)
    assert rates.table(["a"], direct) == (Rate(peer="a", rate=5 * ENOUGH),)
    for _ in range(8):
        rates.add("a", ENOUGH, 2.0)
    (rate,) = rates.table(["a"], direct)
    assert ENOUGH / 2 <= rate.rate < ENOUGH * 0.6


def test_a_short_pull_says_nothing_unless_it_took_long() -> None:
    rates = Rates()
    rates.add("a", ENOUGH - 1, 0.1)
    rates.add("b", 0, 0.0)
    assert rates.table(["a", "b"], direct) == ()
    rates.add("a", 0, 5.0)
    assert rates.table(["a"], direct) == (Rate(peer="a", rate=1),)


def test_only_who_may_own_is_reported_and_a_relayed_peer_with_nothing() -> None:
    rates = Rates()
    for peer in "abcd":
        rates.add(peer, 10 * ENOUGH, 1.0)
    table = rates.table(["c", "a"], lambda peer: peer == "a")
    assert table == (Rate(peer="a", rate=0), Rate(peer="c", rate=10 * ENOUGH))
