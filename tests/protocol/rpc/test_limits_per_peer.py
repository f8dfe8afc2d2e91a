"""Token buckets per peer and message."""

from protocol.rpc.throttle import RateLimits
from protocol.units import PeerId, Rate

ANA, BEN = PeerId("ana"), PeerId("ben")


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    now = 0.0
    limits = RateLimits(clock=lambda: now)
    rate = Rate.parse("2/s burst 3")
    assert [limits.allow(ANA, "a.b", rate) for _ in range(4)] == [True, True, True, False]
    now = 0.5
    assert [limits.allow(ANA, "a.b", rate) for _ in range(2)] == [True, False]
    now = 1000.0
    assert [limits.allow(ANA, "a.b", rate) for _ in range(4)] == [True, True, True, False]


def test_peers_and_messages_have_buckets_of_their_own() -> None:
    limits = RateLimits(clock=lambda: 0.0)
    rate = Rate.parse("1/s")
    assert limits.allow(ANA, "a.b", rate)
    assert limits.allow(BEN, "a.b", rate)
    assert limits.allow(ANA, "a.c", rate)
    assert not limits.allow(ANA, "a.b", rate)


def test_the_memory_of_buckets_is_bounded() -> None:
    limits = RateLimits(clock=lambda: 0.0)
    for index in range(20_000):
        limits.allow(PeerId(str(index)), "a.b", Rate.parse("1/s"))
    assert len(limits._buckets) <= 16_384
