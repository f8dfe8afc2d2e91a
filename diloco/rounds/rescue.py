"""Whether a coordinator may begin a new epoch by itself, and with whom: the pure part of rule 15.

Those who ask see no way to a decision. That is not enough: the others may be a quorum on the other side of a cut.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from diloco.rounds import planning
from diloco.rounds.certificate import Certified
from diloco.rounds.state import State
from diloco.rounds.values import Value, parse_value, value_digest
from protocol.errors import NodeError


@dataclass(frozen=True)
class Verdict:
    """What is to become of the wishes for a reset.

    Attributes:
        grant: Whether a coordinator may give it by itself; else a person has to decide.
        sentence: Why.
    """

    grant: bool
    sentence: str


def seats_of(value: Value, present: Mapping[str, bool]) -> dict[str, bool]:
    """Who goes on after a reset: True where it votes. Where nobody present has a seat, who is a voter yet keeps it.

    Args:
        value: The last value of the operator's node.
        present: Who is there; True where the admission has a seat.
    """
    here = {peer: seated for peer, seated in present.items() if peer not in value.banned}
    seats = {
        peer: (seated or peer in value.seated) and peer not in value.unseated for peer, seated in here.items()
    }
    if any(seats.values()):
        return seats
    voters = {elector.peer for elector in value.electorate}
    return {peer: peer in voters for peer in here}


def last_of(state: State, last: Certified, base: bytes) -> tuple[Certified, bytes, bytes]:
    """What a reset goes on from: the value, the state after it where that is known, and the bytes that it has to show.

    A value without a certificate is shown: one that was voted for here, which who is lost may have seen certified, and
    one that only an earlier reset made stand, which is in the way of a chain that parted before.

    Args:
        state: Of the member beside whom the reset is made.
        last: The last value that stands there.
        base: The digest of the state after it.
    """
    body = voted(state) if last is state.tip else b""
    if value_digest(body) in state.held:
        return Certified(parse_value(body), body, value_digest(body)), b"", body
    return last, base, b"" if last.votes or last.start else last.data


def voted(state: State) -> bytes:
    """The value of this round that may have been certified by those who are lost, encoded; empty where there is none.

    It is the one of the highest attempt that somebody here voted for: a reset that goes on from it voids nothing that
    anybody may have applied (rules 3 and 15). Who gives one needs its bytes.
    """
    given: dict[int, set[bytes]] = {}
    bodies = dict(state.bodies)
    if state.ballot is not None:
        bodies[value_digest(state.ballot.value)] = state.ballot.value
        given.setdefault(state.ballot.attempt, set()).add(value_digest(state.ballot.value))
    for peer, ready in state.of_voters().items():
        if planning.has_voted(state.rules, state.value, state.tip.digest, peer, ready):
            digest = value_digest(ready.voted_value)
            bodies[digest] = ready.voted_value
            given.setdefault(ready.voted_attempt - 1, set()).add(digest)
    for attempt, digest in state.votes:
        given.setdefault(attempt, set()).add(digest)
    for ask in state.asks.values():
        if ask.message.voted_attempt:
            given.setdefault(ask.message.voted_attempt - 1, set()).add(ask.message.voted_value)
    highest = given[max(given)] if given else set()
    if len(highest) != 1:
        return b""
    (digest,) = highest
    data = bodies.get(digest, b"")
    return data if _stands(state, data) else b""


def _stands(state: State, data: bytes) -> bool:
    """Whether a value can be the last one of an epoch: it follows the tip, and the run goes on after it."""
    try:
        value = parse_value(data)
    except (NodeError, ValueError):
        return False
    place = (value.epoch, value.round, value.previous)
    return place == (state.epoch, state.round, state.tip.digest) and not value.finished


def judge(state: State, renewed: Collection[str]) -> Verdict | None:
    """Judge the wishes for a reset that a member holds; None where there are none.

    Args:
        state: The machine's state of the member beside the coordinator.
        renewed: Peers whose directory record was renewed within ``lost_after``: they live, wherever they are.
    """
    voters = [elector.peer for elector in state.value.electorate]
    asking = [peer for peer in voters if peer in state.asks]
    if not asking:
        return None
    have = f"{len(asking)} of {len(voters)} voters ask for a reset in round {state.round}"
    if 3 * len(asking) < len(voters):
        return Verdict(False, f"{have}, fewer than a third: the others may go on without them.")
    alive = [peer for peer in voters if peer not in state.asks and peer in renewed]
    if alive:
        names = ", ".join(peer[-6:] for peer in alive[:4]) + (" and others" if len(alive) > 4 else "")
        return Verdict(False, f"{have}, but {names} live and do not ask: they may go on without them.")
    return Verdict(True, f"{have}, and nothing is heard of the others.")
