"""A member's training on rollouts: leases of positions, fed with accepted groups (``diloco/member/training.py``)."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from diloco.member.setting import Emit, Outcome
from diloco.rounds.leases import samples_of
from diloco.rounds.values import Lease
from diloco.worker.group import StepDone, TrainResult
from rl.orchestration.difficulty import solved
from rl.orchestration.feed import Feed, Portion
from rl.training.batches import write_batch
from rl.training.packing import examples_of, pack
from rl.training.settings import ObjectiveSection
from rl.training.work import Batch, work_of


class Processes(Protocol):
    """The worker processes of a node, as far as they train."""

    async def train(
        self,
        work: Mapping[str, Any],
        round: int,
        on_step: Callable[[StepDone], None] | None = None,
        *,
        first_step: int = 0,
        go_on: bool = False,
        lr: float | None = None,
    ) -> TrainResult:
        """See ``WorkerGroup.train``."""
        ...


class Workers(Protocol):
    """A node's workers."""

    async def group(self) -> Processes:
        """The running processes."""
        ...

    def request_stop(self) -> None:
        """End what they do after the step in hand."""
        ...


@dataclass(frozen=True)
class Settings:
    """How a lease of positions is trained.

    Attributes:
        size: Positions of an inner step.
        row: Tokens of a packed row, at least those of the longest transcript.
        patience: How long a step's groups are waited for.
        budget: Time after which no step begins, once one was taken; None for no such time.
        objective: What the workers were started with.
    """

    size: int
    row: int
    patience: timedelta
    budget: timedelta | None
    objective: ObjectiveSection


class RolloutTrainer:
    """Trains leases of positions; a ``diloco.member.setting.Trainer``. For one event loop, one lease at a time.

    Args:
        workers: The node's workers, which run ``rl.training``.
        feed: Where groups come from.
        settings: How a lease is trained.
        folder: Where the rows of a step lie while the workers read them; it is this object's own.
        policies: The weights files of policy versions; raises ``NodeError`` for one that is not there any more.
        reference: The weights file of the reference policy, if the objective has one.
        emit: The event log.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        workers: Workers,
        feed: Feed,
        settings: Settings,
        folder: Path,
        *,
        policies: Callable[[frozenset[int]], Mapping[int, Path]],
        reference: Path | None,
        emit: Emit,
        clock: Callable[[], float],
    ) -> None:
        self._workers, self._feed, self._settings, self._folder = workers, feed, settings, folder
        self._policies, self._reference, self._emit, self._clock = policies, reference, emit, clock
        self._stopped = False

    async def train(
        self,
        lease: Lease,
        round_number: int,
        *,
        done: int,
        lr: float,
        on_step: Callable[[int, float, int], None],
    ) -> Outcome:
        """See ``diloco.member.setting.Trainer.train``.

        A lease of which nothing was worth a step, or whose groups did not come in time, has no samples trained on: the
        round goes on without it. What was used up before the last step taken counts as trained on.
        """
        settings = self._settings
        self._stopped = False
        began, used, tokens, steps, loss = self._clock(), 0, 0, 0, 0.0
        while done + used < samples_of(lease) and not self._stopped:
            patience = settings.patience
            if settings.budget is not None and used:
                left = settings.budget - timedelta(seconds=self._clock() - began)
                if left <= timedelta(0):
                    break
                patience = min(patience, left)
            portion = await self._feed.next(
                lease, round_number, done=done + used, size=settings.size, patience=patience
            )
            if portion is None or self._stopped:
                break
            if not portion.groups:
                used += portion.consumed if done + used else 0  # without any step nothing is used up
                break
            result = await self._step(portion, lease, round_number, done + used, lr, on_step, steps)
            if not result.finite:
                return Outcome(used, tokens, steps, result.loss, False)
            loss = (loss * tokens + result.loss * result.tokens) / max(1, tokens + result.tokens)
            used, tokens, steps = used + portion.consumed, tokens + result.tokens, steps + result.steps
        return Outcome(used, tokens, steps, loss, True)

    async def _step(
        self,
        portion: Portion,
        lease: Lease,
        round_number: int,
        done: int,
        lr: float,
        on_step: Callable[[int, float, int], None],
        before: int,
    ) -> TrainResult:
        examples = examples_of(portion.groups, self._settings.objective.advantage)
        versions = frozenset(
            version for each in examples for version in set(each.versions[each.sampled].tolist())
        )
        path = self._folder / f"{round_number}-{lease.start}-{done}.batch"
        write_batch(path, pack(examples, self._settings.row))
        rewards = [rollout.reward for group in portion.groups for rollout in group.rollouts]
        began = self._clock()

        def stepped(step: StepDone) -> None:
            self._emit(
                "rollouts.step", round=round_number, positions=portion.consumed, groups=len(portion.groups),
                empties=dict(portion.empties), reward=sum(rewards) / len(rewards),
                solved=solved(rewards), seconds=self._clock() - began,
                staleness=dict(Counter(round_number - group.version for group in portion.groups)),
                **step.metrics,
            )  # fmt: skip
            on_step(before + step.step, step.loss, step.tokens)

        try:
            work = work_of([Batch(path, portion.consumed)], self._policies(versions), self._reference)
            group = await self._workers.group()
            return await group.train(
                work, round_number, stepped, first_step=done // self._settings.size, go_on=done > 0, lr=lr
            )
        finally:
            path.unlink(missing_ok=True)

    async def evaluate(self) -> None:
        """Nothing is held out: a policy is judged by its rewards."""

    def request_stop(self) -> None:
        """End the running ``train`` after its current step; also where it waits for groups."""
        self._stopped = True
        self._feed.stop()
        self._workers.request_stop()
