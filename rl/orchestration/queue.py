"""How rollouts stand with a trainer, in numbers for whoever watches. Pure."""

from dataclasses import dataclass

from rl.orchestration.judging import trusted
from rl.orchestration.rows import File, Work
from rl.orchestration.state import State


@dataclass(frozen=True)
class Queue:
    """Positions that a trainer needs, by how far they are; and who is there.

    Attributes:
        round: The round that is being trained.
        newest: The newest policy version that workers can have; -1 before the first.
        free: Nobody has them.
        working: Workers have them.
        judging: They are in files without a verdict.
        ready: They are in accepted files.
        workers: Workers that have asked of late, or are at work.
        validators: Validators that are there and believed.
        distrusted: Validators that accepted what is known to be bad.
    """

    round: int
    newest: int
    free: int
    working: int
    judging: int
    ready: int
    workers: int
    validators: tuple[str, ...]
    distrusted: tuple[str, ...]


def queue_of(state: State, now: float) -> Queue:
    """The queue at a moment, seconds on the orchestrator's clock."""
    holders = state.holders()
    held = [holders.get(each.position) for each in state.wanted]
    files = [holder for holder in held if isinstance(holder, File)]
    ready = sum(file.state == "accepted" for file in files)
    working = sum(isinstance(holder, Work) for holder in held)
    return Queue(
        round=state.policy,
        newest=-1 if state.published is None else state.published,
        free=len(held) - len(files) - working,
        working=working,
        judging=len(files) - ready,
        ready=ready,
        workers=state.pool(now),
        validators=tuple(trusted(state)),
        distrusted=tuple(sorted(judge.validator for judge in state.kept.judges.values() if judge.failed)),
    )
