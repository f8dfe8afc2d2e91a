"""The round machine: ``advance(state, event, now) -> (state, effects)``.

Rules of this file:

1. Nothing here reads a clock, a file, a socket or randomness: time is the argument ``now`` (seconds, monotonic).
2. Every transition is a pure function; what must be durable is a ``Persist`` effect placed before what depends on it.

Theory of operation (numbers are the rules of the specification, kept in ``docs/rounds.md``). A round passes through

    training -> ready -> reducing -> voting -> (next round)

A member *promises* an attempt by its Ready (2). The leader of the attempt, a pure function of the chain (8), proposes
from the Readys of a quorum, or takes up the value that one of them has voted for (3). Members recompute the proposal
(4) and reduce. The leader closes the attempt with the value; whoever holds every byte votes, once per attempt and never
below its promise (5). Votes of a quorum in one attempt decide the round (6). When an attempt's timer ends, members go
to a higher one; contributions stay as they are (7).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from diloco.rounds import planning
from diloco.rounds.certificate import Certified
from diloco.rounds.events import (
    Abandon,
    Answer,
    Arrived,
    CatchUp,
    Commit,
    Decision,
    Effect,
    Event,
    Fetch,
    Gone,
    Held,
    Leave,
    Note,
    OrderCame,
    Persist,
    Reduce,
    Reduced,
    Renew,
    ResetCame,
    Resync,
    Say,
    Seen,
    StateReady,
    Tick,
    Trained,
    Unheld,
)
from diloco.rounds.planning import value_digest
from diloco.rounds.state import Ballot, State
from diloco.rounds.statements import Close, Pass, Proposal, Ready, Vote
from protocol.envelope import Sealed
from protocol.errors import NodeError
from protocol.messages import encode

Step = tuple[State, list[Effect]]

_MOST_ORDERS = 16  # operator orders that one Ready shows
_MOST_BODIES = 64  # values kept in one round that are not decided yet


def advance(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """Take one event.

    Args:
        state: The state before.
        event: What happened.
        now: Seconds on the member's monotonic clock, never decreasing.

    Returns:
        The state after, and the effects to be carried out in this order.
    """
    if state.finished and not isinstance(event, Arrived | Decision | StateReady | ResetCame):
        return state, ()
    state, effects = _HANDLERS[type(event)](state, event, now)
    while not state.finished:
        for rule in (_decide, _speak, _follow, _run_timer, _vote, _lead):
            state, more = rule(state, now)
            effects += more
            if more:
                break
        else:
            break
    return state, tuple(effects)


# ---- events


def _on_state_ready(state: State, event: StateReady, now: float) -> Step:
    return (replace(state, base=event.base), []) if event.round == state.round else (state, [])


def _on_trained(state: State, event: Trained, now: float) -> Step:
    if state.contribution is not None or state.lease is None or state.lease.start != event.lease_start:
        return state, []
    return replace(state, contribution=event.contribution), []


def _on_reduced(state: State, event: Reduced, now: float) -> Step:
    attempt = event.attempt
    if (
        attempt != state.attempt
        or state.plan is None
        or state.leader(attempt) != state.me
        or not state.votes_here
    ):
        return state, []
    value = planning.make_value(state.rules, state.value, state.tip.digest, state.plan, attempt, event.chunks)
    return _close(state, attempt, encode(value))


def _close(state: State, attempt: int, data: bytes) -> Step:
    """Say Close; the leader's own vote is on disk before it (rule 5)."""
    digest = value_digest(data)
    state = replace(
        state,
        ballot=Ballot(attempt, data),
        held=state.held | {digest},
        bodies={**state.bodies, digest: data},
    )
    body = Close(epoch=state.epoch, round=state.round, attempt=attempt, value=data)
    return state, [_persist(state), Say(body)]


def _on_held(state: State, event: Held, now: float) -> Step:
    digest = value_digest(event.value)
    return replace(state, held=state.held | {digest}, fetching=state.fetching - {digest}), []


def _on_unheld(state: State, event: Unheld, now: float) -> Step:
    digest = value_digest(event.value)
    state = replace(state, unheld=state.unheld | {digest}, fetching=state.fetching - {digest})
    return state, [Note("bytes.missing", (("value", digest.hex()), ("reason", event.reason)))]


def _on_decision(state: State, event: Decision, now: float) -> Step:
    if event.certified.value.previous != state.tip.digest:
        return state, []
    return _commit(state, event.certified, now)


def _on_order(state: State, event: OrderCame, now: float) -> Step:
    """Rule 11: an order waits for the next Ready; one that a value has overtaken is void."""
    order = event.order
    numbers = {held.message.number for held in state.orders}
    if order.message.number <= state.value.order_number or order.message.number in numbers:
        return state, []
    orders = sorted((*state.orders, order), key=lambda held: held.message.number)
    return replace(state, orders=tuple(orders[:_MOST_ORDERS])), []


def _on_reset(state: State, event: ResetCame, now: float) -> Step:
    """Rule 15: chains are ordered by epoch, then round."""
    if event.certified.value.epoch <= state.epoch:
        return state, []
    after = _after(state, event.certified, now)
    if state.contribution is not None and after.lease == state.lease:
        after = replace(after, contribution=state.contribution)
    return after, [Abandon(), Renew(event.certified)]


def _on_gone(state: State, event: Gone, now: float) -> Step:
    return replace(state, gone=state.gone | {event.peer}), []


def _on_seen(state: State, event: Seen, now: float) -> Step:
    return replace(state, gone=state.gone - {event.peer}), []


def _on_leave(state: State, event: Leave, now: float) -> Step:
    return replace(state, leaving=True), []


def _on_tick(state: State, event: Tick, now: float) -> Step:
    return state, []


def _on_arrived(state: State, event: Arrived, now: float) -> Step:
    sealed = event.sealed
    body = sealed.message
    state = replace(state, gone=state.gone - {sealed.sender}) if sealed.sender in state.gone else state
    here, theirs = (state.epoch, state.round), (body.epoch, body.round)
    if theirs < here:
        answer: list[Effect] = [] if sealed.sender == state.me else [Answer(sealed.sender, body.round)]
        return state, answer
    if theirs > here:
        return state, [CatchUp(sealed.sender)]
    if state.finished:
        return state, []
    handler: Callable[[State, Any, float], Step] = _STATEMENTS[type(body)]
    return handler(state, sealed, now)


def _on_ready(state: State, sealed: Sealed[Ready], now: float) -> Step:
    ready, peer = sealed.message, sealed.sender
    known = any(e.peer == peer for e in state.value.electorate) or peer in state.value.members
    if not known and state.rules.seat_of(ready.admission, peer) is None:
        return state, [Note("ready.refused", (("peer", peer), ("reason", "no admission")))]
    held = state.readys.get(peer)
    if held is not None and held.message.attempt >= ready.attempt and held.message.boot == ready.boot:
        return state, []
    if held is not None and held.message.attempt > ready.attempt:
        return state, []
    arrivals = state.arrivals if peer in state.arrivals else {**state.arrivals, peer: now - state.began}
    return replace(state, readys={**state.readys, peer: sealed}, arrivals=arrivals), []


def _on_proposal(state: State, sealed: Sealed[Proposal], now: float) -> Step:
    proposal = sealed.message
    attempt = proposal.attempt
    if attempt < state.promised or sealed.sender != state.leader(attempt):
        return state, []
    if state.proposal is not None and state.proposal.message.attempt == attempt:
        return state, []
    try:
        readys = _open_readys(state, proposal.readys, attempt)
    except (NodeError, ValueError) as error:
        return state, [Note("proposal.refused", (("leader", sealed.sender), ("reason", str(error))))]
    choice = planning.choose(state.value, readys)
    plan = planning.make_plan(state.rules, state.value, readys) if choice.kind == "free" else None
    if choice.kind == "torn" or (choice.kind == "free" and plan is None):
        return state, [
            Note("proposal.refused", (("leader", sealed.sender), ("reason", "it leads to no value")))
        ]
    state, effects = _adopt(state, attempt, now)
    state = replace(state, proposal=sealed, plan=plan, forced=choice.value)
    if plan is not None:
        return state, [*effects, Reduce(attempt, sealed.sender, plan)]
    if sealed.sender == state.me:
        state, more = _close(state, attempt, choice.value)
        return state, effects + more
    return state, effects


def _open_readys(state: State, envelopes: tuple[bytes, ...], attempt: int) -> dict[str, Ready]:
    """Verify the Readys of a proposal: this round, this attempt for voters, one each, a quorum."""
    readys: dict[str, Ready] = {}
    voters = {e.peer for e in state.value.electorate}
    for raw in envelopes:
        sealed = state.rules.unseal_ready(raw)
        ready, peer = sealed.message, sealed.sender
        if (ready.epoch, ready.round) != (state.epoch, state.round) or peer in readys:
            raise ValueError(f"the Ready of {peer} is of another round or listed twice")
        if peer in voters and ready.attempt != attempt:
            raise ValueError(f"the Ready of {peer} is of another attempt")
        known = peer in voters or peer in state.value.members
        if not known and state.rules.seat_of(ready.admission, peer) is None:
            raise ValueError(f"{peer} is not admitted")
        readys[peer] = ready
    if not planning.quorum_of(state.value, readys, attempt):
        raise ValueError("the listed Readys are no quorum")
    return readys


def _on_close(state: State, sealed: Sealed[Close], now: float) -> Step:
    close = sealed.message
    attempt = close.attempt
    if attempt in state.closes or sealed.sender != state.leader(attempt):
        return state, []
    digest = value_digest(close.value)
    if len(state.bodies) < _MOST_BODIES:  # whatever comes of the vote, a certificate may need the body
        state = replace(state, bodies={**state.bodies, digest: close.value})
    if attempt < state.promised:
        return state, []
    try:
        _check_close(state, close)
    except (NodeError, ValueError) as error:
        return state, [Note("close.refused", (("leader", sealed.sender), ("reason", str(error))))]
    state, effects = _adopt(state, attempt, now)
    state = replace(state, closes={**state.closes, attempt: sealed})
    if state.plan is not None:
        state = replace(state, plans={**state.plans, digest: state.plan})
    if digest in state.held or digest in state.fetching:
        return state, effects
    plan = state.plans.get(digest)
    return replace(state, fetching=state.fetching | {digest}), [*effects, Fetch(close.value, plan)]


def _check_close(state: State, close: Close) -> None:
    """Recompute a free value; one that was taken up is checked for its chain and against the proposal (rule 4)."""
    value = planning.parse_value(close.value)
    if (value.epoch, value.round, value.previous) != (state.epoch, state.round, state.tip.digest):
        raise ValueError("the value does not follow this member's last one")
    if state.proposal is None or state.proposal.message.attempt != close.attempt:
        raise ValueError("the proposal has not come yet")
    if state.forced:
        if state.forced != close.value:
            raise ValueError("the value is not the one that was voted for")
        return
    assert state.plan is not None  # a proposal is either free or forced
    expected = planning.make_value(
        state.rules, state.value, state.tip.digest, state.plan, close.attempt, value.chunks
    )
    if expected != value:
        raise ValueError("the value is not what its proposal leads to")


def _on_vote(state: State, sealed: Sealed[Vote], now: float) -> Step:
    vote, peer = sealed.message, sealed.sender
    if not any(e.peer == peer for e in state.value.electorate):
        return state, []
    key = (vote.attempt, vote.value)
    held = state.votes.get(key, {})
    if peer in held:
        return state, []
    return replace(state, votes={**state.votes, key: {**held, peer: sealed}}), []


def _on_pass(state: State, sealed: Sealed[Pass], now: float) -> Step:
    attempt = sealed.message.attempt
    if sealed.sender != state.leader(attempt):
        return state, []
    return replace(state, passed=state.passed | {attempt}), []


# ---- rules, tried in order until none has anything to do


def _decide(state: State, now: float) -> Step:
    """Rule 6: votes of a quorum, for one value, in one attempt."""
    for (attempt, digest), votes in state.votes.items():
        data = state.bodies.get(digest)
        if data is not None and state.is_quorum(set(votes)):
            envelopes = tuple(votes[peer].raw for peer in sorted(votes))
            certified = Certified(planning.parse_value(data), data, digest, attempt, envelopes)
            return _commit(state, certified, now)
    return state, []


def _commit(state: State, certified: Certified, now: float) -> Step:
    value = certified.value
    spent = any(
        entry.peer == state.me and any(planning.included(chunk, i) for chunk in value.chunks)
        for i, entry in enumerate(value.roster)
    )
    after = _after(state, certified, now)
    give = state.contribution
    kept = give is not None and give.tokens > 0 and after.lease == state.lease  # nothing is not kept
    if kept and not spent:
        after = replace(after, contribution=give)
    return after, [Commit(certified, spent)]


def _after(state: State, certified: Certified, now: float) -> State:
    """The state in which the round after a certified value begins."""
    value = certified.value
    return State(
        me=state.me,
        rules=state.rules,
        timing=state.timing,
        boot=state.boot,
        tip=certified,
        admission=state.admission,
        abstains=state.abstains
        and not any(b.peer == state.me and b.nonce == state.boot for b in value.boots),
        leaving=state.leaving,
        gone=state.gone,
        began=now,
        attempt_began=now,
        orders=tuple(order for order in state.orders if order.message.number > value.order_number),
    )


def _persist(state: State) -> Persist:
    ballot = state.ballot
    return Persist(
        epoch=state.epoch,
        round=state.round,
        promised=state.promised,
        voted_attempt=ballot.attempt + 1 if ballot else 0,
        voted_value=ballot.value if ballot else b"",
        voted_close=ballot.close if ballot else b"",
    )


def _adopt(state: State, attempt: int, now: float) -> Step:
    """Go to a higher attempt; its Ready is said by ``_speak``."""
    if attempt <= state.promised:
        return state, []
    reducing = state.proposal is not None
    state = replace(
        state,
        promised=attempt,
        attempt_began=now,
        timer=None,
        proposal=None,
        plan=None,
        forced=b"",
        unheld=frozenset(),
    )
    return state, [Abandon()] if reducing else []


def _speak(state: State, now: float) -> Step:
    """Rule 2: say Ready once the state is there and the lease is trained, and again for every new attempt."""
    if state.base is None or (state.lease is not None and state.contribution is None):
        return state, []
    attempt = max(state.promised, state.recovered + 1 if state.recovered >= 0 else 0)
    if state.promised < 0:
        attempt = max(attempt, state.highest_seen())
    if state.said >= attempt:
        return state, []
    state, effects = _adopt(state, attempt, now)
    state = replace(state, said=attempt)
    give = state.contribution
    elector = any(e.peer == state.me for e in state.value.electorate)
    ready = Ready(
        epoch=state.epoch,
        round=state.round,
        attempt=attempt,
        base=state.base or b"",
        tokens=give.tokens if give else 0,
        samples=give.samples if give else 0,
        commitment=give.commitment if give else b"",
        norms=give.norms if give else (),
        boot=state.boot,
        leaving=state.leaving,
        lost_record=state.abstains,
        voted_attempt=state.ballot.attempt + 1 if state.ballot else 0,
        voted_value=state.ballot.value if state.ballot else b"",
        voted_close=state.ballot.close if state.ballot else b"",
        admission=b"" if elector or state.me in state.value.members else state.admission,
        orders=tuple(order.raw for order in state.orders),
    )
    if state.abstains:  # a promise on disk would pass for a vote record after the next restart (rule 9)
        return state, [*effects, Say(ready)]
    return state, [*effects, _persist(state), Say(ready)]


def _follow(state: State, now: float) -> Step:
    """Rule 8: Readys of higher attempts from a third of the voters move a member at once. Rule 12: another base."""
    voters = {e.peer for e in state.value.electorate}
    if state.said >= 0:
        higher = sorted(
            s.message.attempt
            for p, s in state.readys.items()
            if p in voters and s.message.attempt > state.promised
        )
        if higher and 3 * len(higher) >= len(voters):
            return _adopt_and_speak(state, higher[-1], now)
    base = planning.base_of(state.value, {p: s.message for p, s in state.readys.items()})
    if base is not None and state.base is not None and base != state.base and state.resynced != base:
        return replace(state, resynced=base), [Resync(base)]
    return state, []


def _adopt_and_speak(state: State, attempt: int, now: float) -> Step:
    state, effects = _adopt(state, attempt, now)
    state, more = _speak(state, now)
    return state, effects + more


def _run_timer(state: State, now: float) -> Step:
    """Rule 8: an attempt's timer runs only while a quorum is ready for it or for a later one."""
    if state.said < 0 or state.said != state.promised:
        return state, []
    attempt = state.promised
    ready = {p for p, s in state.readys.items() if s.message.attempt >= attempt and not s.message.lost_record}
    if not state.is_quorum(ready):
        return replace(state, timer=None), []
    timer = state.timer
    if timer is None:
        timer = max(now, state.ready_deadline()) + state.attempt_length()
    if state.leader(attempt) in state.gone:
        timer = min(timer, max(now, state.attempt_began) + state.timing.grace.total_seconds())
    state = replace(state, timer=timer)
    passed = attempt in state.passed and len(state.passed) <= len(state.value.electorate)
    if now >= timer or passed:
        return _adopt_and_speak(state, max(attempt + 1, state.highest_seen()), now)
    return state, []


def _vote(state: State, now: float) -> Step:
    """Rule 5: vote once per attempt, never below the promise, with every byte in hand, durably."""
    attempt = state.promised
    close = state.closes.get(attempt)
    if close is None or not state.votes_here or state.vote_said >= attempt:
        return state, []
    data = close.message.value
    digest = value_digest(data)
    if digest not in state.held:
        return state, []
    if state.ballot is not None and state.ballot.attempt == attempt and state.ballot.value != data:
        return state, []
    state = replace(state, ballot=Ballot(attempt, data, close.raw), vote_said=attempt)
    vote = Vote(epoch=state.epoch, round=state.round, attempt=attempt, value=digest)
    return state, [_persist(state), Say(vote)]


def _lead(state: State, now: float) -> Step:
    """Rules 3 and 4: what the leader of the current attempt does."""
    attempt = state.promised
    if state.said != attempt or attempt < 0 or state.leader(attempt) != state.me or state.proposed >= attempt:
        return state, []
    if attempt in state.passed:
        return state, []
    if not state.votes_here or attempt <= state.recovered:
        return _give_up(state, attempt, "restarted or without its vote record")
    listed = state.listed(attempt)
    if not planning.quorum_of(state.value, listed, attempt):
        return state, []
    choice = planning.choose(state.value, listed)
    if choice.kind == "torn":
        return _give_up(state, attempt, "two values reported for one attempt")
    if choice.kind == "forced":
        return _take_up(state, attempt, choice.value, listed)
    if state.missing() and now < state.ready_deadline():
        return state, []
    if planning.base_of(state.value, listed) is None:
        return state, []
    return _propose(state, attempt, listed)


def _propose(state: State, attempt: int, listed: Mapping[str, Ready]) -> Step:
    envelopes = tuple(state.readys[peer].raw for peer in sorted(listed))
    body = Proposal(epoch=state.epoch, round=state.round, attempt=attempt, readys=envelopes)
    return replace(state, proposed=attempt), [Say(body)]


def _take_up(state: State, attempt: int, data: bytes, listed: Mapping[str, Ready]) -> Step:
    """Close the voted value unchanged; without its bytes look for a quorum without that vote, else pass."""
    digest = value_digest(data)
    if digest in state.held:
        return _propose(state, attempt, listed)
    if digest in state.unheld:
        others = {peer: ready for peer, ready in listed.items() if not ready.voted_attempt}
        if (
            planning.quorum_of(state.value, others, attempt)
            and planning.base_of(state.value, others) is not None
        ):
            return _propose(state, attempt, others)
        return _give_up(state, attempt, "bytes lost")
    if digest in state.fetching:
        return state, []
    return replace(state, fetching=state.fetching | {digest}), [Fetch(data, state.plans.get(digest))]


def _give_up(state: State, attempt: int, reason: str) -> Step:
    body = Pass(epoch=state.epoch, round=state.round, attempt=attempt, reason=reason)
    return replace(state, proposed=attempt, passed=state.passed | {attempt}), [Say(body)]


_HANDLERS: dict[type, Callable[[State, Any, float], Step]] = {
    StateReady: _on_state_ready,
    Trained: _on_trained,
    Arrived: _on_arrived,
    Reduced: _on_reduced,
    Held: _on_held,
    Unheld: _on_unheld,
    Decision: _on_decision,
    OrderCame: _on_order,
    ResetCame: _on_reset,
    Gone: _on_gone,
    Seen: _on_seen,
    Leave: _on_leave,
    Tick: _on_tick,
}

_STATEMENTS: dict[type, Callable[[State, Any, float], Step]] = {
    Ready: _on_ready,
    Proposal: _on_proposal,
    Close: _on_close,
    Vote: _on_vote,
    Pass: _on_pass,
}
