"""Who reduces which chunk: runs of chunks in proportion to what others measured of each owner's link.

Integers only, so that every member gets the same. What a member says of itself plays no part.
"""

from collections.abc import Collection, Mapping, Sequence
from statistics import median_low

from diloco.rounds.statements import Ready

_MOST_SHARES = 2  # no owner holds more chunks than this many equal shares


def measured(readys: Mapping[str, Ready], voters: Collection[str]) -> dict[str, int]:
    """Bytes per second at which each peer's bytes came: the lower median of what the other voters report.

    0 where most of them reach it over a relay only. Members without a vote are not asked: they cost nothing.
    """
    reports: dict[str, list[int]] = {}
    for reporter, ready in sorted(readys.items()):
        if reporter in voters:
            for peer, rate in {rate.peer: rate.rate for rate in ready.rates}.items():
                if peer != reporter:
                    reports.setdefault(peer, []).append(rate)
    return {peer: median_low(rates) for peer, rates in reports.items()}


def owners_of(
    candidates: Sequence[str], rates: Mapping[str, int], unproven: Collection[str]
) -> tuple[str, ...]:
    """The candidates that may own chunks: not the relayed, nor those that did not show what they had averaged.

    Where that leaves nobody, all of them: somebody has to.
    """
    proven = [peer for peer in candidates if peer not in unproven] or list(candidates)
    return tuple(peer for peer in proven if rates.get(peer, 1) > 0) or tuple(proven)


def partition(chunks: int, owners: Sequence[str], rates: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """The owner of each chunk: one run of chunks each, in proportion to its rate, at most two equal shares.

    Args:
        chunks: Chunks of the grid.
        owners: Who may own, in the order of their runs.
        rates: Bytes per second; who is missing or 0 counts as the lower median of the others.
    """
    if not owners:
        return ()
    known = [rates[peer] for peer in owners if rates.get(peer)] if rates else []
    usual = median_low(known) if known else 1
    speed = {peer: (rates or {}).get(peer) or usual for peer in owners}
    most = max(1, _MOST_SHARES * chunks // len(owners))
    counts: dict[str, int] = {}
    left = chunks
    while True:
        free = [peer for peer in owners if peer not in counts]
        total = sum(speed[peer] for peer in free)
        full = [peer for peer in free if left * speed[peer] > most * total]
        if not full:
            break
        for peer in full:
            counts[peer] = most
        left -= most * len(full)
    shares = {peer: divmod(left * speed[peer], total) for peer in free}
    counts |= {peer: whole for peer, (whole, _) in shares.items()}
    over = left - sum(whole for whole, _ in shares.values())
    for peer in sorted(free, key=lambda peer: -shares[peer][1])[:over]:
        counts[peer] += 1
    return tuple(peer for peer in owners for _ in range(counts[peer]))
