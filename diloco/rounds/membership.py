"""Who belongs to the next round: voters, members without a vote, ghosts (rule 10)."""

from collections.abc import Mapping
from dataclasses import dataclass

from diloco.rounds.electorate import next_electorate, next_tie_breaker
from diloco.rounds.orders import Will
from diloco.rounds.rules import Rules
from diloco.rounds.statements import Ready
from diloco.rounds.values import Elector, Ghost, Value


@dataclass(frozen=True)
class Membership:
    """Who belongs to the round after a value.

    Attributes:
        electorate: Voters.
        stopped: Nobody stays, so the voters are the same as before.
        members: Members without a vote.
        late: Those of them whose Ready the value is the first not to list; the next that does not drops them.
        ghosts: Newcomers that only follow.
        tie_breaker: The tie-breaker of the electorate.
        present: Who gets something to train on.
        keep: Who keeps a lease of which nothing was certified.
    """

    electorate: tuple[Elector, ...]
    stopped: bool
    members: tuple[str, ...]
    late: tuple[str, ...]
    ghosts: tuple[Ghost, ...]
    tie_breaker: str
    present: frozenset[str]
    keep: frozenset[str]


@dataclass(frozen=True)
class _Candidate:
    """One that is no voter and wants to belong; candidates enter in this order.

    Attributes:
        order: Digest of its admission.
        peer: Who it is.
        seated: Whether it may vote.
        followed: For how many values it has followed as a ghost; None for a member.
    """

    order: bytes
    peer: str
    seated: bool
    followed: int | None


def next_membership(
    rules: Rules, tip: Value, base: bytes, readys: Mapping[str, Ready], will: Will
) -> Membership:
    """Who belongs to the next round.

    Args:
        rules: The run's rules.
        tip: The value before.
        base: State digest of the round.
        readys: The Readys that the value lists.
        will: What the operator wants.
    """
    voters = {elector.peer for elector in tip.electorate}
    listed = {peer: ready for peer, ready in readys.items() if peer not in will.out}
    leaving = {peer for peer, ready in readys.items() if ready.leaving} | will.out
    candidates = _candidates(rules, tip, base, listed, will)
    ripe = [c for c in candidates if c.followed is None or c.followed >= rules.ghost_rounds]
    electorate, stopped = next_electorate(
        tip.electorate, listed, leaving | will.unseated, [c.peer for c in ripe if c.seated], rules.max_voters
    )
    elected = {elector.peer for elector in electorate}
    stayers = {elector.peer for elector in electorate if elector.absent == 0}
    staying = {peer for peer in tip.members if peer in listed and peer not in leaving}
    demoted = voters & set(listed) - leaving
    members = (staying | demoted | {c.peer for c in ripe}) - elected
    punctual = {e.peer for e in tip.electorate if not e.absent} | set(tip.members) - set(tip.late)
    late = punctual - set(readys) - will.out - elected
    young = [c for c in candidates if c.followed is not None and c.followed < rules.ghost_rounds]
    return Membership(
        electorate=electorate,
        stopped=stopped,
        members=tuple(sorted(members | late)),
        late=tuple(sorted(late)),
        ghosts=tuple(Ghost(peer=c.peer, rounds=(c.followed or 0) + 1) for c in young),
        tie_breaker=next_tie_breaker(tip.tie_breaker, electorate, stayers & voters, tip.beacon),
        present=frozenset((stayers & set(listed)) | members),
        keep=frozenset(elected | members | late),
    )


def _candidates(
    rules: Rules, tip: Value, base: bytes, listed: Mapping[str, Ready], will: Will
) -> list[_Candidate]:
    """Members without a vote, and admitted newcomers, with a listed Ready at the base."""
    voters = {elector.peer for elector in tip.electorate}
    members = set(tip.members)
    followed = {ghost.peer: ghost.rounds for ghost in tip.ghosts}
    found = []
    for peer, ready in listed.items():
        if peer in voters or ready.base != base or ready.leaving:
            continue
        seat = rules.seat_of(ready.admission, peer) if ready.admission else None
        if seat is not None and 0 < seat.delegation <= tip.revoked:
            seat = None
        if seat is None and peer not in members:
            continue
        seated = (seat is not None and seat.seated) or peer in will.seated
        order = seat.digest if seat is not None else b""
        since = None if peer in members else followed.get(peer, 0)
        found.append(_Candidate(order, peer, seated and peer not in will.unseated, since))
    return sorted(found, key=lambda candidate: (candidate.order, candidate.peer))
