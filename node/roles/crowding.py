"""How many newcomers a coordinator admits from one network, and whose turn it is next. Pure but for its memory."""

import ipaddress
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import timedelta

WINDOW = timedelta(hours=1)

PER_NETWORK = 64
"""New identities from one network in a window; members that renew or come back are not counted."""

PATIENCE = timedelta(minutes=2)
"""Who has not asked for so long has left the line."""

_REMEMBERED = 4096
_LINE = 1024  # newcomers of one network that stand in line; later ones come when there is room


def network_of(address: str) -> str:
    """The network of an address: /24 of IPv4, /48 of IPv6; empty for private ones and for what is no address."""
    try:
        found = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if not found.is_global:
        return ""
    return str(ipaddress.ip_network(f"{found}/{24 if found.version == 4 else 48}", strict=False))


@dataclass(frozen=True)
class Turn:
    """Where a newcomer stands.

    Attributes:
        place: In the line of its network, from 1; 0 where it may come now.
        waiting: How many stand there.
        seconds: Until its turn, if nobody before it leaves the line.
    """

    place: int = 0
    waiting: int = 0
    seconds: float = 0.0


@dataclass
class _Network:
    given: deque[float] = field(default_factory=deque)
    line: OrderedDict[str, float] = field(default_factory=OrderedDict)


class Crowding:
    """Counts admissions by network, and keeps the line of those that wait; networks longest unseen are forgotten."""

    def __init__(self) -> None:
        self._networks: OrderedDict[str, _Network] = OrderedDict()

    def turn(self, network: str, peer: str, now: float) -> Turn:
        """Where a newcomer that asks stands; from then on it is in line until it is admitted or asks no more.

        Args:
            network: As ``network_of`` gives it; nothing is counted for an empty one.
            peer: Who asks.
            now: Unix seconds.
        """
        if not network:
            return Turn()
        held = self._of(network)
        while held.given and held.given[0] <= now - WINDOW.total_seconds():
            held.given.popleft()
        for gone in [each for each, at in held.line.items() if at < now - PATIENCE.total_seconds()]:
            del held.line[gone]
        if peer in held.line or len(held.line) < _LINE:
            held.line[peer] = now
        line = list(held.line)
        place = line.index(peer) if peer in held.line else len(line)
        free = PER_NETWORK - len(held.given)
        if place < free:
            return Turn()
        windows, slot = divmod(place - free, PER_NETWORK)
        ends = held.given[slot] if slot < len(held.given) else now
        wait = ends + (windows + 1) * WINDOW.total_seconds() - now
        return Turn(place + 1, max(len(line), place + 1), max(wait, 1.0))

    def note(self, network: str, peer: str, now: float) -> None:
        """One of a network was admitted."""
        if network:
            held = self._of(network)
            held.line.pop(peer, None)
            held.given.append(now)

    def _of(self, network: str) -> _Network:
        held = self._networks.setdefault(network, _Network())
        self._networks.move_to_end(network)
        if len(self._networks) > _REMEMBERED:
            self._networks.popitem(last=False)
        return held
