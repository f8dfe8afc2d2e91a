"""How much of this node anybody may use at once, and how often one may be wrong."""

from collections.abc import Callable

from protocol import limits
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.rpc.routes import Route
from protocol.rpc.throttle import Buckets
from protocol.units import PeerId


class Gate:
    """Counts calls under way, per peer and per message, and refuses those beyond the bound. One event loop.

    No peer holds more than half of what a message may have, so that a message with few places is not one peer's.
    """

    def __init__(self) -> None:
        self._by_peer: dict[PeerId, int] = {}
        self._by_both: dict[tuple[PeerId, str], int] = {}

    def enter(self, peer: PeerId, route: Route) -> None:
        """Counts a call that begins; :meth:`leave` has to follow.

        Raises:
            NodeError: ``E-NET-010`` if the peer, or all peers together, have too many under way.
        """
        spec = route.spec
        of_peer = self._by_peer.get(peer, 0)
        if of_peer >= limits.MAX_CALLS_PER_PEER:
            raise NodeError(Code.NET_BUSY, f"{peer} has {of_peer} calls under way already.")
        if route.running >= spec.concurrency:
            raise NodeError(Code.NET_BUSY, f"{route.running} calls of {spec.name} are under way already.")
        if spec.concurrency < 2 * limits.MAX_CALLS_PER_PEER:
            both = self._by_both.get((peer, spec.name), 0)
            if both >= (spec.concurrency + 1) // 2:
                raise NodeError(Code.NET_BUSY, f"{peer} has {both} calls of {spec.name} under way already.")
            self._by_both[peer, spec.name] = both + 1
        self._by_peer[peer] = of_peer + 1
        route.running += 1

    def leave(self, peer: PeerId, route: Route) -> None:
        """Counts a call that has ended."""
        route.running -= 1
        left = self._by_peer[peer] - 1
        if left:
            self._by_peer[peer] = left
        else:
            del self._by_peer[peer]
        if route.spec.concurrency < 2 * limits.MAX_CALLS_PER_PEER:
            key = (peer, route.spec.name)
            both = self._by_both[key] - 1
            if both:
                self._by_both[key] = both
            else:
                del self._by_both[key]


class Strangers:
    """What may be wasted on calls that turn out to be unverified: per address, or per peer at the connection.

    Asked before a signature is looked at, which costs a hundred times as much. Only what failed is charged, so
    whoever is verified never notices, not even behind the same address as a flood.
    """

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._buckets = Buckets(clock)

    def check(self, whom: str) -> None:
        """Whether one more attempt may be looked at.

        Raises:
            NodeError: ``E-NET-005`` if too many of the last ones were wrong.
        """
        if self._buckets.left(whom, limits.STRANGER_PER_SECOND, limits.STRANGER_BURST) < 1.0:
            raise NodeError(Code.NET_RATE, f"Too much that could not be verified came from {whom}.")

    def charge(self, whom: str) -> None:
        """Notes an attempt that was wrong."""
        self._buckets.take(whom, limits.STRANGER_PER_SECOND, limits.STRANGER_BURST)
