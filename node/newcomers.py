"""Peers that a node knows by a newcomer's record alone: how many, and when they are forgotten.

Identities and records cost nothing, so what a node keeps for a newcomer ends with its record. Pure: time is given.
"""

from datetime import timedelta

from protocol.directory.limits import MAX_RECORDS
from protocol.units import PeerId

PATIENCE = timedelta(minutes=1)
"""How long a record may be missing: a newcomer leaves one shelf before it stands on the other."""

MOST = MAX_RECORDS["newcomers"]
"""Newcomers that a node knows at once; whoever answers for the directory may show it more."""


class Newcomers:
    """Who they are, and when each one's record was last seen, in seconds."""

    def __init__(self) -> None:
        self._seen: dict[PeerId, float] = {}

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._seen

    @property
    def full(self) -> bool:
        """Whether there is no place for another one."""
        return len(self._seen) >= MOST

    def see(self, peer: PeerId, now: float) -> None:
        """A newcomer's record is there."""
        self._seen[peer] = now

    def remove(self, peer: PeerId) -> None:
        """It became a member, or was forgotten."""
        self._seen.pop(peer, None)

    def gone(self, now: float) -> tuple[PeerId, ...]:
        """Those whose record has been missing for too long."""
        return tuple(peer for peer, seen in self._seen.items() if now - seen > PATIENCE.total_seconds())
