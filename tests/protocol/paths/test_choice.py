import pytest

from protocol.paths.choice import Offer, Reach, Seen, Standing, candidates, stand
from protocol.units import Address

HERE = Address("192.168.1.2", 7000)


def test_one_call_back_that_arrives_is_enough() -> None:
    seen = [Seen("a", "203.0.113.7", data="no answer"), Seen("b", "203.0.113.7")]
    standing = stand("10.0.0.5", "", "auto", seen)
    assert (standing.reach, standing.host) == (Reach.DIRECT, "203.0.113.7"), (
        "not the address of its own interface"
    )
    assert "b called back" in standing.sentence


def test_without_any_it_is_a_tunnel_and_the_sentence_says_what_was_seen() -> None:
    standing = stand("192.168.1.2", "", "auto", [Seen("a", "203.0.113.7", data="no answer within 3 s")])
    assert (standing.reach, standing.host, standing.seen) == (Reach.TUNNEL, "192.168.1.2", "203.0.113.7")
    assert "203.0.113.7" in standing.sentence and "no answer within 3 s" in standing.sentence


@pytest.mark.parametrize(
    ("outward", "announce", "wanted", "host"),
    [
        ("192.168.1.2", "node.example.org", "auto", "node.example.org"),
        ("192.168.1.2", "", "direct", "192.168.1.2"),
        ("127.0.0.1", "", "auto", "127.0.0.1"),
    ],
)
def test_what_the_operator_says_is_believed(outward: str, announce: str, wanted: str, host: str) -> None:
    seen = [Seen("a", "203.0.113.7", data="no answer")]
    standing = stand(outward, announce, wanted, seen)
    assert (standing.reach, standing.host) == (Reach.DIRECT, host)


def test_a_founder_that_nobody_can_call_back_connects_directly() -> None:
    assert stand("203.0.113.7", "", "auto", []).reach is Reach.DIRECT


def test_relayed_can_be_asked_for() -> None:
    seen = [Seen("a", "203.0.113.7")]
    assert stand("203.0.113.7", "", "relayed", seen).reach is Reach.TUNNEL


def test_a_peer_that_is_reached_directly_is_dialled_so() -> None:
    for reach in (Reach.DIRECT, ""):  # an older record says nothing
        assert candidates(Standing(), Offer(reach, HERE)) == (HERE,)


def test_a_hidden_peer_is_dialled_by_tunnel() -> None:
    mine = Standing(seen="203.0.113.7")
    assert candidates(mine, Offer(Reach.TUNNEL, HERE, "203.0.113.8")) == (None,)
    assert candidates(Standing(), Offer(Reach.TUNNEL, HERE, "")) == (None,), (
        "two that know nothing share no router"
    )


def test_behind_the_same_router_the_own_address_is_tried_first() -> None:
    mine = Standing(seen="203.0.113.7")
    assert candidates(mine, Offer(Reach.TUNNEL, HERE, "203.0.113.7")) == (HERE, None)
    loopback = Address("127.0.0.1", 7000)
    assert candidates(mine, Offer(Reach.TUNNEL, loopback, "203.0.113.7")) == (None,), "that would be oneself"
