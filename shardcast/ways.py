"""Which way to a version is the cheapest: whole, or by deltas from what is there. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from shardcast import limits


@dataclass(frozen=True, slots=True)
class Offer:
    """An object that can be fetched.

    Attributes:
        name: What it is called.
        size: Bytes that travel.
        result: Digest of the file that it is, or decodes to.
        parent: Digest of the file that decoding takes, if it takes one.
    """

    name: str
    size: int
    result: bytes
    parent: bytes | None = None


Way = tuple[Offer, ...]
"""Offers to be fetched and decoded one after the other; empty if the file is there already."""


def cheapest_way(
    target: bytes, held: Collection[bytes], offers: Iterable[Offer], longest: int = limits.MAX_CHAIN
) -> Way | None:
    """The way to a file over which the fewest bytes travel; of several the shortest.

    Args:
        target: BLAKE3 of the file.
        held: BLAKE3 of the files that are there.
        offers: What can be fetched. Leave out what failed and ask again.
        longest: Offers that a way may have.

    Returns:
        None, if there is none.
    """
    known = tuple(offers)
    best: dict[bytes, tuple[int, Way]] = {digest: (0, ()) for digest in held}
    for _ in range(longest):
        step = dict(best)  # so that each turn makes ways longer by one
        for offer in known:
            if offer.parent is not None and offer.parent not in best:
                continue
            size, way = best[offer.parent] if offer.parent is not None else (0, ())
            cost = size + offer.size
            if offer.result not in step or cost < step[offer.result][0]:
                step[offer.result] = (cost, (*way, offer))
        if step == best:
            break
        best = step
    found = best.get(target)
    return None if found is None else found[1]


def wants_snapshot(deltas: int, every: int) -> bool:
    """Whether a version is to be published whole as well, when `deltas` came since the last one that was.

    Args:
        deltas: Versions since then, this one included; 0 if there was none.
        every: Versions from one snapshot to the next, 1 for always, at most `limits.MAX_CHAIN`.
    """
    return deltas == 0 or deltas >= min(every, limits.MAX_CHAIN)
