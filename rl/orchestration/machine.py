"""The orchestrator of one trainer: ``advance(state, event, now) -> (state, effects)``.

Rules of this file:

1. Nothing here reads a clock, a file, a socket or randomness: time is the argument ``now`` (seconds), chance comes in
   events.
2. Every change of a row is in the ``Save`` that is the first effect, and ``rebuild`` of the value and the rows gives
   the state again. What is not in a row (who was asked, since when) is forgotten by a restart, and done again.

Theory of operation. A certified value says which positions this trainer trains on in the running round, and by the
same rule which ones it will (``books.py``). A position that nobody works on is leased to a worker that asks
(``leasing.py``); its answer is a file (``receiving.py``), which validators judge (``judging.py``). An accepted group
whose tokens are in the window is trained on when its turn comes (``feeding.py``). It is consumed when a value says so,
and only then is the file deleted (``sweep``).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from diloco.rounds.values import Value
from rl.orchestration import feeding, judging, leasing, receiving
from rl.orchestration.books import Open
from rl.orchestration.events import (
    Abandoned,
    Appealed,
    Asked,
    Broken,
    Certified,
    Delete,
    Effect,
    Event,
    Found,
    Gone,
    Judged,
    Lost,
    Planted,
    Published,
    Save,
    Tick,
    Uploaded,
    Validators,
)
from rl.orchestration.rows import File, Kept
from rl.orchestration.rules import Rules
from rl.orchestration.state import State, Step


def advance(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """Take one event.

    Args:
        state: The state before.
        event: What happened.
        now: Seconds, never decreasing in one life of the orchestrator.

    Returns:
        The state after, and the effects, to be carried out in this order.
    """
    before = state.kept
    state, effects = HANDLERS[type(event)](state, event, now)
    state, gone = _settle(state)
    state, asked = judging.assign(state, now)
    put, removed = state.kept.changes(before)
    saved: list[Effect] = [Save(put, removed)] if put or removed else []
    deleted: list[Effect] = [Delete(gone)] if gone else []
    return state, (*saved, *effects, *asked, *deleted)


def rebuild(me: str, rules: Rules, value: Value, kept: Kept, now: float) -> tuple[State, tuple[Effect, ...]]:
    """The state of an orchestrator that begins with what is on disk, and the files that need not be there.

    Args:
        me: This trainer.
        rules: What the run fixes.
        value: The newest certified value.
        kept: The rows.
        now: Seconds; what is open is given its whole time again.
    """
    state = State(me, rules, value, (), kept).at_value(value)
    for work in kept.works.values():
        if not work.late:
            state = state.with_timer("work", work.key, now, rules.work_within)
    for file in kept.files.values():
        sides = {opinion.accepted for opinion in file.opinions if not opinion.undecided}
        unsure = len(sides) > 1 or any(opinion.undecided for opinion in file.opinions)
        if file.planted or file.state in ("refused", "appealed") or (file.state == "waiting" and unsure):
            state = state.with_timer("file", file.key, now, rules.appeal_within)
    return advance(state, Certified(value), now)


def _on_certified(state: State, event: Certified, now: float) -> Step:
    return state.at_value(event.value), []


def _on_published(state: State, event: Published, now: float) -> Step:
    return replace(state, published=max(event.version, state.published or 0)), []


def _on_tick(state: State, event: Tick, now: float) -> Step:
    over = [
        state.kept.works[key]
        for kind, key in sorted(state.timers)
        if kind == "work" and state.timers[(kind, key)] <= now
    ]
    return judging.overdue(leasing.expire(state, over), now)


HANDLERS: dict[type, Callable[[State, Any, float], Step]] = {
    Certified: _on_certified,
    Published: _on_published,
    Asked: leasing.on_asked,
    Abandoned: leasing.on_abandoned,
    Gone: leasing.on_gone,
    Uploaded: receiving.on_uploaded,
    Broken: receiving.on_broken,
    Lost: receiving.on_lost,
    Found: receiving.on_found,
    Planted: receiving.on_planted,
    Judged: judging.on_judged,
    Validators: judging.on_validators,
    Appealed: judging.on_appealed,
    Tick: _on_tick,
}
"""What each event does."""


def _settle(state: State) -> tuple[State, tuple[bytes, ...]]:
    """What follows from value and rows alone, after any event and after a restart alike."""
    for worker in state.kept.workers.values():
        ordered = worker.peer in state.value.banned
        if ordered and not worker.banned:
            state = judging.ban(state, worker.peer, leasing.BY_ORDER)
        elif worker.banned == leasing.BY_ORDER and not ordered:
            state = state.with_row(replace(worker, banned=""))
    state, gone = sweep(state)
    return feeding.reopen(state), gone


def sweep(state: State) -> tuple[State, tuple[bytes, ...]]:
    """Forget what a certified value has made useless, and nothing else.

    Returns:
        The state without it, and the digests of the files to be deleted.
    """
    is_open = Open(state.value)
    for place in list(state.kept.places.values()):
        if place.position not in is_open:
            state = state.without(place)
    for work in list(state.kept.works.values()):
        too_old = work.late and work.version < state.oldest(state.policy)
        if too_old or not any(position in is_open for position in work.positions):
            state = leasing.close(state, work)
    useless = [file for file in state.kept.files.values() if _is_useless(state, file, is_open)]
    unjudged = [file for file in useless if file.state in ("waiting", "appealed")]
    refused = [f for f in state.kept.files.values() if f.state == "refused"]
    dropped = [file for file in useless if file.state == "accepted"]
    for some in (unjudged, refused):
        some.sort(key=lambda file: (file.version, file.key), reverse=True)
        dropped += some[state.rules.most_refused :]
    for file in dropped:
        timers = {key: at for key, at in state.timers.items() if key != ("file", file.key)}
        asked = {key: until for key, until in state.asked.items() if key[0] != file.key}
        silent = {key: count for key, count in state.silent.items() if key[0] != file.key}
        state = replace(state.without(file), timers=timers, asked=asked, silent=silent)
    return state, tuple(file.digest for file in dropped)


def _is_useless(state: State, file: File, is_open: Open) -> bool:
    """Whether no round to come can train on anything in a file: consumed, or older than every window to come."""
    if file.planted:
        return False
    oldest = state.oldest(state.policy)
    return not any(group.position in is_open and group.oldest >= oldest for group in file.groups)
