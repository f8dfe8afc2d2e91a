"""What the round machine does with what other members say: one function per kind of statement."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from diloco.rounds import moves, planning, roster
from diloco.rounds.events import Effect, Fetch, Note, Reduce
from diloco.rounds.evidence import contradiction
from diloco.rounds.moves import Step
from diloco.rounds.records import Order
from diloco.rounds.state import State
from diloco.rounds.statements import AskReset, Close, Pass, Proposal, Ready, Vote
from diloco.rounds.values import parse_value, value_digest
from protocol.envelope import Sealed
from protocol.errors import NodeError

MOST_ORDERS = 16
"""Operator orders that one Ready shows."""

MOST_BODIES = 64
"""Values kept in one round that are not decided yet."""

MOST_AHEAD = 1 << 20
"""How far an attempt that is believed may lie ahead: one voter's word alone can move a run of three."""

MOST_VOTES = 64
"""Votes of one peer that are kept in one round, those of the highest attempts."""


def with_order(state: State, order: Sealed[Order]) -> State:
    """Keep an order for the next Ready; one that a value has overtaken is void (rule 11)."""
    numbers = {held.message.number for held in state.orders}
    if order.message.number <= state.value.order_number or order.message.number in numbers:
        return state
    orders = sorted((*state.orders, order), key=lambda held: held.message.number)
    return replace(state, orders=tuple(orders[:MOST_ORDERS]))


def _take_order(state: State, raw: bytes) -> State:
    """An order in another voter's Ready is as good as one from the operator."""
    if any(held.raw == raw for held in state.orders):
        return state
    try:
        return with_order(state, state.rules.unseal_order(raw))
    except NodeError:
        return state


def _on_ready(state: State, sealed: Sealed[Ready], now: float) -> Step:
    ready, peer = sealed.message, sealed.sender
    voter = any(e.peer == peer for e in state.value.electorate)
    if not voter and peer not in state.value.members and state.rules.seat_of(ready.admission, peer) is None:
        return state, [Note("ready.refused", (("peer", peer), ("reason", "no admission")))]
    if ready.attempt > state.attempt + MOST_AHEAD or (ready.voted_attempt and not voter):
        return state, [Note("ready.refused", (("peer", peer), ("reason", "no honest member says this")))]
    held = state.readys.get(peer)
    if held is not None and held.message.attempt >= ready.attempt and held.message.boot == ready.boot:
        return state, []
    if held is not None and (held.message.attempt, held.message.started) > (ready.attempt, ready.started):
        return state, []
    state, effects = _compare(state, sealed) if voter else (state, [])
    for raw in ready.orders if voter else ():
        state = _take_order(state, raw)
    arrivals = state.arrivals if peer in state.arrivals else {**state.arrivals, peer: now - state.began}
    return replace(state, readys={**state.readys, peer: sealed}, arrivals=arrivals), effects


def _compare(state: State, sealed: Sealed[Ready]) -> Step:
    """Rule 16: a Ready against the votes of its sender, and the Close that it shows against the one that came here."""
    ready, effects = sealed.message, list[Effect]()
    for votes in state.votes.values():
        if (vote := votes.get(sealed.sender)) is not None:
            state, more = moves.accuse(state, contradiction(vote, sealed))
            effects += more
    known = state.closes.get(ready.voted_attempt - 1)
    if known is None or known.message.value == ready.voted_value or not ready.voted_close:
        return state, effects
    try:
        shown = state.rules.unseal_close(ready.voted_close)
    except NodeError:
        return state, effects
    state, more = moves.accuse(state, contradiction(known, shown))
    return state, effects + more


def _on_proposal(state: State, sealed: Sealed[Proposal], now: float) -> Step:
    proposal = sealed.message
    attempt = proposal.attempt
    if attempt < state.promised or sealed.sender != state.leader(attempt):
        return state, []
    if state.proposal is not None and state.proposal.message.attempt == attempt:
        return moves.accuse(state, contradiction(state.proposal, sealed))
    try:
        readys = _open_readys(state, proposal.readys, attempt)
        struck = {state.rules.check_evidence(raw).accused for raw in proposal.evidence}
    except (NodeError, ValueError) as error:
        return state, [Note("proposal.refused", (("leader", sealed.sender), ("reason", str(error))))]
    if (mine := readys.get(state.me)) is not None:
        state, twin = moves.meet_twin(state, mine.boot, mine.started)
        if twin:
            return state, twin
    choice = planning.choose(state.rules, state.value, state.tip.digest, readys)
    plan = roster.make_plan(state.rules, state.value, readys, struck) if choice.kind == "free" else None
    if choice.kind == "torn" or (choice.kind == "free" and plan is None):
        return state, [
            Note("proposal.refused", (("leader", sealed.sender), ("reason", "it leads to no value")))
        ]
    state, effects = moves.adopt(state, attempt, now)
    state = replace(state, proposal=sealed, plan=plan, forced=choice.value, lost=b"")
    if (
        plan is not None and attempt <= state.recovered
    ):  # it may have signed chunks of this attempt before it restarted
        return state, effects
    if plan is not None:
        return state, [*effects, Reduce(state.epoch, state.round, attempt, sealed.sender, plan)]
    if sealed.sender == state.me:
        digest = value_digest(choice.value)
        if digest in state.held:
            state, more = moves.close(state, attempt, choice.value)
        else:
            state, more = moves.give_up(state, attempt, "bytes lost", digest)
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
    if sealed.sender != state.leader(attempt):
        return state, []
    if attempt in state.closes:
        return moves.accuse(state, contradiction(state.closes[attempt], sealed))
    digest = value_digest(close.value)
    bodies = {**state.bodies, digest: close.value}
    if len(bodies) <= MOST_BODIES:  # whatever comes of the vote, a certificate may need the body
        state = replace(state, bodies=bodies)
    if attempt < state.promised:
        return state, []
    try:
        check_close(state, close)
    except (NodeError, ValueError) as error:
        return state, [Note("close.refused", (("leader", sealed.sender), ("reason", str(error))))]
    state, effects = moves.adopt(state, attempt, now)
    state = replace(state, closes={**state.closes, attempt: sealed}, bodies=bodies)
    if state.plan is not None:
        state = replace(state, plans={**state.plans, digest: state.plan})
    if digest in state.held or digest in state.fetching:
        return state, effects
    plan = state.plans.get(digest)
    return replace(state, fetching=state.fetching | {digest}), [*effects, Fetch(close.value, plan)]


def check_close(state: State, close: Close) -> None:
    """Recompute a free value; one that was taken up is checked for its chain and against the proposal (rule 4)."""
    value = parse_value(close.value)
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
    given = sorted(attempt for (attempt, _), held in state.votes.items() if peer in held)
    if vote.attempt in given:  # the same again, or one that rule 5 forbids: the first counts
        (first,) = (held[peer] for (a, _), held in state.votes.items() if a == vote.attempt and peer in held)
        return moves.accuse(state, contradiction(first, sealed))
    effects: list[Effect] = []
    if peer in state.readys:
        state, effects = moves.accuse(state, contradiction(sealed, state.readys[peer]))
    votes = {**state.votes}
    key = (vote.attempt, vote.value)
    votes[key] = {**votes.get(key, {}), peer: sealed}
    if len(given) >= MOST_VOTES:
        lowest = min(vote.attempt, given[0])
        votes = {k: {p: s for p, s in h.items() if (k[0], p) != (lowest, peer)} for k, h in votes.items()}
        votes = {k: h for k, h in votes.items() if h}
    return replace(state, votes=votes), effects


def _on_pass(state: State, sealed: Sealed[Pass], now: float) -> Step:
    attempt = sealed.message.attempt
    near = 0 <= attempt - state.attempt <= len(state.value.electorate)
    if sealed.sender != state.leader(attempt) or not near:
        return state, []
    return replace(state, passed=state.passed | {attempt}, lost=sealed.message.lost), []


def _on_ask_reset(state: State, sealed: Sealed[AskReset], now: float) -> Step:
    if not any(elector.peer == sealed.sender for elector in state.value.electorate):
        return state, []
    return replace(state, asks={**state.asks, sealed.sender: sealed}), []


STATEMENTS: dict[type, Callable[[State, Any, float], Step]] = {
    Ready: _on_ready,
    Proposal: _on_proposal,
    Close: _on_close,
    Vote: _on_vote,
    Pass: _on_pass,
    AskReset: _on_ask_reset,
}
