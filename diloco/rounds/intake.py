"""What the round machine does with what happens: one function per event."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from diloco.rounds import hearing, moves, planning
from diloco.rounds.events import (
    Abandon,
    Answer,
    Arrived,
    CatchUp,
    Decision,
    Effect,
    EvidenceCame,
    Gone,
    Halt,
    Held,
    Leave,
    Note,
    Observed,
    OrderCame,
    Reduced,
    Renew,
    ResetCame,
    RivalCame,
    Seen,
    StateReady,
    Tick,
    Trained,
    TwinSeen,
    Unheld,
)
from diloco.rounds.evidence import Proof
from diloco.rounds.hearing import with_order
from diloco.rounds.moves import Step
from diloco.rounds.recovery import fork_of
from diloco.rounds.state import State
from diloco.rounds.statements import Ready, Vote
from diloco.rounds.values import value_digest
from protocol.envelope import Sealed
from protocol.errors import NodeError
from protocol.messages import encode

MOST_ATTEMPTS = 1 << 40
"""Attempts of one round. No honest member comes near it, and every disk and message holds such a number."""


def _on_state_ready(state: State, event: StateReady, now: float) -> Step:
    return (replace(state, base=event.base), []) if event.round == state.round else (state, [])


def _on_trained(state: State, event: Trained, now: float) -> Step:
    if state.contribution is not None or state.lease is None or state.lease.start != event.lease_start:
        return state, []
    return replace(state, contribution=event.contribution), []


def _on_reduced(state: State, event: Reduced, now: float) -> Step:
    attempt = event.attempt
    if (
        (event.epoch, event.round, attempt) != (state.epoch, state.round, state.attempt)
        or state.plan is None
        or state.leader(attempt) != state.me
        or not state.votes_here
    ):
        return state, []
    try:
        value = planning.make_value(
            state.rules, state.value, state.tip.digest, state.plan, attempt, event.chunks
        )
        data = encode(value)
    except (NodeError, ValueError) as error:  # it is larger than a value may be
        state, effects = moves.give_up(state, attempt, "there is no value for this proposal")
        return state, [Note("value.refused", (("reason", str(error)),)), *effects]
    return moves.close(state, attempt, data)


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
    return moves.commit(state, event.certified, now)


def _on_order(state: State, event: OrderCame, now: float) -> Step:
    """Rule 11: an order waits for the next Ready; one that a value has overtaken is void."""
    return with_order(state, event.order), []


def _on_reset(state: State, event: ResetCame, now: float) -> Step:
    """Rule 15: chains are ordered by epoch, then round; after two resets of one epoch only the root key is believed."""
    if event.certified.value.epoch <= state.epoch or state.halted == "superseded":
        return state, []
    if state.halted == "two-resets" and not event.root:
        return state, []
    after = moves.state_after(state, event.certified, now)
    if state.contribution is not None and after.lease == state.lease:
        after = replace(after, contribution=state.contribution)
    return after, [Abandon(), Renew(event.certified, event.behind), *moves.recorded(state, after)]


def _on_evidence(state: State, event: EvidenceCame, now: float) -> Step:
    """Rule 16: what others have found out is as good as one's own finding."""
    return _accused(state, event.proof)


def _accused(state: State, proof: Proof) -> Step:
    if not any(elector.peer == proof.accused for elector in state.value.electorate):
        return state, []
    return moves.accuse(state, proof)


def _on_rival(state: State, event: RivalCame, now: float) -> Step:
    """Rules 15 and 17: where the chain forks nobody goes on; each side is shown to everyone."""
    reason = fork_of(event.certified)
    return replace(state, halted=reason), [Abandon(), Halt(reason, event.certified)]


def _on_twin(state: State, event: TwinSeen, now: float) -> Step:
    return moves.meet_twin(state, event.boot, event.started)


def _on_observed(state: State, event: Observed, now: float) -> Step:
    return replace(state, observed=event), []


def _on_gone(state: State, event: Gone, now: float) -> Step:
    return replace(state, gone=state.gone | {event.peer}), []


def _on_seen(state: State, event: Seen, now: float) -> Step:
    return replace(state, gone=state.gone - {event.peer}), []


def _on_leave(state: State, event: Leave, now: float) -> Step:
    return replace(state, leaving=True), []


def _on_tick(state: State, event: Tick, now: float) -> Step:
    return state, []


def _on_late(state: State, sealed: Sealed[Any]) -> Step:
    """A statement of a decided round: its sender is told what was decided, and what it contradicts is evidence."""
    body = sealed.message
    if sealed.sender == state.me:
        return state, []
    past, proof = state.past.hear(sealed)
    state, effects = replace(state, past=past), list[Effect]()
    if proof is not None:
        state, effects = _accused(state, proof)
    # a vote for what was decided is late and not ignorant: its sender is told with all others
    known = isinstance(body, Vote) and body.value == state.tip.digest
    return state, effects if known else [*effects, Answer(sealed.sender, body.epoch, body.round)]


def _on_arrived(state: State, event: Arrived, now: float) -> Step:
    sealed = event.sealed
    body = sealed.message
    if sealed.sender == state.me and isinstance(body, Ready) and body.boot != state.boot:
        return moves.meet_twin(state, body.boot, body.started)
    state = replace(state, gone=state.gone - {sealed.sender}) if sealed.sender in state.gone else state
    here, theirs = (state.epoch, state.round), (body.epoch, body.round)
    if theirs < here:
        return _on_late(state, sealed)
    if theirs > here:
        return state, [CatchUp(sealed.sender)]
    if state.finished or body.attempt >= MOST_ATTEMPTS:
        return state, []
    handler: Callable[[State, Any, float], Step] = hearing.STATEMENTS[type(body)]
    return handler(state, sealed, now)


HANDLERS: dict[type, Callable[[State, Any, float], Step]] = {
    StateReady: _on_state_ready,
    Trained: _on_trained,
    Arrived: _on_arrived,
    Reduced: _on_reduced,
    Held: _on_held,
    Unheld: _on_unheld,
    Decision: _on_decision,
    OrderCame: _on_order,
    ResetCame: _on_reset,
    RivalCame: _on_rival,
    TwinSeen: _on_twin,
    EvidenceCame: _on_evidence,
    Observed: _on_observed,
    Gone: _on_gone,
    Seen: _on_seen,
    Leave: _on_leave,
    Tick: _on_tick,
}
