"""Work is leased, in counter order, in whole groups, and each lease is answered or abandoned. Pure.

A worker asks and gets the next positions that there are; it chooses none of them. Its leases are numbered from 0 by its
own counter, and the file of a lease is taken only when every earlier one is answered or abandoned, so leaving out what
turned out badly shows as abandoned leases, whose rate is watched. Positions of a lease that ends without an answer go
back to whoever hands them out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from protocol.errors import Code, NodeError
from protocol.units import Digest, PeerId
from rl.work.standing import Standing

_REMEMBERED = 64  # of a worker's leases that ended
_JUDGED = 8  # fewer ends than this say nothing of a rate


@dataclass(frozen=True)
class Rules:
    """What a worker may hold.

    Attributes:
        outstanding: Most leases of one worker that are not answered yet.
        new_share: Of the positions that all workers hold, the share that all new ones together may hold, as long as
            there is an established one.
        new_least: So many positions they may hold in any case.
        seconds: How long a lease is good for.
        abandoned_share: Above this share of abandoned leases a worker is suspicious.
    """

    outstanding: int = 2
    new_share: float = 0.25
    new_least: int = 4
    seconds: float = 300.0
    abandoned_share: float = 0.25


@dataclass(frozen=True)
class WorkLease:
    """One lease: some whole groups.

    Attributes:
        worker: Whose it is.
        counter: The worker's count of leases at this desk, from 0.
        version: The policy version to sample from.
        positions: Ascending.
        expires: Clock reading, in the seconds of the caller's clock, after which it counts as abandoned.
    """

    worker: PeerId
    counter: int
    version: int
    positions: tuple[int, ...]
    expires: float


@dataclass(frozen=True)
class Book:
    """One worker's leases.

    Attributes:
        granted: How many it was given; the next one's counter.
        outstanding: Neither answered nor abandoned, by counter.
        answered: Digest of the file that answered a lease, by counter, of those remembered.
        recent: Of the leases that ended last, whether each was answered.
    """

    granted: int = 0
    outstanding: tuple[WorkLease, ...] = ()
    answered: Mapping[int, Digest] = field(default_factory=dict)
    recent: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Desk:
    """Every worker's book."""

    books: Mapping[PeerId, Book] = field(default_factory=dict)

    def book(self, worker: PeerId) -> Book:
        """A worker's book, empty for one that nobody knows."""
        return self.books.get(worker, Book())

    def with_book(self, worker: PeerId, book: Book) -> "Desk":
        """The desk with one book exchanged."""
        return Desk({**self.books, worker: book})


def allowance(desk: Desk, worker: PeerId, standings: Mapping[PeerId, Standing], rules: Rules) -> int:
    """How many positions a worker may be leased now, however many there are: 0 and more.

    New identities share one quota, so a hundred of them hold no more than one.

    Raises:
        NodeError: ``E-RL-004`` for one that is banned.
    """
    standing = standings.get(worker, Standing.NEW)
    if standing is Standing.BANNED:
        raise NodeError(Code.RL_NO_WORK, f"{worker} is banned, so it gets no work.", peer=worker)
    if len(desk.book(worker).outstanding) >= rules.outstanding:
        return 0
    if standing is not Standing.NEW or Standing.ESTABLISHED not in standings.values():
        return _NO_LIMIT
    held = {peer: _held(book) for peer, book in desk.books.items()}
    by_new = sum(count for peer, count in held.items() if standings.get(peer, Standing.NEW) is Standing.NEW)
    quota = max(rules.new_least, int(rules.new_share * sum(held.values())))
    return max(0, quota - by_new)


_NO_LIMIT = 1 << 30


def _held(book: Book) -> int:
    return sum(len(lease.positions) for lease in book.outstanding)


def grant(
    desk: Desk,
    worker: PeerId,
    version: int,
    available: Sequence[int],
    *,
    now: float,
    standings: Mapping[PeerId, Standing],
    rules: Rules,
) -> tuple[Desk, WorkLease | None]:
    """Leases a worker the first of the available positions.

    Args:
        desk: The books.
        worker: Who asks.
        version: The policy version to sample from.
        available: Positions that this lease may have, ascending: at most as many as one lease should.
        now: The caller's clock, seconds.
        standings: Of every worker that is known; who is not is new.
        rules: The run's rules.

    Returns:
        The books, and the lease; None while the worker has enough or there is nothing to do.

    Raises:
        NodeError: ``E-RL-004`` for one that is banned.
    """
    positions = tuple(available[: allowance(desk, worker, standings, rules)])
    if not positions:
        return desk, None
    book = desk.book(worker)
    lease = WorkLease(worker, book.granted, version, positions, now + rules.seconds)
    book = replace(book, granted=book.granted + 1, outstanding=(*book.outstanding, lease))
    return desk.with_book(worker, book), lease


def answer(desk: Desk, worker: PeerId, counter: int, file: Digest) -> tuple[Desk, WorkLease]:
    """Takes the file that answers a lease.

    Returns:
        The books and the lease that is over.

    Raises:
        NodeError: ``E-RL-005`` when the lease was never given, has ended, or an earlier one is still outstanding.
    """
    book = desk.book(worker)
    if not book.outstanding or book.outstanding[0].counter != counter:
        raise NodeError(Code.RL_LEASE, _why_not(book, counter), peer=worker)
    lease = book.outstanding[0]
    answered = dict(book.answered)
    answered[counter] = file
    for old in sorted(answered)[:-_REMEMBERED]:
        del answered[old]
    return desk.with_book(worker, replace(_ended(book, lease, True), answered=answered)), lease


def _why_not(book: Book, counter: int) -> str:
    if counter >= book.granted:
        return f"Lease {counter} was never given: {book.granted} were."
    if any(lease.counter == counter for lease in book.outstanding):
        return f"Lease {counter} cannot be answered before lease {book.outstanding[0].counter}."
    if counter in book.answered:
        return f"Lease {counter} is answered already, by the file {book.answered[counter].hex()[:16]}."
    return f"Lease {counter} has ended: it was answered long ago, abandoned, or its time was up."


def abandon(desk: Desk, worker: PeerId, counter: int) -> tuple[Desk, WorkLease]:
    """Ends a lease that its worker gives up.

    Raises:
        NodeError: ``E-RL-005`` when it is not outstanding.
    """
    book = desk.book(worker)
    for lease in book.outstanding:
        if lease.counter == counter:
            return desk.with_book(worker, _ended(book, lease, False)), lease
    raise NodeError(Code.RL_LEASE, _why_not(book, counter), peer=worker)


def expire(desk: Desk, now: float) -> tuple[Desk, tuple[WorkLease, ...]]:
    """Ends every lease whose time is up, as abandoned.

    Returns:
        The books, and those leases: their positions are free again.
    """
    over = tuple(lease for book in desk.books.values() for lease in book.outstanding if lease.expires <= now)
    for lease in over:
        desk = desk.with_book(lease.worker, _ended(desk.book(lease.worker), lease, False))
    return desk, over


def release(desk: Desk, worker: PeerId) -> tuple[Desk, tuple[WorkLease, ...]]:
    """Ends all leases of a worker that was banned or went away, as abandoned."""
    over = desk.book(worker).outstanding
    for lease in over:
        desk = desk.with_book(worker, _ended(desk.book(worker), lease, False))
    return desk, over


def _ended(book: Book, lease: WorkLease, answered: bool) -> Book:
    return replace(
        book,
        outstanding=tuple(other for other in book.outstanding if other is not lease),
        recent=(*book.recent, answered)[-_REMEMBERED:],
    )


def abandons_too_much(book: Book, rules: Rules) -> bool:
    """Whether so many of a worker's last leases were abandoned that it may be picking what it hands in."""
    ended = len(book.recent)
    return ended >= _JUDGED and book.recent.count(False) > rules.abandoned_share * ended
