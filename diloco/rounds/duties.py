"""What a member of a round does by itself, as soon as its state allows: decide, speak, follow, give up, vote, lead.

Each is a rule of ``docs/rounds.md``; the machine tries them in the order of this file until none has anything to do.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from diloco.rounds import moves, planning, roster
from diloco.rounds.beacon import commitment_to, nonce_of
from diloco.rounds.certificate import certify
from diloco.rounds.events import (
    Effect,
    Fetch,
    Observed,
    Resync,
    Say,
)
from diloco.rounds.evidence import contradiction
from diloco.rounds.moves import Step, give_up
from diloco.rounds.rescue import voted
from diloco.rounds.state import Ballot, State
from diloco.rounds.statements import AskReset, Close, Proposal, Ready, Vote
from diloco.rounds.values import value_digest
from protocol.envelope import Sealed
from protocol.errors import NodeError
from protocol.messages import spec_of

_FRAMING = 8  # bytes around each Ready of a proposal
_ROOM = spec_of(Proposal).max_bytes - 1024
_MOST_SHOWN, _EVIDENCE_ROOM = 4, 1 << 20  # pieces of evidence in one proposal, and their bytes together
_MOST_LISTED = 4000  # Readys of one proposal, so that the value's lists hold who may follow from them


def decide(state: State, now: float) -> Step:
    """Rule 6: votes of a quorum, for one value, in one attempt."""
    for (attempt, digest), votes in state.votes.items():
        data = state.bodies.get(digest)
        if data is not None and state.is_quorum(set(votes)):
            try:
                certified = certify(state.value, state.tip.digest, data, attempt, votes.values())
            except NodeError:  # a quorum signed what does not follow; nothing comes of it here
                continue
            return moves.commit(state, certified, now)
    return state, []


def speak(state: State, now: float) -> Step:
    """Rule 2: say Ready once the state is there and the lease is trained, and again for every new attempt."""
    if state.base is None or not _has_something_to_say(state):
        return state, []
    if state.value.paused and state.said < 0:  # the time that it waited is nobody's delay
        state = replace(state, began=now, arrivals=dict.fromkeys(state.arrivals, 0.0))
    attempt = max(state.promised, state.recovered + 1 if state.recovered >= 0 else 0)
    if state.promised < 0:
        attempt = max(attempt, state.highest_seen())
    if state.said >= attempt:
        return state, []
    state, effects = moves.adopt(state, attempt, now)
    state = replace(state, said=attempt)
    give = state.contribution
    elector = any(e.peer == state.me for e in state.value.electorate)
    seen = state.observed if elector else Observed()  # of those without a vote nobody asks it
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
        admission=b"" if elector else state.admission,
        orders=tuple(order.raw for order in state.orders),
        beacon_commitment=commitment_to(_nonce(state, state.round + 1)),
        reveal=_nonce(state, state.round),
        started=state.started,
        rates=seen.rates,
        unshown=seen.unshown,
        convicted=seen.convicted,
    )
    if state.abstains:  # a promise on disk would pass for a vote record after the next restart (rule 9)
        return state, [*effects, Say(ready)]
    return state, [*effects, moves.persist(state), Say(ready)]


def _has_something_to_say(state: State) -> bool:
    """Rule 11: where the run is paused a round is decided once somebody holds an order."""
    if state.value.paused:
        return bool(state.orders)
    return state.lease is None or state.contribution is not None


def _nonce(state: State, round_number: int) -> bytes:
    return nonce_of(state.beacon_key, state.rules.run, state.epoch, round_number)


def follow(state: State, now: float) -> Step:
    """Rule 8: Readys of higher attempts from a third of the voters move a member at once. Rule 12: another base."""
    here = state.of_voters()
    higher = sorted(ready.attempt for ready in here.values() if ready.attempt > state.attempt)
    if higher and 3 * len(higher) >= len(state.value.electorate):
        return adopt_and_speak(state, higher[-1], now)
    base = roster.base_of(state.value, here)
    if base is not None and state.base is not None and base != state.base and state.resynced != base:
        return replace(state, resynced=base), [Resync(base)]
    return state, []


def adopt_and_speak(state: State, attempt: int, now: float) -> Step:
    """Go to a higher attempt and promise it."""
    state, effects = moves.adopt(state, attempt, now)
    state, more = speak(state, now)
    return state, effects + more


def run_timer(state: State, now: float) -> Step:
    """Rule 8: an attempt's timer runs only while a quorum is ready for it or for a later one."""
    if state.said < 0 or state.said != state.promised:
        return state, []
    attempt = state.promised
    if not state.is_quorum(state.ready_for(attempt)):
        return (state if state.timer is None else replace(state, timer=None)), []
    timer = state.timer
    if timer is None:
        timer = max(now, state.ready_deadline()) + state.attempt_length()
    if state.leader(attempt) in state.gone:
        timer = min(timer, max(now, state.attempt_began) + state.timing.grace.total_seconds())
    if timer != state.timer:
        state = replace(state, timer=timer)
    passed = attempt in state.passed and len(state.passed) <= len(state.value.electorate)
    if now >= timer or passed:
        return adopt_and_speak(state, max(attempt + 1, state.highest_seen()), now)
    return state, []


def vote(state: State, now: float) -> Step:
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
    vote = Vote(epoch=state.epoch, round=state.round, attempt=attempt, value=digest, boot=state.boot)
    return state, [moves.persist(state), Say(vote)]


def lead(state: State, now: float) -> Step:
    """Rules 3 and 4: what the leader of the current attempt does. It need not be ready itself (rule 13)."""
    attempt = state.attempt
    if state.leader(attempt) != state.me or state.proposed >= attempt or attempt in state.passed:
        return state, []
    here = {peer: ready for peer, ready in state.of_voters().items() if ready.attempt == attempt}
    if state.said == attempt and state.me not in here:  # its own Ready is on its way to itself
        return state, []
    if not planning.quorum_of(state.value, here, attempt):
        return state, []
    choice = planning.choose(state.rules, state.value, state.tip.digest, here)
    listed = state.listed(attempt)
    if choice.kind == "free" and _waits(state, listed, now):
        return state, []
    if not state.votes_here or attempt <= state.recovered:
        return give_up(state, attempt, "restarted or without its vote record")
    if choice.kind == "torn":
        state, effects = _publish_both(state, listed)
        state, more = give_up(state, attempt, "two values reported for one attempt")
        return state, effects + more
    if choice.kind == "forced":
        return take_up(state, attempt, choice.value, listed, now)
    if roster.base_of(state.value, listed) is None:
        return state, []
    return propose(state, attempt, listed, now, free=True)


def _waits(state: State, listed: Mapping[str, Ready], now: float) -> bool:
    """Rule 13: whether a leader that is free to propose waits for Readys yet, its own among them."""
    if state.is_early(now):
        return True
    return bool(state.missing()) and (now < state.ready_deadline() or _would_stop(state, listed))


def ask(state: State, now: float) -> Step:
    """Rule 15: a voter that sees no way to a decision for long asks for a reset."""
    if state.said < 0 or not any(elector.peer == state.me for elector in state.value.electorate):
        return state, []
    if not state.blocked():
        return (replace(state, stuck=None) if state.stuck is not None else state), []
    stuck = now if state.stuck is None else state.stuck
    state = replace(state, stuck=stuck)
    data = voted(state)
    if data and (digest := value_digest(data)) not in state.held | state.fetching | state.unheld:
        fetch = Fetch(data, state.plans.get(digest))  # a reset may go on from it
        return replace(state, fetching=state.fetching | {digest}), [fetch]
    if state.asked or now - stuck < state.timing.lost.total_seconds():
        return state, []
    ballot = state.ballot
    body = AskReset(
        epoch=state.epoch,
        round=state.round,
        attempt=state.attempt,
        tip=state.tip.digest,
        base=state.base or b"",
        boot=state.boot,
        lost_record=state.abstains,
        voted_attempt=ballot.attempt + 1 if ballot else 0,
        voted_value=value_digest(ballot.value) if ballot else b"",
    )
    return replace(state, asked=True), [Say(body)]


def _publish_both(state: State, listed: Mapping[str, Ready]) -> Step:
    """Rule 3: two values reported for one attempt, each with its leader's Close, convict that leader."""
    first: dict[int, Sealed[Close]] = {}
    effects: list[Effect] = []
    for ready in listed.values():
        with suppress(NodeError):
            close = state.rules.unseal_close(ready.voted_close)
            known = first.setdefault(close.message.attempt, close)
            state, more = moves.accuse(state, contradiction(known, close))
            effects += more
    return state, effects


def _would_stop(state: State, listed: Mapping[str, Ready]) -> bool:
    """Whether of the listed voters nobody stays, while another is alive: who leaves does not end the run for it."""
    voters = {elector.peer for elector in state.value.electorate}
    stays = any(peer in voters and not ready.leaving for peer, ready in listed.items())
    return not stays and bool(voters - set(listed) - state.gone)


def propose(state: State, attempt: int, listed: Mapping[str, Ready], now: float, free: bool = False) -> Step:
    """Say the Readys on which the attempt rests: as many as a message holds, voters first, long ones last."""
    voters = {e.peer for e in state.value.electorate}
    sizes = {peer: len(state.readys[peer].raw) + _FRAMING for peer in listed}
    chosen: dict[str, Ready] = {}
    evidence = _evidence(state) if free else ()
    room = _ROOM - sum(map(len, evidence))
    for peer in sorted(listed, key=lambda peer: (peer not in voters, sizes[peer], peer))[:_MOST_LISTED]:
        room -= sizes[peer]
        if room < 0:
            break
        chosen[peer] = listed[peer]
    if not planning.quorum_of(state.value, chosen, attempt):
        return give_up(state, attempt, "the Readys of a quorum are too long for one proposal")
    envelopes = tuple(state.readys[peer].raw for peer in sorted(chosen))
    body = Proposal(
        epoch=state.epoch, round=state.round, attempt=attempt, readys=envelopes, evidence=evidence
    )
    if state.said == attempt:
        return replace(state, proposed=attempt), [Say(body)]
    state, effects = moves.adopt(state, attempt, now)  # a restart must not propose again
    return replace(state, proposed=attempt), [*effects, moves.persist(state), Say(body)]


def _evidence(state: State) -> tuple[bytes, ...]:
    """What a proposal shows against voters that still have a seat: the shortest, so that Readys find room."""
    shown: list[bytes] = []
    for raw in sorted(state.evidence.values(), key=lambda raw: (len(raw), raw))[:_MOST_SHOWN]:
        if sum(map(len, shown)) + len(raw) <= _EVIDENCE_ROOM:
            shown.append(raw)
    return tuple(shown)


def take_up(state: State, attempt: int, data: bytes, listed: Mapping[str, Ready], now: float) -> Step:
    """Close the voted value unchanged; without its bytes look for a quorum without that vote, else pass."""
    digest = value_digest(data)
    if digest in state.held:
        return propose(state, attempt, listed, now)
    if digest in state.unheld:
        others = {
            peer: ready
            for peer, ready in listed.items()
            if not planning.has_voted(state.rules, state.value, state.tip.digest, peer, ready)
        }
        if (
            planning.quorum_of(state.value, others, attempt)
            and roster.base_of(state.value, others) is not None
        ):
            return propose(state, attempt, others, now)
        return give_up(state, attempt, "bytes lost", digest)
    if digest in state.fetching:
        return state, []
    return replace(state, fetching=state.fetching | {digest}), [Fetch(data, state.plans.get(digest))]
