"""Rules of the orchestrator taken away one by one, for tests only."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from rl.orchestration import books, feeding, judging, leasing, machine, receiving
from rl.orchestration import state as states
from rl.orchestration.feeding import Batch
from rl.orchestration.rows import File, Kept
from rl.orchestration.state import State

Mutant = Callable[[], Sequence[AbstractContextManager[Any]]]


def a_window_that_is_one_too_wide() -> Sequence[AbstractContextManager[Any]]:
    """Staleness is compared before the increment."""

    def in_window(version: int, newest: int, window: int) -> bool:
        return newest - window - 1 <= version <= newest

    def useless(state: State, file: File, is_open: books.Open) -> bool:
        wider = replace(state.rules, window=state.rules.window + 1)
        return real(replace(state, rules=wider), file, is_open)

    real = machine._is_useless
    return [patch.object(states, "in_window", in_window), patch.object(machine, "_is_useless", useless)]


def pending_positions_are_left_out() -> Sequence[AbstractContextManager[Any]]:
    """A step does not wait for positions that are not decided."""
    fate = feeding.fate
    return [patch.object(feeding, "fate", lambda *given: fate(*given).replace("pending", "given-up"))]


def files_go_when_they_are_trained_on() -> Sequence[AbstractContextManager[Any]]:
    """What has been accepted is deleted before a value names it."""
    useless = machine._is_useless

    def hasty(state: State, file: File, is_open: books.Open) -> bool:
        first = state.wanted[0].position if state.wanted else -1
        return useless(state, file, is_open) or any(group.position == first for group in file.groups)

    return [patch.object(machine, "_is_useless", hasty)]


def places_are_not_written() -> Sequence[AbstractContextManager[Any]]:
    """Failed attempts are remembered in memory only."""
    changes = Kept.changes

    def forgetful(self: Kept, before: Kept) -> Any:
        put, gone = changes(self, before)
        return tuple(row for row in put if type(row).__name__ != "Place"), gone

    return [patch.object(Kept, "changes", forgetful)]


def refused_files_hold_positions() -> Sequence[AbstractContextManager[Any]]:
    """A file is trained on whatever its verdict was."""
    refuse = judging.refuse

    def lenient(state: State, file: File, now: float) -> Any:
        state, effects = refuse(state, file, now)
        kept = state.kept.files[file.key]
        return state.with_row(replace(kept, state="accepted")), effects

    return [patch.object(judging, "refuse", lenient)]


def a_ban_leaves_what_was_accepted() -> Sequence[AbstractContextManager[Any]]:
    """Groups of a banned worker are trained on."""

    def soft(state: State, worker: str, why: str) -> State:
        return state.with_row(replace(state.record(worker), banned=why))

    return [patch.object(judging, "ban", soft)]


def a_file_is_taken_whatever_is_in_it() -> Sequence[AbstractContextManager[Any]]:
    """Versions, positions and sizes of groups are believed."""
    return [patch.object(receiving, "_wrong", lambda *given: "")]


def no_bound_on_what_is_generated_ahead() -> Sequence[AbstractContextManager[Any]]:
    """Refused files are kept for ever."""
    sweep = machine.sweep

    def hoard(state: State) -> Any:
        rules = state.rules
        state, gone = sweep(replace(state, rules=replace(rules, most_refused=10_000)))
        return replace(state, rules=rules), gone

    return [patch.object(machine, "sweep", hoard)]


def back_pressure_on_the_running_round() -> Sequence[AbstractContextManager[Any]]:
    """A full queue stops what the running round needs, too."""
    choose = leasing._choose

    def blocked(state: State, worker: str, most: int) -> Any:
        if len(state.holders()) >= state.rules.most_waiting:
            return (), "queue-full", "Full."
        return choose(state, worker, most)

    return [patch.object(leasing, "_choose", blocked)]


def leases_without_an_end() -> Sequence[AbstractContextManager[Any]]:
    """A worker that is gone keeps its positions."""
    return [patch.object(leasing, "expire", lambda state, works: state)]


def a_silent_validator_is_waited_for() -> Sequence[AbstractContextManager[Any]]:
    """Nobody else is asked."""
    on_validators = judging.on_validators

    def patient(state: State, event: Any, now: float) -> Any:
        asked = dict(state.asked)
        state, effects = on_validators(state, event, now)
        return replace(state, asked={**asked, **state.asked}), effects

    overdue = judging.overdue

    def deaf(state: State, now: float) -> Any:
        asked = state.asked
        state, effects = overdue(state, now)
        return replace(state, asked=asked), effects

    return [
        patch.object(judging, "overdue", deaf),
        patch.dict(machine.HANDLERS, {machine.Validators: patient}),
    ]


def filtered_positions_are_never_made_again() -> Sequence[AbstractContextManager[Any]]:
    """A lease that came to nothing stays as it is."""
    return [patch.object(feeding, "reopen", lambda state: state)]


def each_trainer_plans_for_itself() -> Sequence[AbstractContextManager[Any]]:
    """What others will be leased is not foreseen."""
    plan = books.plan

    def alone(value: Any, peer: str, **named: Any) -> Any:
        return plan(
            replace(value, leases=tuple(each for each in value.leases if each.peer == peer)), peer, **named
        )

    return [patch.object(states, "plan", alone)]


def steps_overlap() -> Sequence[AbstractContextManager[Any]]:
    """A step begins one position before the last one's end."""
    real = feeding.next_batch

    def overlapping(state: State, lease: Any, done: int, size: int) -> Batch | None:
        return real(state, lease, max(0, done - 1), size)

    from tests.rl.orchestration import world

    return [patch.object(world, "next_batch", overlapping)]


MUTANTS: tuple[Mutant, ...] = (
    a_window_that_is_one_too_wide,
    pending_positions_are_left_out,
    files_go_when_they_are_trained_on,
    places_are_not_written,
    refused_files_hold_positions,
    a_ban_leaves_what_was_accepted,
    a_file_is_taken_whatever_is_in_it,
    no_bound_on_what_is_generated_ahead,
    back_pressure_on_the_running_round,
    leases_without_an_end,
    a_silent_validator_is_waited_for,
    filtered_positions_are_never_made_again,
    each_trainer_plans_for_itself,
    steps_overlap,
)
