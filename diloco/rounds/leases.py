"""Which sample positions each member trains on: positions are assigned, not drawn (docs/rounds.md, leases).

A position is certified at most once. A range of which anything was certified is never leased again; one of which
nothing was certified follows its member while the member stays, and is returned to the pool when it goes. All leases
are alike, unless rounds have a fixed time: then each member is leased what it can do in it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median_low

from diloco.rounds.values import Lease, Span

_GROWTH = Fraction(3, 2)  # most by which a lease grows from one round to the next
_FEWEST_STEPS = 2  # of the smallest lease: from one, half as much again is no whole step
_MOST_RUNS = 64  # of one lease, as many as its message holds beside the first


@dataclass(frozen=True)
class Ledger:
    """The lease side of a value: outstanding leases, the pool of returned ranges, the first fresh position."""

    leases: tuple[Lease, ...]
    returned: tuple[Span, ...]
    cursor: int


def merge(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Order spans and join neighbours. Overlap is a bug of the caller and raises ``ValueError``."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda s: s.start):
        if span.count <= 0:
            continue
        if merged and span.start < merged[-1].start + merged[-1].count:
            raise ValueError(f"positions from {span.start} are leased twice")
        if merged and span.start == merged[-1].start + merged[-1].count:
            merged[-1] = Span(start=merged[-1].start, count=merged[-1].count + span.count)
        else:
            merged.append(span)
    return tuple(merged)


def spans_of(lease: Lease) -> tuple[Span, ...]:
    """The runs of a lease, in the order in which they are trained."""
    return (Span(start=lease.start, count=lease.count), *lease.more)


def samples_of(lease: Lease) -> int:
    """How many samples a lease has."""
    return lease.count + sum(span.count for span in lease.more)


def cut(spans: Sequence[Span], count: int) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The first ``count`` positions of some runs, and what is left of them."""
    first: list[Span] = []
    rest: list[Span] = []
    for span in spans:
        taken = min(span.count, count)
        count -= taken
        if taken:
            first.append(Span(start=span.start, count=taken))
        if taken < span.count:
            rest.append(Span(start=span.start + taken, count=span.count - taken))
    return tuple(first), tuple(rest)


def settle(ledger: Ledger, certified: Mapping[str, int], stays: Collection[str]) -> Ledger:
    """Close the books of a round.

    Args:
        ledger: Leases as they stood while the round was trained.
        certified: For each member of which at least one chunk is certified: samples it trained on.
        stays: Members that stay, whose untouched leases go on.

    Returns:
        The leases that go on, the enlarged pool, the same cursor.
    """
    kept: list[Lease] = []
    pool = list(ledger.returned)
    for lease in ledger.leases:
        if lease.peer in certified:
            if certified[lease.peer] < samples_of(lease):
                pool += cut(spans_of(lease), certified[lease.peer])[1]
        elif lease.peer in stays:
            kept.append(lease)
        else:
            pool += spans_of(lease)
    return Ledger(tuple(kept), merge(pool), ledger.cursor)


def assign(ledger: Ledger, members: Sequence[str], count: int) -> Ledger:
    """Give every member without a lease one run of at most ``count`` positions, returned ranges first."""
    leases = {lease.peer: lease for lease in ledger.leases}
    pool: tuple[Span, ...] = ledger.returned
    cursor = ledger.cursor
    for peer in sorted(members):
        if peer in leases:
            continue
        if pool:
            (span,), rest = cut(pool[:1], count)
            pool = (*rest, *pool[1:])
            leases[peer] = Lease(peer=peer, start=span.start, count=span.count)
        else:
            leases[peer] = Lease(peer=peer, start=cursor, count=count)
            cursor += count
    return Ledger(tuple(leases[peer] for peer in sorted(leases)), pool, cursor)


# ---- rounds of a fixed time


def assign_timed(ledger: Ledger, sizes: Mapping[str, int]) -> Ledger:
    """Give every member without a lease one of its own size, of several runs where returned ranges are short.

    Args:
        ledger: The books.
        sizes: Samples for each member; it is written into its lease.
    """
    leases = {lease.peer: lease for lease in ledger.leases}
    pool: tuple[Span, ...] = ledger.returned
    cursor = ledger.cursor
    for peer in sorted(sizes):
        if peer in leases:
            continue
        usable, beyond = pool[:_MOST_RUNS], pool[_MOST_RUNS:]
        runs, rest = cut(usable, sizes[peer])
        pool = (*rest, *beyond)
        missing = sizes[peer] - sum(span.count for span in runs)
        if missing:
            runs = (*runs, Span(start=cursor, count=missing))
            cursor += missing
        first, *more = runs
        leases[peer] = Lease(
            peer=peer, start=first.start, count=first.count, more=tuple(more), size=sizes[peer]
        )
    return Ledger(tuple(leases[peer] for peer in sorted(leases)), pool, cursor)


def sizes_after(
    leases: Sequence[Lease],
    certified: Mapping[str, int],
    members: Sequence[str],
    *,
    most: int,
    step: int,
) -> dict[str, int]:
    """How much each member is leased for the next round where a round has a fixed time.

    A member gets half as much again as was certified of it, so that time ends its training and not its lease: then
    all are ready at the same time, and who is faster has done more. Nothing of this is what a member alone says: its
    samples count up to its lease, and only where the whole of its contribution arrived at the owners.

    Args:
        leases: Leases as they stood while the round was trained.
        certified: Samples of each member whose contribution is certified in every chunk.
        members: Who gets a lease.
        most: Largest lease.
        step: Samples of one inner step; sizes are multiples, at least two.

    Returns:
        A size for each of ``members``: at most half as much again as before, for one without history as much as the
        usual member of those that have one, and ``most`` where nobody has.
    """
    least = min(most, _FEWEST_STEPS * step)
    grown = {
        lease.peer: max(least, min(most, _GROWTH.numerator * done // (_GROWTH.denominator * step) * step))
        for lease in leases
        if (done := min(certified.get(lease.peer, 0), samples_of(lease)))
    }
    before = {lease.peer: min(most, lease.size or most) for lease in leases}
    known = {peer: grown.get(peer, before.get(peer)) for peer in members}
    sizes = [size for size in known.values() if size is not None]
    usual = median_low(sizes) if sizes else most
    return {peer: usual if size is None else size for peer, size in known.items()}
