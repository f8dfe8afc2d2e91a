"""From Readys to a value: pure functions that the leader computes and every member recomputes (rules 3, 4, 10)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from diloco.rounds.audits import convicted, unproven_after
from diloco.rounds.beacon import next_beacon, reveals_of
from diloco.rounds.electorate import is_quorum, leader_order
from diloco.rounds.leases import Ledger, assign, assign_timed, settle, sizes_after
from diloco.rounds.membership import next_membership
from diloco.rounds.orders import stands, strike_off, take_orders, with_parameters
from diloco.rounds.roster import Plan, included, partial_tokens
from diloco.rounds.rules import Rules
from diloco.rounds.statements import Close, Ready
from diloco.rounds.values import Boot, Contributor, ReducedChunk, Value, parse_value
from protocol.errors import NodeError


def leaders(rules: Rules, tip: Value) -> list[str]:
    """Leaders, by attempt, of the round after ``tip``; those that failed or were absent of late come last."""
    failed = {*tip.failed_leaders, *tip.failed_last, *tip.failed_before}
    failed |= {elector.peer for elector in tip.electorate if elector.absent}
    return leader_order(rules.run, tip.round + 1, tip.beacon, tip.electorate, failed)


def quorum_of(tip: Value, readys: Mapping[str, Ready], attempt: int) -> bool:
    """Whether Readys of exactly this attempt, from voters whose record is whole, are a quorum."""
    return is_quorum(
        [peer for peer, ready in readys.items() if ready.attempt == attempt and not ready.lost_record],
        tip.electorate,
        tip.tie_breaker,
    )


@dataclass(frozen=True)
class Choice:
    """What rule 3 leaves a leader: ``free``, ``forced`` to a value, or ``torn`` between two values of one attempt."""

    kind: str
    value: bytes = b""


def choose(rules: Rules, tip: Value, tip_digest: bytes, readys: Mapping[str, Ready]) -> Choice:
    """Apply rule 3 to the Readys that an attempt rests on; a vote that cannot have been given is none."""
    voted = [ready for peer, ready in readys.items() if has_voted(rules, tip, tip_digest, peer, ready)]
    if not voted:
        return Choice("free")
    highest = max(ready.voted_attempt for ready in voted)
    values = {ready.voted_value for ready in voted if ready.voted_attempt == highest}
    return Choice("forced", values.pop()) if len(values) == 1 else Choice("torn")


def has_voted(rules: Rules, tip: Value, tip_digest: bytes, peer: str, ready: Ready) -> bool:
    """Whether a Ready reports a vote that a voter can have given: in this round, asked for by the attempt's leader.

    The leader's own vote is on disk before it says its Close, so its own report needs none.
    """
    attempt = ready.voted_attempt - 1
    if not 0 <= attempt <= ready.attempt:
        return False
    order = leaders(rules, tip)
    if peer not in order:
        return False
    try:
        value = parse_value(ready.voted_value)
        if (value.epoch, value.round, value.previous) != (ready.epoch, ready.round, tip_digest):
            return False
        leader = order[attempt % len(order)]
        if peer == leader:
            return True
        close = rules.unseal_close(ready.voted_close)
    except (NodeError, ValueError):
        return False
    asked = Close(epoch=ready.epoch, round=ready.round, attempt=attempt, value=ready.voted_value)
    return close.sender == leader and close.message == asked


def books_after(
    rules: Rules,
    tip: Value,
    roster: Sequence[Contributor],
    chunks: Sequence[ReducedChunk],
    stay: Collection[str],
    present: Collection[str],
) -> Ledger:
    """The leases after a round: those of its roster are settled, and who is present gets new ones.

    Args:
        rules: The run's rules.
        tip: The value before.
        roster: Who contributed.
        chunks: What was agreed on.
        stay: Who keeps a lease of which nothing was certified.
        present: Who gets a lease for the next round.
    """
    certified = {
        entry.peer: entry.samples
        for position, entry in enumerate(roster)
        if any(included(chunk, position) for chunk in chunks)
    }
    books = settle(Ledger(tip.leases, tip.returned, tip.cursor), certified, stay)
    if rules.rounds and tip.round + 2 >= rules.rounds:  # there is no next round
        return books
    if not rules.timed:
        return assign(books, sorted(present), rules.samples)
    arrived = {
        entry.peer: entry.samples
        for position, entry in enumerate(roster)
        if chunks and all(included(chunk, position) for chunk in chunks)
    }
    step = rules.samples_per_step
    return assign_timed(
        books, sizes_after(tip.leases, arrived, sorted(present), most=rules.samples, step=step)
    )


def make_value(
    rules: Rules, tip: Value, tip_digest: bytes, plan: Plan, attempt: int, chunks: Sequence[ReducedChunk]
) -> Value:
    """The value of a free proposal: a pure function of the value before, plan, attempt and reduced chunks.

    Raises:
        ValueError: They are not the chunks of this round.
    """
    slot = rules.slot(tip.round + 1)
    if len(chunks) != (len(slot) if plan.roster else 0):
        raise ValueError(
            f"the round has {len(slot)} chunks, and none without a contributor; {len(chunks)} are named"
        )
    will = take_orders(rules, tip, plan.readys)
    will.unseated |= plan.struck
    strike_off(will, tip, convicted(tip.electorate, plan.readys))
    here = next_membership(rules, tip, plan.base, plan.readys, will)
    rules = with_parameters(rules, will.parameters)
    books = books_after(rules, tip, plan.roster, chunks, here.keep, () if will.finished else here.present)
    total = sum(entry.tokens for entry in plan.roster)
    voters = {*(e.peer for e in tip.electorate), *(e.peer for e in here.electorate)}
    reveals = reveals_of(tip.electorate, plan.readys)
    order = leaders(rules, tip)
    failed = tuple(dict.fromkeys(order[a % len(order)] for a in range(min(attempt, len(order)))))
    return Value(
        epoch=tip.epoch,
        round=tip.round + 1,
        previous=tip_digest,
        base=plan.base,
        roster=plan.roster,
        chunks=tuple(chunks),
        leases=books.leases,
        cursor=books.cursor,
        returned=books.returned,
        electorate=here.electorate,
        members=here.members,
        late=here.late,
        ghosts=here.ghosts,
        tie_breaker=here.tie_breaker,
        failed_leaders=failed,
        failed_last=tip.failed_leaders,
        failed_before=tip.failed_last,
        boots=tuple(
            Boot(peer=peer, nonce=ready.boot)
            for peer, ready in sorted(plan.readys.items())
            if ready.lost_record and peer in voters
        ),
        left=tuple(sorted(peer for peer, ready in plan.readys.items() if ready.leaving)),
        beacon=next_beacon(tip.beacon, tip.round + 1, reveals),
        reveals=reveals,
        tokens=total,
        partial_tokens=partial_tokens([rules.chunk_sizes[c] for c in slot], plan, chunks),
        stopped=here.stopped,
        orders=will.taken,
        order_number=will.number,
        banned=tuple(sorted(will.banned)),
        paused=will.paused,
        finished=will.finished,
        revoked=will.revoked,
        parameters=stands(will.parameters),
        unproven=unproven_after(tip.unproven, tip.electorate, plan.readys),
        seated=tuple(sorted(will.seated)),
        unseated=tuple(sorted(will.unseated)),
        origin=tip_digest if tip.begins else tip.origin,
    )
