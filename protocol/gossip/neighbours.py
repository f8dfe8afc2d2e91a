"""Who is connected to the host and who could be: whose hosts they are, what they may send, whom to call next."""

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta

from protocol.gossip.limits import COURTESY, FORWARDED, HELLO, MAX_KNOWN, REDIAL, REDIAL_MOST
from protocol.rpc.throttle import Bucket
from protocol.units import PeerId


@dataclass(frozen=True)
class Neighbour:
    """A host that is connected, as it is shown.

    Attributes:
        host: Its peer id.
        node: Whose host it is, None while it has not said.
        score: Its points.
    """

    host: str
    node: PeerId | None
    score: float


@dataclass
class Connected:
    """What is known of a host that is connected.

    Attributes:
        since: When it connected.
        node: Whose host it is, None while it has not said.
        waiting: Messages of it that wait until it says so.
        asked: When it was last asked for a sign of life.
    """

    since: float
    node: PeerId | None = None
    waiting: int = 0
    asked: float = 0.0
    _messages: Bucket = field(default_factory=lambda: Bucket(FORWARDED.burst, 0.0))

    def may_send(self, now: float) -> bool:
        """Whether one more message of it is looked at now; if so it is counted."""
        return self._messages.take(now, FORWARDED.per_second, FORWARDED.burst) >= 1.0


@dataclass
class _Known:
    host: str
    addresses: tuple[str, ...]
    next_try: float
    pause: float


class Neighbourhood:
    """Hosts by their peer ids. Used by one thread at a time.

    Args:
        me: This node.
        clock: Monotonic seconds.
    """

    def __init__(self, me: PeerId, clock: Callable[[], float] = time.monotonic) -> None:
        self._me, self._clock = me, clock
        self.connected: dict[str, Connected] = {}
        self._known: OrderedDict[PeerId, _Known] = OrderedDict()

    def came(self, host: str) -> Connected:
        """A host is connected."""
        now = self._clock()
        return self.connected.setdefault(host, Connected(now, asked=now))

    def went(self, host: str) -> None:
        """A host is no longer connected."""
        self.connected.pop(host, None)

    def strangers(self, *, overdue: bool = False) -> list[str]:
        """Connected hosts that have not said whose they are, or only those that should have by now."""
        latest = self._clock() - HELLO.total_seconds() if overdue else float("inf")
        return [host for host, it in self.connected.items() if it.node is None and it.since < latest]

    def to_ask(self, every: timedelta) -> list[str]:
        """Connected hosts to ask for a sign of life now; each is not asked again before ``every`` is over."""
        now = self._clock()
        due = [host for host, it in self.connected.items() if now - it.asked >= every.total_seconds()]
        for host in due:
            self.connected[host].asked = now
        return due

    def know(self, node: PeerId, host: str, addresses: tuple[str, ...]) -> None:
        """A node's record says where its host listens."""
        if node == self._me:
            return
        known = self._known.pop(node, None)
        if known is None or known.host != host:
            # of two nodes the one with the smaller id calls first, so that they do not call each other
            wait = 0.0 if self._me < node else COURTESY.total_seconds()
            known = _Known(host, addresses, self._clock() + wait, REDIAL.total_seconds())
        known.addresses = addresses
        self._known[node] = known
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def forget(self, node: PeerId) -> None:
        """A node is not to be called any more."""
        self._known.pop(node, None)

    def to_call(self, count: int, but: Callable[[PeerId], bool]) -> list[tuple[str, tuple[str, ...]]]:
        """Hosts to call now, with their addresses, drawn at random; each is not called again for a while.

        Args:
            count: How many at most.
            but: Nodes that are not to be called.
        """
        now = self._clock()
        here: Collection[PeerId | None] = {each.node for each in self.connected.values()}
        due = [
            (node, known)
            for node, known in self._known.items()
            if known.next_try <= now
            and node not in here
            and known.host not in self.connected
            and not but(node)
        ]
        chosen = random.sample(due, min(max(0, count), len(due)))
        for _, known in chosen:
            known.next_try = now + known.pause * random.uniform(0.8, 1.2)
            known.pause = min(known.pause * 2, REDIAL_MOST.total_seconds())
        return [(known.host, known.addresses) for _, known in chosen]

    def reached(self, node: PeerId) -> None:
        """A node's host answered: it is called again soon when it goes."""
        known = self._known.get(node)
        if known is not None:
            known.pause = REDIAL.total_seconds()
