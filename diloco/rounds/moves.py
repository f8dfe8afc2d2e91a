"""Moves of the round machine that both what arrives and what is due may cause."""

from dataclasses import replace
from typing import Any

from diloco.rounds.certificate import Certified
from diloco.rounds.events import (
    Abandon,
    Accuse,
    Commit,
    Effect,
    Persist,
    Say,
    Stop,
)
from diloco.rounds.evidence import Proof
from diloco.rounds.late import Past
from diloco.rounds.roster import included
from diloco.rounds.state import Ballot, State
from diloco.rounds.statements import Close, Pass
from diloco.rounds.values import Value, value_digest
from protocol.envelope import Sealed
from protocol.messages import encode

MOST_KNOWN_IDLE = 1024
"""Peers of whom it is known that they gave nothing of late."""

MOST_EVIDENCE = 8
"""Voters against whom evidence is kept at the same time."""

Step = tuple[State, list[Effect]]
"""The state after, and effects in the order in which they are to be carried out."""


def close(state: State, attempt: int, data: bytes) -> Step:
    """Say Close; the leader's own vote is on disk before it (rule 5)."""
    digest = value_digest(data)
    state = replace(
        state,
        ballot=Ballot(attempt, data),
        held=state.held | {digest},
        bodies={**state.bodies, digest: data},
    )
    body = Close(epoch=state.epoch, round=state.round, attempt=attempt, value=data)
    return state, [persist(state), Say(body)]


def accuse(state: State, proof: Proof | None) -> Step:
    """Keep evidence for the next free proposal, and show it to everyone, the first time that one is accused."""
    if proof is None or proof.accused in state.evidence or len(state.evidence) >= MOST_EVIDENCE:
        return state, []
    state = replace(state, evidence={**state.evidence, proof.accused: encode(proof.evidence)})
    return state, [Accuse(proof)]


def meet_twin(state: State, boot: bytes, started: int) -> Step:
    """Rule 9: of two live processes with one key the older one stops and says so."""
    if boot == state.boot or (started, boot) < (state.started, state.boot):
        return state, []
    return replace(state, halted="superseded"), [Abandon(), Stop()]


def give_up(state: State, attempt: int, reason: str, lost: bytes = b"") -> Step:
    """Pass: the attempt's timer ends at once everywhere (rule 8).

    Args:
        state: The state.
        attempt: The attempt that is given up.
        reason: In plain words.
        lost: Digest of the voted value whose bytes cannot be had, where that is why.
    """
    body = Pass(epoch=state.epoch, round=state.round, attempt=attempt, reason=reason, lost=lost)
    return replace(state, proposed=attempt, passed=state.passed | {attempt}, lost=lost), [Say(body)]


def commit(state: State, certified: Certified, now: float) -> Step:
    """Go to the next round; a contribution that is not in the value is kept while its lease goes on (rule 7)."""
    value = certified.value
    spent = any(
        entry.peer == state.me and any(included(chunk, i) for chunk in value.chunks)
        for i, entry in enumerate(value.roster)
    )
    after = state_after(state, certified, now)
    give = state.contribution
    kept = give is not None and give.tokens > 0 and after.lease == state.lease  # nothing is not kept
    kept = kept and state.rules.slot(after.round) == state.rules.slot(
        state.round
    )  # nor what is of another fragment
    if kept and not spent:
        after = replace(after, contribution=give)
    return after, [Commit(certified, spent), *recorded(state, after)]


def recorded(before: State, after: State) -> list[Effect]:
    """A value lists the boot nonce of this member: its vote record begins, before it promises anything (rule 9)."""
    return [persist(after)] if before.abstains and not after.abstains else []


def state_after(state: State, certified: Certified, now: float) -> State:
    """The state in which the round after a certified value begins."""
    value = certified.value
    return State(
        me=state.me,
        rules=state.rules,
        timing=state.timing,
        boot=state.boot,
        started=state.started,
        tip=certified,
        beacon_key=state.beacon_key,
        admission=state.admission,
        abstains=_abstains_after(state, value),
        leaving=state.leaving,
        gone=state.gone,
        idle=idle_after(state, value),
        began=now,
        attempt_began=now,
        evidence={
            peer: raw
            for peer, raw in state.evidence.items()
            if any(elector.peer == peer for elector in value.electorate)
        },
        observed=state.observed,
        orders=tuple(order for order in state.orders if order.message.number > value.order_number),
        past=_past_of(state),
    )


def _past_of(state: State) -> Past:
    """What this member heard of the round that it leaves."""
    proposals = () if state.proposal is None else (state.proposal,)
    votes = (sealed for held in state.votes.values() for sealed in held.values())
    heard: tuple[Sealed[Any], ...] = (*state.readys.values(), *state.closes.values(), *proposals, *votes)
    return Past.of((state.epoch, state.round), (e.peer for e in state.value.electorate), heard)


def _abstains_after(state: State, value: Value) -> bool:
    """Rule 9: its record begins with the value that lists this process, and ends with one that lists another."""
    listed = [entry.nonce for entry in value.boots if entry.peer == state.me]
    return state.boot not in listed if listed else state.abstains


def idle_after(state: State, value: Value) -> dict[str, int]:
    """Who gave nothing for its lease, with this value once more; who is not there at all is no idler (rule 13)."""
    if state.value.paused or value.begins or not state.votes_here:  # who has no vote leads nothing
        return dict(state.idle)
    gave = {entry.peer for entry in value.roster}
    idle = {peer: count for peer, count in state.idle.items() if peer not in gave}
    for peer in state.tip.leases.keys() - gave - state.gone:
        idle[peer] = idle.get(peer, 0) + 1
    return dict(sorted(idle.items(), key=lambda entry: -entry[1])[:MOST_KNOWN_IDLE])


def persist(state: State) -> Persist:
    """What of the state has to be on disk before a promise or a vote is said (rule 5)."""
    ballot = state.ballot
    return Persist(
        epoch=state.epoch,
        round=state.round,
        promised=state.promised,
        voted_attempt=ballot.attempt + 1 if ballot else 0,
        voted_value=ballot.value if ballot else b"",
        voted_close=ballot.close if ballot else b"",
    )


def adopt(state: State, attempt: int, now: float) -> Step:
    """Go to a higher attempt; its Ready is said by ``duties.speak``."""
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
