"""Who decides a round: quorums, leaders, the next electorate. Pure functions of the chain."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from blake3 import blake3

from diloco.rounds.beacon import withheld_after
from diloco.rounds.statements import Ready
from diloco.rounds.values import Elector


def is_quorum(present: Collection[str], electorate: Sequence[Elector], tie_breaker: str) -> bool:
    """Whether ``present`` holds more than half of an electorate, or exactly half with its tie-breaker."""
    voters = {elector.peer for elector in electorate}
    held = voters.intersection(present)
    if 2 * len(held) > len(voters):
        return True
    return bool(voters) and 2 * len(held) == len(voters) and tie_breaker in held


def draw_order(purpose: str, beacon: bytes, peers: Iterable[str]) -> list[str]:
    """Order peers by rendezvous hashing: a pure function of beacon and purpose that no key can be minted to win."""
    prefix = purpose.encode() + b"\0" + beacon + b"\0"
    return sorted(peers, key=lambda peer: (blake3(prefix + peer.encode()).digest(), peer))


def leader_order(
    run: str, round_number: int, beacon: bytes, electorate: Sequence[Elector], failed: Collection[str]
) -> list[str]:
    """Leaders of a round by attempt: position ``a mod len`` leads attempt a. Recently failed leaders come last."""
    drawn = _drawn_leaders(run, round_number, beacon, tuple(elector.peer for elector in electorate))
    return sorted(drawn, key=lambda peer: peer in failed)


@lru_cache(maxsize=64)  # each event of a round asks for its leader
def _drawn_leaders(run: str, round_number: int, beacon: bytes, peers: tuple[str, ...]) -> list[str]:
    return draw_order(f"leader/{run}/{round_number}", beacon, peers)


def next_electorate(
    electorate: Sequence[Elector],
    listed: Mapping[str, Ready],
    leaving: Collection[str],
    newcomers: Sequence[str],
    max_voters: int,
) -> tuple[tuple[Elector, ...], bool]:
    """The voters of the next round (docs/rounds.md, rule 10).

    Args:
        electorate: Voters of this round.
        listed: The Readys that the value lists.
        leaving: Peers that asked to leave or lost their seat.
        newcomers: Seated peers with a listed Ready at the base, in order of admission digest.
        max_voters: Most seats that vote.

    Returns:
        The electorate ordered by peer id, and whether the run is ``stopped`` because nobody stays.
    """
    here = [_after(elector, listed.get(elector.peer)) for elector in electorate]
    there = [e for e in here if e.peer not in leaving and e.absent <= 1 and e.withheld <= 1]
    stayers = [e for e in there if e.absent == 0]
    if not stayers:
        return tuple(
            replace(e, absent=before.absent, withheld=0) for e, before in zip(here, electorate, strict=True)
        ), True
    absent = [e for e in there if e.absent]
    chosen = list(stayers)
    if 2 * len(stayers) >= len(stayers) + len(absent):  # the next tie-breaker is a stayer, so half is enough
        chosen += absent
    known = {elector.peer for elector in electorate}
    for peer in newcomers:
        if peer in known or len(chosen) >= max_voters or 2 * len(stayers) < len(chosen) + 1:
            continue
        chosen.append(_after(Elector(peer=peer), listed[peer]))
    return tuple(sorted(chosen, key=lambda elector: elector.peer)), False


def _after(elector: Elector, ready: Ready | None) -> Elector:
    """A voter after a value that lists this Ready of it, or none."""
    return Elector(
        peer=elector.peer,
        absent=0 if ready is not None else elector.absent + 1,
        beacon_commitment=ready.beacon_commitment if ready is not None else b"",
        withheld=withheld_after(elector, ready),
    )


def next_tie_breaker(
    current: str, electorate: Sequence[Elector], stayers: Collection[str], beacon: bytes
) -> str:
    """The tie-breaker stays while present, else the first present stayer in beacon order; never a new seat."""
    present = [e.peer for e in electorate if e.absent == 0 and e.peer in stayers]
    if current in present or not present:
        return current
    return draw_order("tie-breaker", beacon, present)[0]
