"""Why a trainer waits for rollouts, in plain words: reason code, numbers, and until when."""

from diloco.rounds.leases import cut, samples_of, spans_of
from diloco.rounds.values import Lease
from diloco.rounds.waiting import Waiting
from rl.orchestration.books import positions_of
from rl.orchestration.feeding import PENDING, Batch, fate
from rl.orchestration.judging import trusted
from rl.orchestration.rows import File, Work
from rl.orchestration.state import State


def waiting_for(state: State, lease: Lease, done: int, size: int, now: float, until: float) -> Waiting:
    """What the next inner step waits for.

    Args:
        state: The state.
        lease: This trainer's lease.
        done: Positions of it that are trained already.
        size: Positions of a step.
        now: Seconds on the orchestrator's clock.
        until: When the trainer gives up waiting, on the same clock.
    """
    number = state.policy
    held = state.holders()
    left = list(positions_of(cut(cut(spans_of(lease), done)[1], size)[0]))
    pending = [position for position in left if fate(state, position, held) == PENDING]
    holders = [held.get(position) for position in pending]
    files = {holder.key for holder in holders if isinstance(holder, File)}
    working = {holder.worker for holder in holders if isinstance(holder, Work)}
    free = sum(holder is None for holder in holders)
    at_work = sum(isinstance(holder, Work) for holder in holders)
    begin = f"Round {number}: {len(left) - len(pending)} of {len(left)} groups of the next step are there"
    end = f"; waiting at most {max(0.0, until - now):.0f} s more."

    def wait(reason: str, what: str, missing: tuple[str, ...] = ()) -> Waiting:
        return Waiting("rollouts", reason, f"{begin}, {what}{end}", until, missing)

    if state.value.paused:
        return wait("paused", "and the operator has paused the run")
    if free and (state.published is None or state.published < state.oldest(number)):
        return wait("unpublished", f"and policy version {state.oldest(number)} or newer is not published yet")
    if free and not state.pool(now):
        seconds = state.rules.seen_within.total_seconds()
        return wait("no-workers", f"{free} are for nobody: no worker has asked for {seconds:.0f} s")
    if files and not trusted(state):
        return wait("no-validators", f"{len(files)} files wait for a verdict, and no validator is there")
    if at_work or free:
        what = (
            f"{at_work} are with {len(working)} workers, {free} are to be given out, "
            f"{len(files)} files are being judged"
        )
        return wait("generating", what, tuple(sorted(working)))
    asked = tuple(sorted({validator for key, validator in state.asked if key in files}))
    return wait("verifying", f"{len(files)} files are with {len(asked)} validators", asked)


def nothing_in(lease: Lease, batch: Batch, number: int) -> Waiting:
    """What is said of a lease that came to nothing: it is not trained on."""
    named = {
        "range": "for equal rewards",
        "too-hard": "as too hard",
        "too-easy": "as too easy",
        "given-up": "after too many failed attempts",
    }
    parts = ", ".join(f"{count} {named[why]}" for why, count in sorted(batch.empties.items()))
    sentence = (
        f"Round {number}: of {batch.consumed} positions left of a lease of {samples_of(lease)} none is worth a step: "
        f"{parts}. The round is decided without them, and they are made again with the next policy version."
    )
    return Waiting("rollouts", "all-filtered", sentence)
