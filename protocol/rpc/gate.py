"""How much of this node anybody may use at once, how often, and how often one may be wrong."""

from collections.abc import Callable

from protocol import limits
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.rpc.routes import Route
from protocol.rpc.throttle import Buckets
from protocol.units import PeerId

_MAX_PLACES = 16_384


class Place:
    """What one peer has of one message: calls under way, and the tokens of its rate.

    One object for all of it, because every call looks it up.
    """

    __slots__ = ("running", "then", "tokens")

    def __init__(self, tokens: float, now: float) -> None:
        self.running = 0
        self.tokens = tokens
        self.then = now


class Gate:
    """Bounds rate and calls under way, per verified peer and per message. Used from one event loop.

    No peer holds more than half of what a message may have, so that a message with few places is not one peer's.
    """

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._by_peer: dict[PeerId, int] = {}
        self._places: dict[tuple[PeerId, str], Place] = {}

    def enter(self, peer: PeerId, route: Route) -> Place:
        """Counts a call that begins; :meth:`leave` has to follow.

        Raises:
            NodeError: ``E-NET-005`` if the peer says it more often than declared, ``E-NET-010`` if it, or all peers
                together, have too many calls under way.
        """
        spec = route.spec
        place = self._places.get((peer, spec.name))
        if place is None:
            place = self._make(peer, spec.name, float(spec.rate.burst) if spec.rate is not None else 0.0)
        wait = self.take(place, route)
        if wait:
            raise NodeError(
                Code.NET_RATE, f"{spec.name} came more often than {spec.rate}.", message=spec.name
            )
        of_peer = self._by_peer.get(peer, 0)
        if of_peer >= limits.MAX_CALLS_PER_PEER or place.running >= (spec.concurrency + 1) // 2:
            of_peer = max(of_peer, place.running)
            raise NodeError(
                Code.NET_BUSY,
                f"{peer} has {of_peer} calls under way already: {spec.name}.",
                message=spec.name,
            )
        if route.running >= spec.concurrency:
            raise NodeError(
                Code.NET_BUSY,
                f"{route.running} calls of {spec.name} are under way already.",
                message=spec.name,
            )
        self._by_peer[peer] = of_peer + 1
        place.running += 1
        route.running += 1
        return place

    def take(self, place: Place, route: Route) -> float:
        """Takes a token of the peer's rate; 0 if there was one, else the seconds until there is."""
        rate = route.spec.rate
        if rate is None:
            return 0.0
        now = self._clock()
        tokens = place.tokens + (now - place.then) * rate.per_second
        if tokens > rate.burst:
            tokens = float(rate.burst)
        place.then = now
        if tokens < 1.0:
            place.tokens = tokens
            return (1.0 - tokens) / rate.per_second
        place.tokens = tokens - 1.0
        return 0.0

    def leave(self, peer: PeerId, route: Route, place: Place) -> None:
        """Counts a call that has ended."""
        route.running -= 1
        place.running -= 1
        left = self._by_peer[peer] - 1
        if left:
            self._by_peer[peer] = left
        else:
            del self._by_peer[peer]

    def _make(self, peer: PeerId, name: str, tokens: float) -> Place:
        if len(self._places) >= _MAX_PLACES:
            # the oldest that is not in use; a peer that comes back after so many others begins with a full burst
            idle = next((key for key, place in self._places.items() if not place.running), None)
            if idle is not None:
                del self._places[idle]
        place = self._places[peer, name] = Place(tokens, self._clock())
        return place

    def __len__(self) -> int:
        """How many places are remembered."""
        return len(self._places)


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
