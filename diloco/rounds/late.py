"""Statements that come when their round is decided: a lie is evidence then, too (rule 16)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from diloco.rounds.evidence import Proof, contradiction
from diloco.rounds.statements import Close, Proposal, Ready, Vote
from protocol.envelope import Sealed

MOST_LATE = 2
"""Late statements of one voter that are kept to compare later ones with."""

_COMPARED = (Ready, Proposal, Close, Vote)


@dataclass(frozen=True)
class Past:
    """What its voters said of the round that was decided last.

    Attributes:
        place: Epoch and round; (-1, -1) for none.
        said: Verified statements by sender.
        late: How many of these came after the decision.
    """

    place: tuple[int, int] = (-1, -1)
    said: Mapping[str, tuple[Sealed[Any], ...]] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, place: tuple[int, int], voters: Iterable[str], statements: Iterable[Sealed[Any]]) -> "Past":
        """What is kept of a round at its decision."""
        said: dict[str, tuple[Sealed[Any], ...]] = dict.fromkeys(voters, ())
        for sealed in statements:
            if sealed.sender in said:
                said[sealed.sender] += (sealed,)
        return cls(place, said)

    def hear(self, sealed: Sealed[Any]) -> tuple["Past", Proof | None]:
        """Compare a late statement with the others of its sender, and keep it."""
        peer, body = sealed.sender, sealed.message
        known = self.said.get(peer)
        if known is None or (body.epoch, body.round) != self.place or not isinstance(body, _COMPARED):
            return self, None
        for earlier in known:
            if (proof := contradiction(earlier, sealed)) is not None:
                return self, proof
        count = self.late.get(peer, 0)
        if count >= MOST_LATE or any(earlier.message == body for earlier in known):
            return self, None
        said = {**self.said, peer: (*known, sealed)}
        return replace(self, said=said, late={**self.late, peer: count + 1}), None
