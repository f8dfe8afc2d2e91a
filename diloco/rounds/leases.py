"""Which sample positions each member trains on: positions are assigned, not drawn (docs/rounds.md, leases).

A position is certified at most once. A range of which anything was certified is never leased again; one of which
nothing was certified follows its member while the member stays, and is returned to the pool when it goes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from diloco.rounds.statements import Lease, Span


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
            done = min(certified[lease.peer], lease.count)
            if done < lease.count:
                pool.append(Span(start=lease.start + done, count=lease.count - done))
        elif lease.peer in stays:
            kept.append(lease)
        else:
            pool.append(Span(start=lease.start, count=lease.count))
    return Ledger(tuple(kept), merge(pool), ledger.cursor)


def assign(ledger: Ledger, members: Sequence[str], count: int) -> Ledger:
    """Give every member without a lease one of at most ``count`` positions, returned ranges first."""
    leases = {lease.peer: lease for lease in ledger.leases}
    pool = list(ledger.returned)
    cursor = ledger.cursor
    for peer in sorted(members):
        if peer in leases:
            continue
        if pool:
            span = pool.pop(0)
            taken = min(span.count, count)
            if taken < span.count:
                pool.insert(0, Span(start=span.start + taken, count=span.count - taken))
            leases[peer] = Lease(peer=peer, start=span.start, count=taken)
        else:
            leases[peer] = Lease(peer=peer, start=cursor, count=count)
            cursor += count
    return Ledger(tuple(leases[peer] for peer in sorted(leases)), tuple(pool), cursor)
