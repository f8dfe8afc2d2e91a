"""How a member's state begins: from a certified value, and from what it had promised before it stopped."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from diloco.rounds.certificate import Certified
from diloco.rounds.events import Contribution, Persist
from diloco.rounds.rules import Rules
from diloco.rounds.state import Ballot, State, Timing
from diloco.rounds.values import Lease, Value


@dataclass(frozen=True)
class Kept:
    """A frozen contribution as it stands on disk.

    Attributes:
        lease: What it was trained on.
        round: The round for which it was frozen.
        contribution: What is said of it.
    """

    lease: Lease
    round: int
    contribution: Contribution


def fork_of(rival: Certified) -> str:
    """Why the other side of a fork stops a member."""
    return "two-resets" if rival.start else "two-certificates"


def standing(
    tip: Certified,
    base: bytes,
    origin: Certified,
    rival: Certified | None,
    links: Callable[[int], Iterable[Certified]],
) -> tuple[Certified, bytes]:
    """The last value that both sides of a fork have, and the state after it; the tip where there is no fork.

    Args:
        tip: The last certified value here.
        base: State digest after it.
        origin: The record that began its epoch.
        rival: The other side of a fork in that epoch.
        links: The links here that name a round.
    """
    if rival is None:
        return tip, base
    if rival.start:  # two resets: the one that goes back further names what both have
        after = min(origin, rival, key=lambda reset: reset.value.round).value
    else:
        mine = (link.value for link in links(rival.value.round) if not link.start)
        after = next((value for value in mine if value.previous == rival.value.previous), tip.value)
    before = (*links(after.round), *links(after.round - 1))
    last = next((link for link in before if link.digest == after.previous), None)
    return (tip, base) if last is None else (last, after.base)


def recover(
    me: str,
    rules: Rules,
    timing: Timing,
    *,
    boot: bytes,
    started: int,
    tip: Certified,
    beacon_key: bytes,
    admission: bytes,
    promise: Persist | None,
    now: float,
    rival: Certified | None = None,
    frozen: Kept | None = None,
    since: Iterable[Value] = (),
) -> State:
    """The state after a tip, with promise, vote and contribution that are on disk (rules 2, 5 and 9).

    Without any the member abstains until a value lists its boot nonce: it cannot know whether it has ever voted. So
    does a newcomer, which may be an old voter with a new disk; the value that gives it its vote lists its nonce. A
    record is gone, too, where a value since its last promise lists this member: another process with its key has begun
    one, and this one does not know how that has voted.

    Args:
        me: The member's peer id.
        rules: What the genesis fixes.
        timing: Deadlines.
        boot: Boot nonce of this process, 16 bytes.
        started: When it started, Unix milliseconds, more than at any earlier start.
        tip: The last certified value that it knows.
        beacon_key: Its secret (32 bytes), from which its nonces follow.
        admission: Its admission (envelope bytes).
        promise: What was last written by ``Persist``; None on a disk that never held it.
        now: Seconds on its monotonic clock.
        rival: The other side of a fork in the tip's epoch, which stopped it before it restarted.
        since: What was certified from the round of the promise on.
        frozen: The contribution that it froze last; it counts while its lease goes on, for the same part of the grid.
    """
    value = tip.value
    seat = rules.seat_of(admission, me) if admission else None
    seated = (seat is not None and seat.seated) or me in value.seated
    may_vote = seated or any(e.peer == me for e in value.electorate)
    listed = any(entry.peer == me and entry.nonce == boot for entry in value.boots)
    if any(entry.peer == me for passed in since for entry in passed.boots):
        promise = None
    promised, ballot = -1, None
    if promise is not None and (promise.epoch, promise.round) == (value.epoch, value.round + 1):
        promised = promise.promised
        if promise.voted_attempt:
            ballot = Ballot(promise.voted_attempt - 1, promise.voted_value, promise.voted_close)
    if frozen is not None:
        same = frozen.lease == tip.leases.get(me)
        frozen = frozen if same and rules.slot(frozen.round) == rules.slot(value.round + 1) else None
    return State(
        me=me,
        rules=rules,
        timing=timing,
        boot=boot,
        started=started,
        tip=tip,
        beacon_key=beacon_key,
        admission=admission,
        abstains=promise is None and may_vote and not listed,
        promised=promised,
        recovered=promised,
        ballot=ballot,
        contribution=None if frozen is None else frozen.contribution,
        halted="" if rival is None else fork_of(rival),
        began=now,
        attempt_began=now,
    )
