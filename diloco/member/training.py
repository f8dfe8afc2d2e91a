"""Driving the workers through a lease, and freezing what they leave."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from diloco.member.setting import Setting, Trainer
from diloco.outer_state import OuterState
from diloco.reduce.contribution import Frozen, freeze
from diloco.rounds.leases import cut, samples_of, spans_of
from diloco.rounds.values import Lease
from diloco.store.contribution import ContributionStore
from protocol.errors import Code, NodeError

_MOST_RESTARTS = 1


@dataclass(frozen=True)
class Share:
    """How far the training of a lease is.

    Attributes:
        lease: The lease.
        samples: Samples trained on, from its start.
        tokens: Their tokens.
        steps: Inner steps.
        loss: Loss of the last step, nats per token.
        seconds: Time spent.
    """

    lease: Lease
    samples: int = 0
    tokens: int = 0
    steps: int = 0
    loss: float = 0.0
    seconds: float = 0.0


class Training:
    """Trains one lease at a time; can be interrupted for an outer step and goes on after it without losing a step.

    Args:
        setting: The member's setting.
        trainer: The workers.
        state: The outer state that they share with this process.
        kept: Where what was frozen is kept for a restart.
        finished: Called with the lease and what was frozen; None when there is nothing to give.
    """

    def __init__(
        self,
        setting: Setting,
        trainer: Trainer,
        state: OuterState,
        kept: ContributionStore,
        finished: Callable[[Lease, Frozen | None], None],
    ) -> None:
        self._setting, self._trainer, self._state, self._kept = setting, trainer, state, kept
        self._finished = finished
        self.share: Share | None = None
        self._task: asyncio.Task[None] | None = None
        self._interrupted = False
        self._cut_short = False

    @property
    def running(self) -> bool:
        """Whether the workers are at work."""
        return self._task is not None and not self._task.done()

    def begin(self, lease: Lease, round_number: int, lr: float) -> None:
        """Train a lease at this learning rate, or go on with it after an interruption."""
        if self.share is None or self.share.lease != lease:
            self.share = Share(lease)
        self._interrupted = self._cut_short = False
        self._work(self._run(self.share, round_number, lr))

    async def interrupt(self) -> None:
        """Stop the workers after their current step; what they did stays in the share."""
        if self.running:
            self._interrupted = True
            self._trainer.request_stop()
            assert self._task is not None
            await asyncio.gather(self._task, return_exceptions=True)

    def conclude(self, round_number: int) -> None:
        """Freeze what an interrupted lease has so far, without another step: this node drains."""
        if self.share is not None and not self.running:
            self._work(self._freeze(self.share, round_number))

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._setting.emit("task.failed", task="training", reason=f"{type(error).__name__}: {error}")

    def cut_short(self) -> None:
        """End the lease after the current step and give what is there: this node drains."""
        self._cut_short = True
        self._trainer.request_stop()

    async def close(self) -> None:
        """Stop without a result."""
        if self._task is not None:
            self._interrupted = True
            self._trainer.request_stop()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, share: Share, round_number: int, lr: float) -> None:
        emit, clock = self._setting.emit, self._setting.clock
        lease = share.lease
        rest = cut(spans_of(lease), share.samples)[1]
        emit("train.begin", round=round_number, start=rest[0].start, count=sum(span.count for span in rest))
        began = clock()
        first_step = share.steps

        def on_step(step: int, loss: float, tokens: int) -> None:
            number = first_step + step
            if self.share is not None and self.share.lease == lease:
                self.share = replace(self.share, steps=number + 1, loss=loss)
            emit("train.step", round=round_number, step=number, loss=loss, tokens=tokens)
            if (
                self._interrupted or self._cut_short
            ):  # one asked for while the workers came up was lost on them
                self._trainer.request_stop()

        restarts = 0
        while True:
            if self._interrupted:  # before the workers knew of this call
                return
            if self._cut_short:
                await self._freeze(share, round_number)
                return
            try:
                outcome = await self._trainer.train(
                    lease, round_number, done=share.samples, lr=lr, on_step=on_step
                )
                break
            except NodeError as error:
                emit("train.failed", round=round_number, code=str(error.code), reason=error.sentence)
                share, first_step, restarts = Share(lease), 0, restarts + 1
                self.share = share
                if restarts > _MOST_RESTARTS or error.code == Code.TRN_WORKER_STOPPED:
                    self.share = None
                    self._finished(lease, None)
                    return
        share = Share(
            lease,
            share.samples + outcome.samples,
            share.tokens + outcome.tokens,
            share.steps + outcome.steps if restarts == 0 else outcome.steps,
            outcome.loss,
            share.seconds + clock() - began,
        )
        emit(
            "train.end", round=round_number, steps=share.steps, tokens=share.tokens, seconds=share.seconds,
            loss=outcome.loss,
        )  # fmt: skip
        if not outcome.finite:
            emit(
                "train.not-finite", round=round_number, code=str(Code.TRN_NOT_FINITE),
                reason="The loss is not finite; this node contributes nothing to the round.",
            )  # fmt: skip
            self.share = None
            self._finished(lease, None)
            return
        self.share = share
        if self._interrupted and share.samples < samples_of(lease):
            return
        await self._freeze(share, round_number)

    async def _freeze(self, share: Share, round_number: int) -> None:
        self.share = None
        if share.samples == 0:
            self._finished(share.lease, None)
            return
        began = self._setting.clock()
        try:
            frozen = await asyncio.to_thread(
                freeze, self._state.gradient, self._setting.grid, self._setting.codec,
                tokens=share.tokens, samples=share.samples,
            )  # fmt: skip
        except NodeError as error:  # the sender's own check: what is not finite never leaves
            self._setting.emit(
                "train.not-finite", round=round_number, code=str(error.code), reason=error.sentence
            )
            self._finished(share.lease, None)
            return
        try:
            await asyncio.to_thread(self._kept.write, share.lease, round_number, frozen)
        except NodeError as error:  # it is there until this process ends
            self._setting.emit(
                "contribution.unkept", round=round_number, code=str(error.code), reason=error.sentence
            )
        self._setting.emit(
            "contribution.frozen",
            round=round_number,
            bytes=frozen.nbytes,
            seconds=self._setting.clock() - began,
        )
        self._finished(share.lease, frozen)
