"""One upload limit for everything a node sends in bulk, and one rate limit per peer and message."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

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


@dataclass(slots=True)
class Bucket:
    """Tokens that are taken one by one and come back with time.

    Attributes:
        tokens: How many there were.
        then: When, in seconds of any clock.
    """

    tokens: float
    then: float

    def left(self, now: float, per_second: float, burst: float) -> float:
        """The tokens at this moment, at most ``burst``."""
        return min(burst, self.tokens + (now - self.then) * per_second)

    def take(self, now: float, per_second: float, burst: float) -> float:
        """Takes a token if there is one; the tokens that there were before."""
        tokens = self.left(now, per_second, burst)
        self.tokens, self.then = (tokens - 1.0 if tokens >= 1.0 else tokens), now
        return tokens


class Buckets:
    """Token buckets by key: each holds at most ``burst`` tokens and gains ``per_second`` of them.

    The least recently used are forgotten beyond a bound, so that many keys cost no memory.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[Hashable, Bucket] = {}

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._held)

    def left(self, key: Hashable, per_second: float, burst: float) -> float:
        """The tokens of a key at this moment."""
        held = self._held.get(key)
        return burst if held is None else held.left(self._clock(), per_second, burst)

    def take(self, key: Hashable, per_second: float, burst: float) -> float:
        """Takes a token if there is one; the tokens that there were before."""
        now = self._clock()
        held = self._held.pop(key, None) or Bucket(burst, now)
        tokens = held.take(now, per_second, burst)
        self._held[key] = held  # entered last: order is by use
        if len(self._held) > _MAX_BUCKETS:
            del self._held[next(iter(self._held))]
        return tokens


class RateLimits:
    """Token buckets per peer and message: how often a verified peer may send what."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._buckets = Buckets(clock)

    def allow(self, peer: PeerId, name: str, rate: Rate) -> bool:
        """Whether one more may come now; if so it is counted."""
        return self._buckets.take((peer, name), rate.per_second, rate.burst) >= 1.0
