"""Leases of work: who gets what, in counter order, whole groups; what comes of leases that are not answered."""

from collections.abc import Sequence
from dataclasses import replace

from diloco.rounds.waiting import Waiting
from rl.orchestration.events import Abandoned, Asked, Effect, Give, Gone, Tell
from rl.orchestration.rows import RECENT, Work, Worker
from rl.orchestration.state import State, Step, fail
from rl.work.standing import Standing

BY_ORDER = "The operator of the run has banned this node."
"""Why a worker is banned that a certified value bans."""


def on_asked(state: State, event: Asked, now: float) -> Step:
    """Give a lease of work, a lost one again, or say why not and when to ask again."""
    record = state.record(event.worker)
    if why := banned(state, event.worker):
        return state, [Tell(event.worker, Waiting("refused", "banned", why))]
    if event.worker not in state.kept.workers:
        state, admitted = _make_room(state)
        if not admitted:
            most = state.rules.most_workers
            return state, [_wait(state, event.worker, now, "pool-full", f"{most} workers are known already.")]
        state = state.with_row(record)
    state = replace(state, seen={**state.seen, event.worker: now})
    open_works = state.works_of(event.worker)
    lost = [work for work in open_works if work.counter not in event.holding and not work.late]
    if lost:
        return state, [Give(lost[0], state.timers[("work", lost[0].key)])]
    in_time = [work for work in open_works if not work.late]
    if len(in_time) >= state.rules.open_works:
        sentence = f"{len(in_time)} leases of this worker are open, and more are not given at a time."
        return state, [_wait(state, event.worker, now, "open-leases", sentence)]
    if (refused := _closed(state)) is not None:
        return state, [_wait(state, event.worker, now, *refused)]
    positions, reason, sentence = _choose(state, event.worker, event.most)
    if not positions:
        return state, [_wait(state, event.worker, now, reason, sentence)]
    assert state.published is not None
    work = Work(event.worker, record.counter, min(state.published, state.policy), positions)
    state = _take_over(state, positions)
    state = state.with_row(work).with_row(replace(state.record(event.worker), counter=record.counter + 1))
    state = state.with_timer("work", work.key, now, state.rules.work_within)
    return state, [Give(work, state.timers[("work", work.key)])]


def on_abandoned(state: State, event: Abandoned, now: float) -> Step:
    """Take a lease back; somebody else gets its positions."""
    work = state.kept.works.get(f"{event.worker}/{event.counter}")
    if work is None:
        return state, []
    return _give_up(state, work, "x"), []


def on_gone(state: State, event: Gone, now: float) -> Step:
    """A worker that is gone does not answer: its leases are over."""
    seen = {worker: at for worker, at in state.seen.items() if worker != event.worker}
    return expire(replace(state, seen=seen), [w for w in state.works_of(event.worker) if not w.late]), []


def expire(state: State, works: Sequence[Work]) -> State:
    """Leases that are over: late until somebody else takes one of their positions."""
    for work in works:
        state = end_of(state, work.worker, "l").with_row(replace(work, late=True))
        for position in work.positions:
            state = fail(state, position, work.worker)
        timers = {key: at for key, at in state.timers.items() if key != ("work", work.key)}
        state = replace(state, timers=timers)
    return state


def end_of(state: State, worker: str, how: str) -> State:
    """Note how a worker's lease ended."""
    record = state.record(worker)
    return state.with_row(replace(record, recent=(record.recent + how)[-RECENT:]))


def close(state: State, work: Work) -> State:
    """Forget an open lease."""
    timers = {key: at for key, at in state.timers.items() if key != ("work", work.key)}
    return replace(state.without(work), timers=timers)


def _give_up(state: State, work: Work, how: str) -> State:
    if not work.late:  # else it has been counted already
        state = end_of(state, work.worker, how)
        for position in work.positions:
            state = fail(state, position, work.worker)
    return close(state, work)


def _closed(state: State) -> tuple[str, str] | None:
    """Why nobody gets work now: reason and sentence."""
    number = state.policy
    if state.value.finished or not state.value.leases:
        return "finished", f"The run ended with round {number - 1}."
    if state.value.paused:
        return "paused", f"The operator paused the run before round {number}."
    if not state.wanted:
        return "no-lease", f"This trainer has no positions to train in round {number}."
    if state.published is None:
        return "unpublished", "No policy version has been published yet."
    return None


def _choose(state: State, worker: str, most: int) -> tuple[tuple[int, ...], str, str]:
    """Positions for a worker, nearest first; without any, a reason and a sentence why not."""
    rules, record = state.rules, state.record(worker)
    assert state.published is not None
    version = min(state.published, state.policy)
    held, rounds = state.holders(), state.rounds_of()
    free = [
        each for each in state.wanted if each.position not in held and not state.place(each.position).given_up
    ]
    usable = [each for each in free if state.counts(each.position, version, version, rounds)]
    if free and not usable:
        sentence = (
            f"Round {free[0].round} needs policy version {state.oldest(free[0].round)} or newer; "
            f"version {version} is the newest that is published."
        )
        return (), "unpublished", sentence
    if not usable:
        ahead = len(state.wanted)
        sentence = f"All {ahead} positions up to round {state.policy + rules.window} are in work or done."
        return (), "nothing-to-do", sentence
    outstanding = len(held)
    room = max(0, rules.most_waiting - outstanding)
    near = [each for each in usable if each.round == state.policy]
    allowed = near + [each for each in usable if each.round != state.policy][: max(0, room - len(near))]
    if not allowed:
        sentence = f"{outstanding} groups are in work or wait to be trained on, and at most {rules.most_waiting} may."
        return (), "queue-full", sentence
    count = min(rules.groups_per_work, most, len(allowed))
    if state.standing(record) is not Standing.ESTABLISHED:
        quota = _quota(state, worker)
        if quota <= 0:
            sentence = (
                f"Positions of this worker without a verdict: {state.unjudged(worker)}. A new identity has at most "
                f"{rules.newcomer_positions} of them until {rules.trusted_after} were accepted "
                f"({record.accepted} so far), and all new ones together a small share."
            )
            return (), "quota", sentence
        count = min(count, quota)
    others = [each for each in allowed if worker not in state.place(each.position).failed]
    chosen = sorted((others or allowed)[:count], key=lambda each: (each.round, allowed.index(each)))
    return tuple(each.position for each in chosen), "", ""


def _quota(state: State, worker: str) -> int:
    """Positions that a new or suspicious worker may still be given."""
    rules = state.rules
    own = rules.newcomer_positions - state.unjudged(worker)
    workers = state.kept.workers.values()
    if not any(state.standing(each) is Standing.ESTABLISHED for each in workers):
        return own  # somebody has to be first
    together = sum(state.unjudged(each.peer) for each in workers if state.standing(each) is Standing.NEW)
    shared = max(rules.newcomer_positions, int(rules.newcomer_share * len(state.wanted))) - together
    return min(own, shared)


def _take_over(state: State, positions: Sequence[int]) -> State:
    """Late leases of which somebody else gets a position can no longer be answered."""
    for work in list(state.kept.works.values()):
        if work.late and set(work.positions) & set(positions):
            state = state.without(work)
    return state


def _make_room(state: State) -> tuple[State, bool]:
    """Room for one more identity; who never gave anything and is not at work is forgotten first."""
    if len(state.kept.workers) < state.rules.most_workers:
        return state, True
    busy = {work.worker for work in state.kept.works.values()}
    busy |= {file.worker for file in state.kept.files.values()}
    idle = [each for each in state.kept.workers.values() if each.peer not in busy and _is_blank(each)]
    if not idle:
        return state, False
    forgotten = min(idle, key=lambda each: (state.seen.get(each.peer, float("-inf")), each.peer))
    seen = {worker: at for worker, at in state.seen.items() if worker != forgotten.peer}
    return replace(state.without(forgotten), seen=seen), True


def _is_blank(record: Worker) -> bool:
    return not (record.accepted or record.refused or record.strikes or record.banned)


def _wait(state: State, worker: str, now: float, reason: str, sentence: str) -> Effect:
    until = now + state.rules.ask_again.total_seconds()
    return Tell(worker, Waiting("waiting", reason, sentence, until))


def may_send(state: State, worker: str, counter: int, nbytes: int) -> Waiting | None:
    """Whether an upload may begin: None where it may, else why not.

    Args:
        state: The state.
        worker: Who wants to send.
        counter: The lease of work that it answers.
        nbytes: How much it wants to send.
    """
    if why := banned(state, worker):
        return Waiting("refused", "banned", why)
    work = state.kept.works.get(f"{worker}/{counter}")
    if work is None:
        return Waiting("refused", "no-lease", no_lease(counter))
    most = state.rules.bytes_per_group * len(work.positions)
    if not 0 < nbytes <= most:
        sentence = (
            f"The answer to lease {counter} has {nbytes} bytes; {len(work.positions)} groups may have {most}."
        )
        return Waiting("refused", "size", sentence)
    if (first := before(state, work)) is not None:
        sentence = f"Lease {first.counter} of this worker is still open; leases are answered in order."
        return Waiting("waiting", "order", sentence)
    return None


def banned(state: State, worker: str) -> str:
    """Why a worker is banned; empty where it is not."""
    return state.record(worker).banned or (BY_ORDER if worker in state.value.banned else "")


def no_lease(counter: int) -> str:
    """Why an answer is not taken."""
    return f"Lease {counter} of this worker is not open: it was answered or abandoned, or its time was over."


def before(state: State, work: Work) -> Work | None:
    """The lease that its worker has to answer or abandon first, if there is one."""
    first = state.works_of(work.worker)[0]
    return first if first.counter < work.counter and not first.late else None
