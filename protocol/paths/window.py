"""How much a tunnel may have under way. Pure: time is an argument.

A tunnel shares its link with heartbeats, often one TCP connection to a relay, and all buffers on the way together hold
tens of seconds of a slow link. So a tunnel looks at how long its own bytes take to be delivered, and keeps no more
under way than adds :data:`~protocol.paths.limits.TARGET_DELAY` to the delay of the empty link:

    window ← window × (base + target) / round trip,    at most doubled or halved

which grows an unused link's window exponentially and stands still at the target. It moves every other round trip, since
only what was sent after one move shows what that move did. Source of the idea: FAST TCP (Wei,
Jin, Low, Hegde, 2006), whose window moves by baseRTT / RTT; the target as a delay is LEDBAT's (RFC 6817). The base is
the smallest round trip of the last minute; since a busy tunnel would never see the empty link again, it sends one
piece alone now and then (LEDBAT++'s periodic slowdown).
"""

from collections import deque

from protocol.paths.limits import BASE_EVERY, CHUNK, FIRST_WINDOW, MAX_WINDOW, MIN_WINDOW, TARGET_DELAY

_REMEMBERED = 3


class Window:
    """What one direction of one tunnel may have under way, in bytes. Times are seconds of a monotonic clock."""

    def __init__(self, now: float, *, target: float = TARGET_DELAY.total_seconds()) -> None:
        self.size = float(FIRST_WINDOW)
        self.sent = 0
        """Bytes sent so far."""
        self.delivered = 0
        """Of these, acknowledged."""
        self._target = target
        self._under_way: deque[tuple[int, float]] = deque()
        self._bases: deque[float] = deque([float("inf")], maxlen=_REMEMBERED)
        self._base_until = now + BASE_EVERY.total_seconds()
        self._slow_until: int | None = None
        self._round_begins = 0
        self._round_ends: int | None = None
        self._sum, self._samples = 0.0, 0
        self._full = False

    @property
    def base(self) -> float:
        """The round trip of the empty link, as far as it is known; infinite before the first acknowledgement."""
        return min(self._bases)

    def room(self) -> int:
        """Bytes that may be sent now."""
        under_way = self.sent - self.delivered
        if self._slow_until is not None:  # one piece alone on the link
            return int(CHUNK) if under_way == 0 else 0
        room = int(self.size) - under_way
        if room <= 0:
            self._full = True
        return room

    def send(self, count: int, now: float) -> None:
        """So many bytes leave now."""
        self.sent += count
        self._under_way.append((self.sent, now))

    def acknowledge(self, delivered: int, now: float) -> None:
        """The other end has delivered so many bytes in all.

        Raises:
            ValueError: It says that more were delivered than were sent, or fewer than before.
        """
        if not self.delivered <= delivered <= self.sent:
            raise ValueError(f"{delivered} bytes delivered of {self.sent}, {self.delivered} before")
        self.delivered = delivered
        took = None
        while self._under_way and self._under_way[0][0] <= delivered:
            took = now - self._under_way.popleft()[1]
        if took is None:
            return
        if self._slow_until is None or delivered > self._slow_until:  # not what still waited behind the rest
            self._bases[-1] = min(self._bases[-1], took)
        if delivered > self._round_begins:
            if self._round_ends is None:
                self._round_ends = self.sent
            self._sum, self._samples = self._sum + took, self._samples + 1
            if delivered >= self._round_ends:
                self._move()
        if self._slow_until is not None:
            if delivered > self._slow_until:
                self._slow_until = None
        elif now >= self._base_until:
            self._base_until = now + BASE_EVERY.total_seconds()
            self._bases.append(float("inf"))
            self._slow_until = self.sent  # until something sent from now on has come

    def _move(self) -> None:
        """A round trip of what was sent since the last move is over: move by what it took."""
        factor = (self.base + self._target) * self._samples / max(self._sum, 1e-9)
        if self._slow_until is None and (factor < 1 or self._full):  # one that is not used says nothing
            self.size = min(float(MAX_WINDOW), max(float(MIN_WINDOW), self.size * min(2.0, max(0.5, factor))))
        self._round_begins, self._round_ends = self.sent, None
        self._sum, self._samples, self._full = 0.0, 0, False
