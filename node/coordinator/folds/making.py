"""A view that is being made: the one place that writes a view and notes what changed."""

from dataclasses import dataclass, replace
from typing import Any

from node.coordinator.view import RECENT, RECENT_ROUNDS, Delta, Member, Round, View

INSIDE = ("voter", "member", "ghost", "banned")
"""Standings that the chain gives; a peer's record and words do not change them."""


@dataclass
class Next:
    """A view that is being made; only what is assigned here changes, and each change is noted."""

    view: View
    deltas: list[Delta]

    def _set(self, topic: str, value: Any) -> None:
        change: dict[str, Any] = {topic: value}
        self.view = replace(self.view, **change)

    def single(self, topic: str, value: object) -> None:
        """Another object of a topic that has one."""
        self._set(topic, value)
        self.deltas.append(Delta(topic, "", value))

    def member(self, member: Member) -> None:
        """A member as it is now."""
        members = dict(self.view.members)
        members[member.peer] = member
        self.view = replace(self.view, members=members)
        self.deltas.append(Delta("members", member.peer, member))

    def round(self, entry: Round) -> None:
        """A round as it is now; the oldest beyond ``RECENT_ROUNDS`` is left out."""
        rounds = dict(self.view.rounds)
        rounds[str(entry.round)] = entry
        self.deltas.append(Delta("rounds", str(entry.round), entry))
        if len(rounds) > RECENT_ROUNDS:
            oldest = min(rounds, key=int)
            del rounds[oldest]
            self.deltas.append(Delta("rounds", oldest, None))
        self.view = replace(self.view, rounds=rounds)

    def entry(self, topic: str, key: str, value: object) -> None:
        """An entry of a keyed topic as it is now."""
        self._set(topic, {**getattr(self.view, topic), key: value})
        self.deltas.append(Delta(topic, key, value))

    def one_more(self, topic: str, value: object) -> None:
        """One more entry of a list."""
        entries = (*getattr(self.view, topic), value)[-RECENT:]
        self._set(topic, entries)
        self.deltas.append(Delta(topic, "", value))


def whole(value: object, default: int) -> int:
    """A whole number that somebody sent, where it is one that JSON can hold."""
    return value if isinstance(value, int) and -(2**53) < value < 2**53 else default


def number(value: object) -> float | None:
    """A finite number that somebody sent; None where it is none."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and abs(value) < 2**53 else None  # type: ignore[arg-type,operator]
