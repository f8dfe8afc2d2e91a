"""Peers whose records a node sees, and when each one is forgotten. Pure: time is given.

What a node keeps for a peer, its certificate and its ports, ends with its record: identities and records cost nothing,
and of a run that lasts long more members have gone than are there.
"""

from collections.abc import Container
from datetime import timedelta

from protocol.directory.limits import MAX_RECORDS
from protocol.units import PeerId

NEWCOMER_PATIENCE = timedelta(minutes=1)
"""How long a newcomer's record may be missing: it leaves one shelf before it stands on the other."""

MEMBER_PATIENCE = timedelta(minutes=10)
"""How long a member's record may be missing: longer than one that is not renewed lasts."""

MOST_NEWCOMERS = MAX_RECORDS["newcomers"]
"""Newcomers that a node knows at once; whoever answers for the directory may show it more."""


class Sightings:
    """Which members and newcomers are known, and when each one's record was last seen, in seconds."""

    def __init__(self) -> None:
        self._members: dict[PeerId, float] = {}
        self._newcomers: dict[PeerId, float] = {}

    def see_member(self, peer: PeerId, now: float) -> None:
        """A member's record is there. Members always have a place: the operator admitted them."""
        self._newcomers.pop(peer, None)
        self._members[peer] = now

    def see_newcomer(self, peer: PeerId, now: float) -> bool:
        """A newcomer's record is there; whether it has a place."""
        if peer not in self._newcomers and len(self._newcomers) >= MOST_NEWCOMERS:
            return peer in self._members
        self._members.pop(peer, None)
        self._newcomers[peer] = now
        return True

    def forget_gone(self, now: float, kept: Container[str]) -> tuple[PeerId, ...]:
        """Who is known no longer: those whose record has been missing for too long, but for the ``kept``."""
        gone = []
        for seen, patience in (
            (self._members, MEMBER_PATIENCE),
            (self._newcomers, NEWCOMER_PATIENCE),
        ):
            for peer, last in tuple(seen.items()):
                if now - last > patience.total_seconds() and peer not in kept:
                    del seen[peer]
                    gone.append(peer)
        return tuple(gone)
