"""Which source is tried first: goodput as it was measured, and now and then another one. Pure.

A source that nobody heard yet counts as good as the best, so each is heard once. A failure halves what a source is
worth, and never counts as a sample of its speed.
"""

import random
from collections.abc import Sequence

_FORGET = 0.5
"""How much of an older measurement stays in the mean."""


class Scores:
    """What sources brought in earlier fetches.

    Args:
        draw: Where chance comes from.
        explore: How often, of all orders, the first place goes to any source instead of the best.
    """

    def __init__(self, draw: random.Random | None = None, explore: float = 0.1) -> None:
        self._draw, self._explore = draw or random.Random(), explore
        self._goodput: dict[str, float] = {}
        self._trust: dict[str, float] = {}

    def brought(self, source: str, size: int, seconds: float) -> None:
        """A source brought so many verified bytes while it was asked."""
        fresh = size / max(seconds, 1e-6)
        known = self._goodput.get(source)
        self._goodput[source] = fresh if known is None else _FORGET * known + (1 - _FORGET) * fresh
        self._trust[source] = min(1.0, 2 * self._trust.get(source, 1.0))

    def failed(self, source: str) -> None:
        """A source was left."""
        self._trust[source] = self._trust.get(source, 1.0) / 2

    def order(self, sources: Sequence[str]) -> list[str]:
        """The sources, the one to be tried first before the others."""
        best = max(self._goodput.values(), default=0.0)

        def worth(source: str) -> float:
            return self._goodput.get(source, best) * self._trust.get(source, 1.0)

        shuffled = self._draw.sample(list(sources), len(sources))
        ordered = sorted(shuffled, key=lambda source: -worth(source)) if best else self._by_trust(sources)
        if len(ordered) > 1 and self._draw.random() < self._explore:
            lucky = self._draw.choice(ordered[1:])
            ordered.remove(lucky)
            ordered.insert(0, lucky)
        return ordered

    def _by_trust(self, sources: Sequence[str]) -> list[str]:
        return sorted(sources, key=lambda source: -self._trust.get(source, 1.0))
