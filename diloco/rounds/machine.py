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

from diloco.rounds import duties, intake
from diloco.rounds.events import (
    Arrived,
    Decision,
    Effect,
    Event,
    ResetCame,
    StateReady,
    Tick,
)
from diloco.rounds.state import State


def advance(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """Take one event.

    Args:
        state: The state before.
        event: What happened.
        now: Seconds on the member's monotonic clock, never decreasing.

    Returns:
        The state after, and the effects to be carried out in this order.
    """
    if state.halted and not isinstance(event, ResetCame):
        return state, ()
    if state.finished and not isinstance(event, Arrived | Decision | StateReady | ResetCame):
        return state, ()
    before = state
    state, effects = intake.HANDLERS[type(event)](state, event, now)
    if state is before and not isinstance(event, Tick):
        return state, tuple(effects)  # what time alone makes due comes with the next tick
    while not state.finished and not state.halted:
        for rule in (duties.decide, duties.speak, duties.follow, duties.run_timer, duties.vote, duties.lead):
            state, more = rule(state, now)
            effects += more
            if more:
                break
        else:
            break
    if isinstance(event, Tick) and not state.finished and not state.halted:
        state, more = duties.ask(state, now)
        effects += more
    return state, tuple(effects)
