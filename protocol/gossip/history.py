"""What was published of late, kept for those that subscribe later or were cut off."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Any

from protocol.envelope import Sealed
from protocol.gossip.limits import KEPT_BYTES, KEPT_FOR, KEPT_MESSAGES, KEPT_PER_SENDER

SHORT = 8
"""Bytes of a digest by which a peer is told what one has."""


class History:
    """The latest messages of each topic, within bounds on number, bytes, age and share of one sender.

    Used by one thread at a time.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._topics: dict[str, _Kept] = {}

    def add(self, topic: str, sealed: Sealed[Any]) -> None:
        """Keeps a message."""
        kept = self._topics.setdefault(topic, _Kept())
        kept.add(sealed, self._clock())

    def digests(self) -> tuple[bytes, ...]:
        """Short digests of everything kept."""
        return tuple(short for topic in self._topics.values() for short in topic.messages)

    def since(self, topics: Collection[str], have: Collection[bytes]) -> Iterator[tuple[str, bytes]]:
        """Topic and envelope of each message of these topics that is not among ``have``, oldest first."""
        now = self._clock()
        for name in topics:
            kept = self._topics.get(name)
            if kept is None:
                continue
            kept.expire(now)
            for short, (sealed, _) in tuple(kept.messages.items()):
                if short not in have:
                    yield name, sealed.raw


class _Kept:
    def __init__(self) -> None:
        self.messages: OrderedDict[bytes, tuple[Sealed[Any], float]] = OrderedDict()
        self._bytes = 0
        self._senders: Counter[str] = Counter()

    def add(self, sealed: Sealed[Any], now: float) -> None:
        short = sealed.digest[:SHORT]
        if short in self.messages:
            return
        self.messages[short] = (sealed, now)
        self._bytes += len(sealed.raw)
        self._senders[sealed.sender] += 1
        if self._senders[sealed.sender] > KEPT_PER_SENDER:
            self._drop(next(key for key, (kept, _) in self.messages.items() if kept.sender == sealed.sender))
        while len(self.messages) > KEPT_MESSAGES or self._bytes > KEPT_BYTES:
            self._drop(next(iter(self.messages)))
        self.expire(now)

    def expire(self, now: float) -> None:
        while self.messages:
            short, (_, then) = next(iter(self.messages.items()))
            if now - then <= KEPT_FOR.total_seconds():
                return
            self._drop(short)

    def _drop(self, short: bytes) -> None:
        sealed, _ = self.messages.pop(short)
        self._bytes -= len(sealed.raw)
        self._senders[sealed.sender] -= 1
        if not self._senders[sealed.sender]:
            del self._senders[sealed.sender]
