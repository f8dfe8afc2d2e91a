"""How fast others' bytes came here: what this member reports of their links (docs/rounds.md, the reduce)."""

from collections.abc import Callable

from diloco.rounds.statements import Rate

ENOUGH = 2**16
"""Bytes of a pull from which on its time says more about the link's bandwidth than about its delay."""

_LONG = 1.0  # seconds; a pull that took longer was slow, however little came
_KEEP = 0.5  # how much of what was measured before still counts beside a new pull
_MOST = 64  # peers that a Ready reports, as many as a run has voters and some more


class Rates:
    """Measured pulls of contributions, by peer. An old pull counts half as much with each new one.

    Only contributions are measured: they are frozen, so that their sender waits for nobody while it sends them.
    """

    def __init__(self) -> None:
        self._measured: dict[str, tuple[float, float]] = {}

    def add(self, peer: str, nbytes: int, seconds: float) -> None:
        """A pull of ``nbytes`` took so long; one that is too short to say anything is left out."""
        if seconds <= 0 or (nbytes < ENOUGH and seconds < _LONG):
            return
        before = self._measured.get(peer, (0.0, 0.0))
        self._measured[peer] = (before[0] * _KEEP + nbytes, before[1] * _KEEP + seconds)

    def table(self, wanted: list[str], relayed: Callable[[str], bool]) -> tuple[Rate, ...]:
        """What is known of these peers, ordered by peer.

        Args:
            wanted: The peers that may own chunks.
            relayed: Whether the way to a peer leads over a relay.
        """
        rates = []
        for peer in sorted(wanted)[:_MOST]:
            if relayed(peer):
                rates.append(Rate(peer=peer, rate=0))
            elif peer in self._measured:
                nbytes, seconds = self._measured[peer]
                rates.append(Rate(peer=peer, rate=max(1, round(nbytes / seconds))))
        return tuple(rates)
