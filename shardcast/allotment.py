"""Which holder fetches which shards: a pure book of who has been given what. Times and bytes come in as arguments.

Rules:

- A holder draws work, nobody gives it: whoever is fast comes back sooner. One draw is as much as the holder has shown
  it can send in BATCH_TIME, one shard at first.
- When nothing is left to draw, an idle holder takes over the last unfinished shard of the one that would take longest,
  if it expects to be much sooner. So a slow source costs one shard's time, not the object's.
- A shard may thus be on its way twice, never more; the first good copy counts.
"""

import heapq
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from shardcast import limits

_HEAD_START = 0.5  # seconds by which a thief must beat the victim, and for which a victim is left alone
_FIRST_WORD = 2.0  # seconds that a holder has for its first byte: a connection may have to be made


@dataclass(slots=True)
class _Book:
    """One holder's account."""

    given: list[int] = field(default_factory=list)
    lacks: set[int] = field(default_factory=set)
    began: float = 0.0  # when the present draw began
    drawn: int = 0  # bytes that came in it
    rate: float = 0.0  # bytes per second of earlier draws, 0 while unknown


class Allotment:
    """The shards of one fetch, shared out among holders.

    Args:
        sizes: Bytes of each shard that is to be fetched; more may follow.
        batch: Shards of one draw at most.
    """

    def __init__(self, sizes: Mapping[int, int], batch: int = limits.MAX_WANTS) -> None:
        self._batch = batch
        self._sizes = dict(sizes)
        self._open = sorted(sizes)  # a heap of what nobody is fetching
        self._left = set(sizes)
        self._books: dict[Hashable, _Book] = {}

    @property
    def left(self) -> int:
        """Shards not yet there."""
        return len(self._left)

    def add(self, index: int, size: int) -> None:
        """One more shard is to be fetched."""
        self._sizes[index] = size
        self._left.add(index)
        heapq.heappush(self._open, index)

    def useful(self, holder: Hashable) -> bool:
        """Whether anything is left that the holder may have."""
        lacks = self._book(holder).lacks
        return any(index not in lacks for index in self._left)

    def unfinished(self, holder: Hashable) -> list[int]:
        """What the holder was given and nobody has brought yet."""
        return [index for index in self._book(holder).given if index in self._left]

    def draw(self, holder: Hashable, now: float) -> tuple[int, ...]:
        """Give the holder its next shards; none if there are none for it at the moment.

        Args:
            holder: Who is to fetch them.
            now: Monotonic seconds.
        """
        book = self._book(holder)
        room = min(limits.BATCH_BYTES, int(book.rate * limits.BATCH_TIME.total_seconds()))
        chosen: list[int] = []
        passed: list[int] = []
        while self._open and len(chosen) < self._batch:
            index = heapq.heappop(self._open)
            if index not in self._left:
                continue
            if index in book.lacks:
                passed.append(index)
                continue
            size = self._sizes[index]
            if chosen and size > room:
                heapq.heappush(self._open, index)
                break
            chosen.append(index)
            room -= size
        for index in passed:
            heapq.heappush(self._open, index)
        if not chosen and (stolen := self._steal(holder, now)) is not None:
            chosen = [stolen]
        if chosen:
            book.given, book.began, book.drawn = chosen, now, 0
        return tuple(chosen)

    def came(self, holder: Hashable, size: int) -> None:
        """Note bytes that the holder sent."""
        self._book(holder).drawn += size

    def finish(self, index: int) -> bool:
        """Note a verified shard; false if it was there already."""
        if index not in self._left:
            return False
        self._left.remove(index)
        return True

    def lack(self, holder: Hashable, index: int) -> None:
        """Note that the holder does not have a shard."""
        book = self._book(holder)
        book.lacks.add(index)
        if index in book.given:
            book.given.remove(index)
            self._reopen((index,))

    def end(self, holder: Hashable, now: float) -> None:
        """Note that the holder's draw is over, and put back what it did not bring."""
        book = self._book(holder)
        elapsed = now - book.began
        if book.drawn and elapsed > 0:
            fresh = book.drawn / elapsed
            book.rate = fresh if not book.rate else 0.5 * book.rate + 0.5 * fresh
        unfinished = self.unfinished(holder)
        book.given = []
        self._reopen(unfinished)

    def rate(self, holder: Hashable, now: float) -> float | None:
        """Bytes per second that the holder shows at the moment; None while there is nothing to judge it by."""
        book = self._book(holder)
        elapsed = now - book.began
        if book.given and elapsed > (_HEAD_START if book.drawn else _FIRST_WORD):
            return book.drawn / elapsed
        return book.rate or None

    def _steal(self, thief: Hashable, now: float) -> int | None:
        book = self._book(thief)
        best, worst = None, 0.0
        for victim in self._books:
            rate = self.rate(victim, now)
            candidates = [i for i in self.unfinished(victim) if i not in book.lacks and not self._doubled(i)]
            if victim == thief or rate is None or not candidates:
                continue
            missing = sum(self._sizes[i] for i in self.unfinished(victim))
            theirs = max(missing, 1) / max(rate, 1e-6)
            mine = self._sizes[candidates[-1]] / book.rate if book.rate else 0.0
            if theirs > 2 * mine + _HEAD_START and theirs > worst:
                best, worst = candidates[-1], theirs
        return best

    def _doubled(self, index: int) -> bool:
        return sum(index in book.given for book in self._books.values()) > 1

    def _reopen(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            if not any(index in book.given for book in self._books.values()):
                heapq.heappush(self._open, index)

    def _book(self, holder: Hashable) -> _Book:
        return self._books.setdefault(holder, _Book())
