"""Round trips among members, as they measure them: a matrix, and the slowest pairs. Pure but for drawing."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from nicegui.element import Element

from node.coordinator.facts import Reported
from node.coordinator.pages import words
from node.coordinator.pages.components import Age, Rows, Text, name_of, peer_link
from node.coordinator.reading import Stored
from node.coordinator.view import View

SHOWN = 16
"""Members in the matrix at most: voters first."""

READ = 512
"""Events that are read: each names some peers only, so several of one member together make its row."""

_SLOWEST = 20


@dataclass(frozen=True)
class Matrix:
    """Round trips.

    Attributes:
        seconds: By who asked and who was asked, the newest of each pair.
        as_of: When the newest was learned, Unix seconds; 0 for none.
    """

    seconds: Mapping[tuple[str, str], float]
    as_of: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Stored]) -> "Matrix":
        """Of events ``peer.round-trips``, newest first; what is no round trip is left out."""
        found: dict[tuple[str, str], float] = {}
        as_of = 0.0
        for stored in events:
            fact = stored.fact
            given = fact.fields.get("seconds") if isinstance(fact, Reported) else None
            if not isinstance(fact, Reported) or not isinstance(given, dict):
                continue
            as_of = max(as_of, fact.seen_at)
            for peer, seconds in given.items():
                if isinstance(seconds, int | float) and math.isfinite(seconds) and 0 <= seconds < 60:
                    found.setdefault((fact.peer, str(peer)), float(seconds))
        return cls(found, as_of)

    def members(self, view: View) -> list[str]:
        """Who is in the matrix: voters, then others, of those that anything was measured of."""
        known = {peer for pair in self.seconds for peer in pair}
        return [peer for peer in view.tip.taking_part if peer in known][:SHOWN]

    def slowest(self) -> list[tuple[str, str, float]]:
        """The pairs with the longest round trips."""
        found = sorted(self.seconds.items(), key=lambda item: -item[1])
        return [(one, other, seconds) for (one, other), seconds in found[:_SLOWEST]]


class Drawn:
    """The matrix on a page."""

    def __init__(self) -> None:
        self._box = Element("div")
        self._slowest = Rows(("From", "To", "Round trip"), "Nothing was measured yet.", "The slowest pairs")
        self._age = Age()
        self._last: Matrix | None = None

    def show(self, matrix: Matrix, view: View) -> None:
        """Another one."""
        if matrix == self._last:
            return
        self._last = matrix
        peers = matrix.members(view)
        self._box.clear()
        with self._box:
            if peers:
                names = [name_of(view, peer).split(" (")[0][:12] for peer in peers]
                table = Rows(("From \\ to, ms", *names), "", "Round trips among members")
                table.show(0, lambda: [
                    (partial(peer_link, view, one), *(_cell(matrix.seconds.get((one, other)), one == other)
                                                      for other in peers))
                    for one in peers
                ])  # fmt: skip
                if len(view.tip.taking_part) > len(peers):
                    Text("p", f"{len(peers)} of {len(view.tip.taking_part)} members, voters first.", "soft")
        self._slowest.show(matrix, lambda: [
            (partial(peer_link, view, one), partial(peer_link, view, other), words.seconds(seconds))
            for one, other, seconds in matrix.slowest()
        ])  # fmt: skip
        self._age.at(matrix.as_of)


def _cell(seconds: float | None, same: bool) -> str:
    return "·" if same else "—" if seconds is None else f"{seconds * 1000:.0f}"
