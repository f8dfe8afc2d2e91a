"""One upload limit for everything a node sends in bulk, and one rate limit per peer and message."""

import asyncio
from collections.abc import Callable

from protocol.clock import monotonic
from protocol.units import Bytes, PeerId, Rate

_BURST_SECONDS = 0.05
_MAX_BUCKETS = 16_384


class Throttle:
    """Spaces out bytes so that they leave at ``rate`` bytes per second, first come first served.

    A piece may go when the line is free of the ones before it, less a burst of a twentieth of a second; it occupies
    the line for as long as its bytes take. So a large piece is never refused, only those behind it wait longer.
    Used from one event loop.
    """

    def __init__(self, rate: Bytes | int | None, *, clock: Callable[[], float] = monotonic) -> None:
        """Takes bytes per second, None for no limit."""
        if rate is not None and rate <= 0:
            raise ValueError(f"an upload limit of {rate} bytes per second would send nothing")
        self.rate = rate
        self._clock = clock
        self._free_at = 0.0
        self.taken = 0
        """Bytes let through so far."""

    async def take(self, count: int) -> None:
        """Waits until ``count`` bytes may leave."""
        self.taken += count
        if self.rate is None:
            return
        now = self._clock()
        cost = count / self.rate
        start = max(self._free_at, now - _BURST_SECONDS)
        self._free_at = start + cost
        wait = start - now
        if wait <= 0:
            return
        try:
            await asyncio.sleep(wait)
        except asyncio.CancelledError:
            self._free_at -= cost  # those behind need not wait for bytes that never left
            self.taken -= count
            raise


class RateLimits:
    """Token buckets per peer and message: how often a verified peer may send what."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: dict[tuple[PeerId, str], tuple[float, float]] = {}

    def allow(self, peer: PeerId, name: str, rate: Rate) -> bool:
        """Whether one more may come now; if so it is counted."""
        now = self._clock()
        tokens, then = self._buckets.pop((peer, name), (float(rate.burst), now))
        tokens = min(float(rate.burst), tokens + (now - then) * rate.per_second)
        allowed = tokens >= 1.0
        self._buckets[peer, name] = (
            tokens - 1.0 if allowed else tokens,
            now,
        )  # re-entered last: order is by use
        if len(self._buckets) > _MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        return allowed
