"""Rules taken away one by one, for tests only: each function patches the machine, or what is around it."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from diloco.rounds import certificate, duties, electorate, hearing, moves, planning, roster
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Persist
from diloco.rounds.planning import Choice
from diloco.rounds.state import State
from diloco.rounds.values import Elector, parse_value, value_digest
from tests.sim import process
from tests.sim.process import Process

Mutant = Callable[[], Sequence[AbstractContextManager[Any]]]


def no_lock_between_attempts() -> list[AbstractContextManager[Any]]:
    """A leader proposes freely, whatever was voted for before (rule 3)."""
    return [patch.object(planning, "choose", lambda *given: Choice("free"))]


def majority_of_the_next_electorate() -> list[AbstractContextManager[Any]]:
    """A quorum is one of those who said Ready, not of the electorate that the value before names."""

    def is_quorum(here: State, peers: Collection[str]) -> bool:
        present = {e.peer for e in here.value.electorate} & set(here.readys)
        return 2 * len(present & set(peers)) > len(present)

    anyone: Callable[..., bool] = lambda present, electors, tie_breaker: bool(present)  # noqa: E731
    return [
        patch.object(State, "is_quorum", is_quorum),
        *(patch.object(module, "is_quorum", anyone) for module in (planning, certificate, roster)),
    ]


def votes_forgotten_by_a_restart() -> list[AbstractContextManager[Any]]:
    """A process starts without what its disk knows of its promises and votes (rule 5)."""
    recover = process.recover

    def forgetful(*given: Any, promise: Persist | None, **named: Any) -> State:
        nothing = None if promise is None else Persist(0, -1, -1, 0, b"", b"")
        return recover(*given, promise=nothing, **named)

    return [patch.object(process, "recover", forgetful)]


def a_tie_breaker_that_follows_the_attempt() -> list[AbstractContextManager[Any]]:
    """The voter that decides between halves changes with the attempt."""

    def breaker(electors: Sequence[Elector], attempt: int) -> str:
        return electors[attempt % len(electors)].peer

    def is_quorum(here: State, peers: Collection[str]) -> bool:
        electors = here.value.electorate
        return electorate.is_quorum(peers, electors, breaker(electors, here.attempt))

    def quorum_of(tip: Any, readys: Any, attempt: int) -> bool:
        present = [p for p, ready in readys.items() if ready.attempt == attempt and not ready.lost_record]
        return electorate.is_quorum(present, tip.electorate, breaker(tip.electorate, attempt))

    def half(held: Collection[str], electors: Sequence[Elector], tie_breaker: str) -> bool:
        return 2 * len({e.peer for e in electors} & set(held)) >= len(electors)

    return [
        patch.object(State, "is_quorum", is_quorum),
        patch.object(planning, "quorum_of", quorum_of),
        *(patch.object(module, "is_quorum", half) for module in (certificate, roster)),
    ]


def votes_of_different_attempts_added_up() -> list[AbstractContextManager[Any]]:
    """A certificate may hold votes of several attempts for one value (rule 6)."""

    def decide(state: State, now: float) -> moves.Step:
        voters: dict[bytes, dict[str, Any]] = {}
        for (_, digest), votes in state.votes.items():
            voters.setdefault(digest, {}).update(votes)
        for digest, votes in voters.items():
            data = state.bodies.get(digest)
            if data is not None and state.is_quorum(set(votes)):
                raws = tuple(vote.raw for vote in votes.values())
                attempt = max(vote.message.attempt for vote in votes.values())
                certified = Certified(parse_value(data), data, value_digest(data), attempt, raws)
                return moves.commit(state, certified, now)
        return state, []

    return [patch.object(duties, "decide", decide)]


def a_close_before_the_leaders_own_vote_is_on_disk() -> list[AbstractContextManager[Any]]:
    """A leader says Close without having written its vote (rule 5)."""
    close = moves.close

    def hasty(state: State, attempt: int, data: bytes) -> moves.Step:
        state, effects = close(state, attempt, data)
        return state, [effect for effect in effects if not isinstance(effect, Persist)]

    def vote(state: State, now: float) -> moves.Step:
        before = state.ballot
        after, effects = real_vote(state, now)
        if before is not None and after.ballot is not None and before.attempt == after.ballot.attempt:
            effects = [effect for effect in effects if not isinstance(effect, Persist)]
        return after, effects

    real_vote = duties.vote
    return [patch.object(moves, "close", hasty), patch.object(duties, "vote", vote)]


def a_lost_record_that_is_not_noticed() -> list[AbstractContextManager[Any]]:
    """A node with a new disk votes, promises and leads at once (rule 9)."""
    recover = process.recover

    def careless(*given: Any, **named: Any) -> State:
        return replace(recover(*given, **named), abstains=False)

    return [patch.object(process, "recover", careless)]


def a_vote_that_is_not_a_promise() -> list[AbstractContextManager[Any]]:
    """Who goes to a higher attempt does not tell of the vote it gave in a lower one (rule 2)."""
    adopt = moves.adopt

    def lax(state: State, attempt: int, now: float) -> moves.Step:
        state, effects = adopt(state, attempt, now)
        return replace(state, ballot=None), effects

    return [patch.object(moves, "adopt", lax)]


def leaders_of_ones_own_view() -> list[AbstractContextManager[Any]]:
    """Whom a member believes dead leads last, for this member alone (rule 8)."""

    def leader(here: State, attempt: int) -> str:
        order = sorted(planning.leaders(here.rules, here.value), key=lambda peer: peer in here.gone)
        return order[attempt % len(order)]

    return [patch.object(State, "leader", leader)]


def a_taken_up_value_that_is_refused() -> list[AbstractContextManager[Any]]:
    """A value that has to be closed again is refused, as if it were free (rule 4)."""
    check = hearing.check_close

    def strict(state: State, close: Any) -> None:
        check(state, close)
        if state.forced:
            raise ValueError("orders have come since")

    return [patch.object(hearing, "check_close", strict)]


def a_timer_that_runs_without_a_quorum() -> list[AbstractContextManager[Any]]:
    """An attempt's timer runs although no quorum is ready for it (rule 8)."""

    def run_timer(state: State, now: float) -> moves.Step:
        if state.said < 0 or state.said != state.promised:
            return state, []
        timer = state.timer if state.timer is not None else now + 1.0
        state = replace(state, timer=timer)
        return duties.adopt_and_speak(state, state.promised + 1, now) if now >= timer else (state, [])

    return [patch.object(duties, "run_timer", run_timer)]


def certificates_not_repeated_to_the_late() -> list[AbstractContextManager[Any]]:
    """A message of a decided round is not answered, and nobody is asked for what was missed (rule 6)."""
    return [
        patch.object(Process, "_answer", lambda *given: None),
        patch.object(Process, "asked", lambda *given: None),
    ]


def a_drainer_that_leaves_at_once() -> list[AbstractContextManager[Any]]:
    """Who drains leaves with the value that names it, whoever else has that value (rule 14)."""
    return [patch.object(State, "is_quorum", _anyone_while_draining(State.is_quorum))]


def _anyone_while_draining(is_quorum: Callable[..., bool]) -> Callable[..., bool]:
    def asked(here: State, peers: Collection[str]) -> bool:
        return here.me in here.value.left or is_quorum(here, peers)

    return asked
