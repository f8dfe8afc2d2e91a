"""Answers to leases of work: what is taken, what is refused at once, and what a worker is told."""

import math
from dataclasses import replace

from rl.orchestration.events import Broken, Delete, Effect, Found, Lost, Planted, Receipt, Uploaded
from rl.orchestration.judging import seen_by, strike, trusted
from rl.orchestration.leasing import banned, before, close, end_of, no_lease
from rl.orchestration.rows import File, Tally, Work
from rl.orchestration.state import State, Step, fail


def on_uploaded(state: State, event: Uploaded, now: float) -> Step:
    """Take a file as the answer to a lease, if it is one."""

    def refuse(reason: str, sentence: str) -> Step:
        gone: list[Effect] = [] if event.digest.hex() in state.kept.files else [Delete((event.digest,))]
        return state, [Receipt(event.worker, event.counter, False, reason, sentence), *gone]

    if why := banned(state, event.worker):
        return refuse("banned", why)
    known = state.kept.files.get(event.digest.hex())
    if known is not None and (known.worker, known.counter) == (event.worker, event.counter):
        return state, [Receipt(event.worker, event.counter, True, "known", "This file is here already.")]
    if known is not None:
        return refuse("copy", "A file with these bytes answered another lease.")
    work = state.kept.works.get(f"{event.worker}/{event.counter}")
    if work is None:
        return refuse("no-lease", no_lease(event.counter))
    if (first := before(state, work)) is not None:
        return refuse(
            "order", f"Lease {first.counter} of this worker is still open; leases are answered in order."
        )
    if wrong := _wrong(state, work, event):
        return _refused(state, work, "content", wrong, (Delete((event.digest,)),))
    state = close(state, work)
    state = state if work.late else end_of(state, event.worker, "a")
    rounds = state.rounds_of()
    if not any(state.counts(each.position, each.oldest, each.newest, rounds) for each in event.groups):
        sentence = f"No group in it can be trained on any more; round {state.policy} is being trained."
        return state, [Receipt(event.worker, event.counter, True, "stale", sentence), Delete((event.digest,))]
    file = File(
        event.digest, event.worker, event.counter, event.version, event.nbytes, event.groups,
        standing=state.standing(state.record(event.worker)),
        wanted=2 if event.twice else 1,
    )  # fmt: skip
    return _acknowledge(state, file, event.link)[0], [Receipt(event.worker, event.counter, True)]


def on_broken(state: State, event: Broken, now: float) -> Step:
    """What was sent is no rollout file: the lease is over, and it costs a strike."""
    work = state.kept.works.get(f"{event.worker}/{event.counter}")
    if work is None:
        return state, [Receipt(event.worker, event.counter, False, "no-lease", no_lease(event.counter))]
    return _refused(state, work, event.code, event.sentence, ())


def on_lost(state: State, event: Lost, now: float) -> Step:
    """Forget files whose bytes are gone; their positions are for others."""
    for digest in event.digests:
        if (file := state.kept.files.get(digest.hex())) is not None:
            state = state.without(file)
    return state, [Delete(event.digests)]


def on_found(state: State, event: Found, now: float) -> Step:
    """Take over a file of another trainer, if it is of use here."""
    file = event.file
    held, rounds = state.holders(), state.rounds_of()
    wanted = any(
        state.counts(group.position, group.oldest, group.newest, rounds)
        and not isinstance(held.get(group.position), File)
        for group in file.groups
    )
    if file.key in state.kept.files:
        return state, []
    if not wanted or banned(state, file.worker):
        return state, [Delete((file.digest,))]
    file = replace(file, standing=state.standing(state.record(file.worker)))
    return _acknowledge(state, file, event.link)[0], []


def on_planted(state: State, event: Planted, now: float) -> Step:
    """Have a file judged that is known to be bad, by a validator that does not know what it was made from."""
    know = tuple(sorted(seen_by(state, event.beside.hex())))
    files = state.kept.files
    unfit = event.file.key in files or event.beside.hex() not in files
    planted = sum(file.planted for file in files.values())
    if unfit or planted >= state.rules.per_validator or not set(trusted(state)) - set(know):
        return state, [Delete((event.file.digest,))]
    file = replace(
        event.file, state="waiting", opinions=(), wanted=1, code="", struck=0, heard=False, planted=True, apart=know
    )  # fmt: skip
    state, file = _acknowledge(state, file, event.link)
    return state.with_timer("file", file.key, now, state.rules.appeal_within), []


def _acknowledge(state: State, file: File, link: bytes) -> tuple[State, File]:
    """Give a file the next number and its link."""
    number = state.next_number
    file = replace(file, number=number, link=link)
    return state.with_row(file).with_row(Tally(number)), file


def _wrong(state: State, work: Work, event: Uploaded) -> str:
    """What in a file does not fit its lease, in a sentence; empty for nothing."""
    rules = state.rules
    positions = tuple(group.position for group in event.groups)
    if positions != work.positions:
        return f"The lease is of positions {list(work.positions)}; the file has {list(positions)[:16]}."
    if event.version != work.version:
        return f"The lease is for policy version {work.version}; the file says {event.version}."
    if not 0 < event.nbytes <= rules.bytes_per_group * len(positions):
        return (
            f"The file has {event.nbytes} bytes; at most {rules.bytes_per_group * len(positions)} are taken."
        )
    for group in event.groups:
        if len(group.rewards) != rules.group_size:
            return f"Position {group.position} has {len(group.rewards)} rollouts; a group has {rules.group_size}."
        if not all(math.isfinite(reward) for reward in group.rewards):
            return f"A reward of position {group.position} is not finite."
        newest = work.version if state.published is None else min(state.published, state.policy)
        if not work.version <= group.oldest <= group.newest <= max(newest, work.version):
            return (
                f"Position {group.position} has tokens of policy versions {group.oldest} to {group.newest}; "
                f"versions {work.version} to {newest} were there to be used."
            )
    return ""


def _refused(state: State, work: Work, code: str, sentence: str, more: tuple[Effect, ...]) -> Step:
    state = close(state, work)
    if not work.late:
        state = end_of(state, work.worker, "a")
        for position in work.positions:
            state = fail(state, position, work.worker)
    record = state.record(work.worker)
    state = state.with_row(replace(record, refused=record.refused + 1))
    state, effects = strike(state, work.worker, 1, sentence, ())
    receipt = Receipt(work.worker, work.counter, False, code, sentence)
    return state, [receipt, *more, *effects]
