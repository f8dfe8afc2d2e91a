"""How many newcomers a coordinator admits from one network, and when the next may come. Pure but for its memory."""

import ipaddress
from collections import OrderedDict, deque
from datetime import timedelta

WINDOW = timedelta(hours=1)

PER_NETWORK = 64
"""New identities from one network in a window; members that renew or come back are not counted."""

_REMEMBERED = 4096


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


class Crowding:
    """Counts admissions by network; the networks longest unseen are forgotten first."""

    def __init__(self) -> None:
        self._given: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, network: str, now: float) -> float:
        """Seconds until one more of a network may be admitted; 0 for now.

        Args:
            network: As ``network_of`` gives it; nothing is counted for an empty one.
            now: Unix seconds.
        """
        given = self._given.get(network)
        if not network or given is None:
            return 0.0
        while given and given[0] <= now - WINDOW.total_seconds():
            given.popleft()
        return 0.0 if len(given) < PER_NETWORK else given[0] + WINDOW.total_seconds() - now

    def note(self, network: str, now: float) -> None:
        """One of a network was admitted."""
        if not network:
            return
        self._given.setdefault(network, deque()).append(now)
        self._given.move_to_end(network)
        if len(self._given) > _REMEMBERED:
            self._given.popitem(last=False)
