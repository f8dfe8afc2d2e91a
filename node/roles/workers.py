"""The node's workers as a member sees them: started in the background, asked once they are up."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from diloco.genesis import Genesis
from diloco.member.setting import Emit, Outcome
from diloco.outer_state import OuterState
from diloco.rounds.leases import cut, spans_of
from diloco.rounds.values import Lease
from diloco.worker.group import StepDone, WorkerGroup
from protocol.errors import Code

_LOOK = timedelta(seconds=1)

_NO_TIME = timedelta(0)


class Workers:
    """Adapts a ``WorkerGroup`` to what a member asks of its trainer.

    Args:
        genesis: The run.
        path: The genesis file.
        state: The outer state.
        count: Worker processes.
        device: ``cpu`` or ``cuda``.
        threads: Threads of each.
        folder: The node's data directory.
        base: The run file's folder.
        emit: The event log.
        program: What a worker process runs.
        settings: What that is told.
    """

    def __init__(
        self,
        genesis: Genesis,
        path: Path,
        state: OuterState,
        *,
        count: int,
        device: str,
        threads: int,
        folder: Path,
        base: Path | None,
        emit: Emit,
        program: str = "diloco.worker",
        settings: str = "{}",
    ) -> None:
        self._budget = genesis.sections.round.time_budget
        self._per_step = genesis.sections.inner.samples_per_step
        self._arguments = (path, state, count, device, threads, folder)
        self._base, self._emit = base, emit
        self._program, self._settings = program, settings
        self._spent = _NO_TIME  # of the time budget, by a lease that was interrupted
        self._starting: asyncio.Task[WorkerGroup] | None = None
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to start the processes."""
        self._starting = asyncio.ensure_future(self._start())

    async def _start(self) -> WorkerGroup:
        began = asyncio.get_running_loop().time()
        group = await WorkerGroup.start(
            *self._arguments, base=self._base, program=self._program, settings=self._settings
        )
        seconds = asyncio.get_running_loop().time() - began
        self._emit("workers.ready", pids=list(group.pids), seconds=seconds)
        self._watch = asyncio.ensure_future(self._look(group))
        return group

    async def _look(self, group: WorkerGroup) -> None:
        """Say when a signal has stopped a worker, and when all go on."""
        said = before = ""
        while True:
            await asyncio.sleep(_LOOK.total_seconds())
            now = group.stopped
            if now == before != said:  # for two looks
                if now:
                    self._emit("workers.stopped", code=str(Code.TRN_WORKER_STOPPED), reason=now)
                else:
                    self._emit("workers.continued")
                said = now
            before = now

    async def group(self) -> WorkerGroup:
        """The running workers.

        Raises:
            NodeError: They could not be started.
        """
        if self._starting is None:
            self.start()
        assert self._starting is not None
        return await asyncio.shield(self._starting)

    async def train(
        self,
        lease: Lease,
        round_number: int,
        *,
        done: int,
        lr: float,
        on_step: Callable[[int, float, int], None],
    ) -> Outcome:
        """See ``Trainer.train``."""
        group = await self.group()

        def step_done(step: StepDone) -> None:
            on_step(step.step, step.loss, step.tokens)

        if done == 0:
            self._spent = _NO_TIME
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await group.train(
            cut(spans_of(lease), done)[1],
            round_number,
            step_done,
            first_step=done // self._per_step,
            go_on=done > 0,
            budget=None if self._budget is None else max(self._budget - self._spent, _NO_TIME),
            lr=lr,
        )
        self._spent += timedelta(seconds=loop.time() - began)
        return Outcome(result.samples, result.tokens, result.steps, result.loss, result.finite)

    def request_stop(self) -> None:
        """See ``Trainer.request_stop``."""
        if self._starting is not None and self._starting.done() and not self._starting.exception():
            self._starting.result().request_stop()

    async def evaluate(self) -> float | None:
        """See ``Trainer.evaluate``."""
        return await (await self.group()).evaluate()

    async def generate(self, prompt: str, count: int) -> str:
        """Text that follows a prompt, by the outer parameters."""
        return await (await self.group()).generate(prompt, count)

    async def stop(self) -> None:
        """End the processes."""
        if self._watch is not None:
            self._watch.cancel()
        if self._starting is None:
            return
        if not self._starting.done():
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        elif not self._starting.cancelled() and not self._starting.exception():
            await self._starting.result().stop()
