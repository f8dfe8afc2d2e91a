"""What certified values say about positions: which are consumed, which this trainer needs, and for which round.

Policy version v is the outer state after v rounds: the start record is version 0, and round r trains on version r.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from diloco.rounds.leases import Ledger, assign, assign_timed, samples_of, settle, spans_of
from diloco.rounds.values import Lease, Span, Value


@dataclass(frozen=True)
class Wanted:
    """A position that this trainer is to train on, and the round in which it will do so if all goes as planned."""

    position: int
    round: int


def policy_of(value: Value) -> int:
    """The policy version that a value makes, which is the number of the round that trains on it."""
    return value.round + 1


def positions_of(spans: tuple[Span, ...]) -> Iterator[int]:
    """The positions of some runs, in order."""
    for span in spans:
        yield from range(span.start, span.start + span.count)


def lease_of(value: Value, peer: str) -> Lease | None:
    """The lease of a trainer, if it has one."""
    return next((lease for lease in value.leases if lease.peer == peer), None)


def plan(value: Value, peer: str, *, ahead: int, lease_size: int, rounds: int) -> tuple[Wanted, ...]:
    """The positions that a trainer needs now and in the next rounds, in the order in which it will train on them.

    What comes after the running round is what the next values will lease if everybody trains all of its lease: the
    rule of the leases themselves, so all trainers foresee the same and no two want the same position. It comes from the
    certified value alone, so the part of a trainer that left is in the plans of the others.

    Args:
        value: The newest certified value.
        peer: The trainer.
        ahead: Rounds to look ahead.
        lease_size: Positions of a lease that does not say so itself.
        rounds: Rounds of the run; 0 for no end.
    """
    books = Ledger(value.leases, value.returned, value.cursor)
    members = sorted(lease.peer for lease in value.leases)
    sizes = {lease.peer: lease.size for lease in value.leases}
    wanted: list[Wanted] = []
    number = value.round + 1
    last = number + ahead if not rounds else min(number + ahead, rounds - 1)
    while members:
        mine = next((lease for lease in books.leases if lease.peer == peer), None)
        if mine is not None:
            wanted += [Wanted(position, number) for position in positions_of(spans_of(mine))]
        if number >= last:
            break
        books = settle(books, {lease.peer: samples_of(lease) for lease in books.leases}, members)
        if any(sizes.values()):
            books = assign_timed(books, {name: sizes[name] or lease_size for name in members})
        else:
            books = assign(books, members, lease_size)
        number += 1
    return tuple(wanted)


class Open:
    """Which positions a value leaves unconsumed: those never leased, those leased now, those returned."""

    def __init__(self, value: Value) -> None:
        self._cursor = value.cursor
        spans = [span for lease in value.leases for span in spans_of(lease)]
        self._spans = (*spans, *value.returned)

    def __contains__(self, position: int) -> bool:
        return position >= self._cursor or any(
            span.start <= position < span.start + span.count for span in self._spans
        )
