"""Public randomness by commit and reveal: no key can be minted, and no choice made late, to win what it draws.

A voter commits in its Ready of one round to its nonce of the next, and reveals it in the next Ready. The nonce is a
keyed hash, so it is the same in all attempts and after a restart.
"""

from collections.abc import Mapping, Sequence

from blake3 import blake3

from diloco.rounds.statements import Ready
from diloco.rounds.values import Elector, Reveal

_BYTES = 32


def nonce_of(key: bytes, run: str, epoch: int, round_number: int) -> bytes:
    """A voter's nonce of a round (32 bytes).

    Args:
        key: The voter's secret (32 bytes).
        run: Run id.
        epoch: Epoch of the round.
        round_number: The round.
    """
    place = f"intellect.nonce/{run}/{epoch}/{round_number}"
    return blake3(place.encode(), key=key).digest()


def commitment_to(nonce: bytes) -> bytes:
    """What a voter says of its nonce one round before it reveals it (32 bytes)."""
    return blake3(b"intellect.commitment\0" + nonce).digest()


def opens(elector: Elector, nonce: bytes) -> bool:
    """Whether a nonce is the one that a voter committed to."""
    return bool(elector.beacon_commitment) and commitment_to(nonce) == elector.beacon_commitment


def reveals_of(electorate: Sequence[Elector], readys: Mapping[str, Ready]) -> tuple[Reveal, ...]:
    """The nonces in the listed Readys that open a commitment, ordered by peer id."""
    return tuple(
        Reveal(peer=elector.peer, nonce=readys[elector.peer].reveal)
        for elector in sorted(electorate, key=lambda elector: elector.peer)
        if elector.peer in readys and opens(elector, readys[elector.peer].reveal)
    )


def withheld_after(elector: Elector, ready: Ready | None) -> int:
    """For how many values running a voter has not done its part, after one that lists this Ready of it, or none."""
    if ready is not None and len(ready.beacon_commitment) == _BYTES:
        if not elector.beacon_commitment:
            return elector.withheld  # there was nothing to open
        if opens(elector, ready.reveal):
            return 0
    elif ready is None and not elector.beacon_commitment:
        return elector.withheld
    return elector.withheld + 1


def next_beacon(beacon: bytes, round_number: int, reveals: Sequence[Reveal]) -> bytes:
    """The beacon of a round's value (32 bytes): a hash of the beacon before and of what was revealed."""
    hasher = blake3(b"intellect.beacon\0" + beacon + round_number.to_bytes(8, "big", signed=True))
    for reveal in reveals:
        name = reveal.peer.encode()
        hasher.update(len(name).to_bytes(2, "big") + name + reveal.nonce)
    return hasher.digest()
