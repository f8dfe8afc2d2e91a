"""Why a member waits, in plain words: the one object that feeds log, status and demo view."""

from dataclasses import dataclass

from diloco.rounds.leases import samples_of
from diloco.rounds.state import State


@dataclass(frozen=True)
class Waiting:
    """What a member is doing or waiting for.

    Attributes:
        phase: ``training``, ``ready``, ``reducing``, ``voting``, ``syncing``, ``paused``, ``halted`` or ``finished``.
        reason: Stable reason code.
        sentence: One sentence with names and numbers.
        until: Deadline, seconds on the member's monotonic clock; None where there is none.
        missing: The peers waited for.
    """

    phase: str
    reason: str
    sentence: str
    until: float | None = None
    missing: tuple[str, ...] = ()


def waiting(state: State, now: float) -> Waiting:
    """Describe what a member waits for.

    Args:
        state: The machine's state.
        now: Seconds on the member's monotonic clock.
    """
    number = state.round
    if state.finished:
        return Waiting("finished", "finished", f"The run ended with round {number - 1}; serving the result.")
    if state.halted:
        return Waiting("halted", state.halted, HALTED[state.halted].format(round=number))
    if state.base is None:
        return Waiting("syncing", "state", f"Preparing the outer state of round {number}.")
    if state.value.paused and not state.orders:
        return Waiting("paused", "paused", f"The operator paused the run before round {number}.")
    if state.lease is not None and state.contribution is None and not state.value.paused:
        return Waiting(
            "training", "training", f"Training on {samples_of(state.lease)} samples for round {number}."
        )
    attempt = state.attempt
    if not any(elector.peer == state.me for elector in state.value.electorate):
        voters = len(state.value.electorate)
        sentence = (
            f"Round {number}: this member has given its part, waiting for the {voters} voters to decide."
        )
        return Waiting("ready", "decision", sentence)
    if state.abstains:
        sentence = (
            f"Round {number}: the record of this node's votes is gone, so it neither votes nor leads until a decided "
            "round or a reset lists this start of it."
        )
        return Waiting("ready", "abstains", sentence, _asks_at(state))
    leader = state.leader(attempt)
    if attempt in state.closes or any(a == attempt for a, _ in state.votes):
        have = max((len(v) for (a, _), v in state.votes.items() if a == attempt), default=0)
        silent = _silent(state, attempt)
        sentence = (
            f"Round {number}: {have} of {len(state.value.electorate)} votes are in, led by {_name(leader)}."
        )
        return Waiting("voting", "votes", sentence, state.timer, silent)
    if state.plan is not None:
        sentence = (
            f"Averaging round {number} with {len(state.plan.roster)} contributors, led by {_name(leader)}."
        )
        return Waiting("reducing", "reduce", sentence, state.timer)
    absent = _absent(state, attempt)
    if not state.is_quorum({e.peer for e in state.value.electorate} - set(absent)):
        voters = len(state.value.electorate)
        sentence = (
            f"Round {number}: {voters - len(absent)} of {voters} voters are ready, no quorum; "
            f"missing {_names(absent)}.{_asked(state)}"
        )
        return Waiting("ready", "quorum", sentence, _asks_at(state), absent)
    if state.lost:
        sentence = (
            f"Round {number}: a value was voted for whose bytes nobody here has, and its contributions are not all "
            f"there either; waiting for {_names(absent) or 'a reset'}.{_asked(state)}"
        )
        return Waiting("ready", "bytes-lost", sentence, _asks_at(state), absent)
    if state.blocked() == "divergence":
        bases = len({ready.message.base for ready in state.readys.values()})
        sentence = (
            f"Round {number}: {bases} different states are reported and none can reach a quorum any more; "
            f"the operator has to name one by a reset.{_asked(state)}"
        )
        return Waiting("ready", "divergence", sentence, _asks_at(state))
    missing = tuple(state.missing())
    if missing:
        left = max(0.0, state.ready_deadline() - now)
        sentence = (
            f"Round {number}: {len(state.expected()) - len(missing)} of {len(state.expected())} members ready, "
            f"waiting at most {left:.0f} s more for {_names(missing)}."
        )
        return Waiting("ready", "readys", sentence, state.ready_deadline(), missing)
    sentence = f"Round {number}: everyone is ready, waiting for the proposal of {_name(leader)}."
    return Waiting("ready", "proposal", sentence, state.timer, (leader,))


HALTED = {
    "two-certificates": "Before round {round}, two values of one round are certified; a reset has to name one.",
    "two-resets": "Before round {round}, two resets of one epoch came; only the operator's root key ends this.",
    "superseded": "A younger process has this node's key; this one takes no part any more.",
}
"""Why a member decides nothing, in words."""


def _asks_at(state: State) -> float | None:
    """When a member that sees no way to a decision asks for a reset; None where it has, or may yet see one."""
    if state.stuck is None or state.asked:
        return None
    return state.stuck + state.timing.lost.total_seconds()


def _asked(state: State) -> str:
    return f" {len(state.asks)} voters have asked for a reset." if state.asks else ""


def _name(peer: str) -> str:
    return peer[-6:]


def _names(peers: tuple[str, ...]) -> str:
    return ", ".join(_name(peer) for peer in peers[:4]) + (" and others" if len(peers) > 4 else "")


def _absent(state: State, attempt: int) -> tuple[str, ...]:
    """Voters that count for no quorum of an attempt yet, the dead among them."""
    ready = {
        peer
        for peer, sealed in state.readys.items()
        if sealed.message.attempt >= attempt and not sealed.message.lost_record
    }
    return tuple(sorted(e.peer for e in state.value.electorate if e.peer not in ready))


def _silent(state: State, attempt: int) -> tuple[str, ...]:
    voted = {peer for (a, _), votes in state.votes.items() if a == attempt for peer in votes}
    return tuple(sorted(e.peer for e in state.value.electorate if e.peer not in voted | state.gone))
