"""What a benchmark hands back, and the timer that all of them use."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measurement:
    """One benchmark's numbers. Every name ends in its unit or says what is divided by what.

    Attributes:
        figures: What ours does, such as ``encode_gb_per_s``.
        peers: What others do in the same run on the same data, such as ``memcpy_gb_per_s``.
        ratios: Ours against a peer, such as ``encode_vs_memcpy``; targets are best set on these,
            since they change little from machine to machine.
    """

    figures: Mapping[str, float]
    peers: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a measurement in which one name could mean two numbers."""
        names = [*self.figures, *self.peers, *self.ratios]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if not self.figures:
            raise ValueError("a benchmark needs at least one figure")
        if doubled:
            raise ValueError(f"names used twice: {', '.join(doubled)}")


def seconds_per_call(call: Callable[[], object], *, at_least: float = 0.5, rounds: int = 5) -> float:
    """Median time of one call, in seconds.

    The call is made once to warm up; then ``rounds`` rounds are timed, each of as many calls as fill
    ``at_least / rounds`` seconds. Their median forgives a machine that does something else for a moment.
    """
    call()
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-9)
    calls = max(1, int(at_least / rounds / once))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)
