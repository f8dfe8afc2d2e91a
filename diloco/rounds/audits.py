"""Who checks whose reduced chunks, and what comes of it: pure functions of the chain and the listed Readys.

The chunks of round r are drawn from the beacon of the value after it, which nobody knows while they are reduced.
"""

from collections.abc import Mapping, Sequence

from blake3 import blake3

from diloco.rounds.electorate import draw_order
from diloco.rounds.statements import Ready
from diloco.rounds.values import Elector, Unproven

AUDITORS = 2
"""Voters that are drawn to check each owner in each round."""

_PENALTY = 8  # rounds without ownership for a round of which an owner did not show what it had averaged
_MOST_PENALTY = 64


def drawn_chunk(
    beacon: bytes, owner: str, auditor: str, voters: Sequence[str], chunks: Sequence[int]
) -> int | None:
    """Which chunk of an owner a voter has to check, if it is drawn at all.

    Args:
        beacon: Beacon of the value after the one that names the chunks.
        owner: Who signed the chunks.
        auditor: Who asks.
        voters: Voters of the round in which it is checked.
        chunks: The chunks that ``owner`` signed, at least one.
    """
    others = draw_order(f"auditors/{owner}", beacon, [peer for peer in voters if peer != owner])
    if auditor not in others[:AUDITORS]:
        return None
    drawn = blake3(f"audit/{owner}/{auditor}\0".encode() + beacon).digest()
    return chunks[int.from_bytes(drawn, "big") % len(chunks)]


def unproven_after(
    before: Sequence[Unproven], electorate: Sequence[Elector], readys: Mapping[str, Ready]
) -> tuple[Unproven, ...]:
    """Who owns nothing in the next round, and for how long.

    An owner that showed its work to neither of two voters that asked is out for some rounds; the word of one is
    enough where there is only one other voter. It heals by itself.
    """
    voters = {elector.peer for elector in electorate}
    left = {entry.peer: entry.rounds - 1 for entry in before}
    for owner in sorted({peer for voter in voters & set(readys) for peer in readys[voter].unshown}):
        others = voters - {owner}
        missed = {voter for voter in others & set(readys) if owner in readys[voter].unshown}
        if len(missed) >= min(AUDITORS, len(others)) > 0:
            left[owner] = min(_MOST_PENALTY, left.get(owner, 0) + _PENALTY)
    return tuple(Unproven(peer=peer, rounds=left[peer]) for peer in sorted(left) if left[peer] > 0)[:64]


def convicted(electorate: Sequence[Elector], readys: Mapping[str, Ready]) -> set[str]:
    """Peers against whom more than half of the other voters hold evidence that each has verified itself."""
    voters = {elector.peer for elector in electorate}
    accused = {peer for voter in voters & set(readys) for peer in readys[voter].convicted}
    return {
        peer
        for peer in accused
        if 2 * sum(peer in readys[voter].convicted for voter in (voters - {peer}) & set(readys))
        > len(voters - {peer})
    }
