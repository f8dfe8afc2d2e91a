"""The daemon's side of its workers: asks for inner steps, evaluation and samples. Imports no torch."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, Self

from diloco.outer_state import OuterState
from diloco.worker.channel import Line
from diloco.worker.ranks import Plan, Ranks
from protocol.errors import Code, NodeError

_LOOK = timedelta(seconds=1)
"""How often the state of silent processes is looked at."""

_STOPPED_FOR = 3
"""Looks in a row that find a worker stopped, until nothing is expected of it any more."""


class Positions(Protocol):
    """A run of sample positions: a lease, a span."""

    @property
    def start(self) -> int:
        """First position."""

    @property
    def count(self) -> int:
        """How many."""


@dataclass(frozen=True)
class StepDone:
    """One inner step of this node.

    Attributes:
        step: From 0 within this call.
        loss: Nats per token, before the step.
        tokens: Target tokens of the step.
        metrics: Norm of the gradient ("norm"), and what else the objective measures.
    """

    step: int
    loss: float
    tokens: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainResult:
    """What a call of `train` did; the pseudo-gradient lies in the outer state.

    Attributes:
        samples: Positions used, from the beginning of the leased ones on.
        tokens: Target tokens of these.
        steps: Inner steps.
        loss: Mean nats per token.
        seconds: Wall time.
        finite: False when a loss or gradient was not; then the pseudo-gradient is zero and there is nothing to
            contribute, and the optimizer starts anew.
        memory: Most bytes that any one worker process has held so far.
    """

    samples: int
    tokens: int
    steps: int
    loss: float
    seconds: float
    finite: bool
    memory: int


class WorkerGroup:
    """All worker processes of a node, which work as one.

    One call at a time: a second one waits. When a worker dies, all are ended, the running call raises
    ``TRN_WORKER_DIED``, and they are started again from the outer state, once per round. While a signal keeps a worker
    stopped, calls raise ``TRN_WORKER_STOPPED``; nobody ends it, and it is of use again once it goes on.
    Make it with `start`.
    """

    def __init__(self, plan: Plan, patience: timedelta) -> None:
        self._plan = plan
        self._patience = patience
        self._lock = asyncio.Lock()
        self._ranks: Ranks | None = None
        self._rising: asyncio.Task[Ranks] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._number = 0
        self._training: int | None = None
        self._round = -1
        self._restarted_in = -2
        self._owed: tuple[Ranks, int] | None = None
        self._stopped = False

    @classmethod
    async def start(
        cls,
        genesis_path: Path,
        outer_state: OuterState,
        workers: int,
        device: str,
        threads: int,
        folder: Path,
        *,
        base: Path | None = None,
        patience: timedelta = timedelta(minutes=5),
        program: str = "diloco.worker",
        settings: str = "{}",
    ) -> Self:
        """Start the processes and wait until they are ready, some seconds.

        Args:
            genesis_path: The run's genesis.
            outer_state: The node's outer state; it must outlive the group.
            workers: Number of processes; with "cuda" each takes the accelerator of its rank.
            device: "cpu" or "cuda".
            threads: Threads of each process.
            folder: The node's folder for token cache, corpus files from members and logs.
            base: The run file's folder, for a corpus given by path.
            patience: A worker that is silent for so long (no step done, no answer) counts as dead.
            program: Module that a worker process runs: a kind of training (`diloco.worker.objective`).
            settings: What that kind is told, as text.

        Raises:
            NodeError: TRN_DATA when corpus files are missing; TRN_MODEL; TRN_WORKER_DIED for any other end.
        """
        group = cls(
            Plan(genesis_path, outer_state.fd, workers, device, threads, folder, base, program, settings),
            patience,
        )
        await group._rise()
        return group

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the living workers, by rank."""
        return () if self._ranks is None else self._ranks.pids()

    @property
    def stopped(self) -> str:
        """Which workers a signal has stopped, in a sentence; empty while none is."""
        which = () if self._ranks is None else self._ranks.stopped()
        if not which:
            return ""
        names = ", ".join(f"{rank} (process {pid})" for rank, pid in which)
        return f"Stopped by a signal: worker {names}."

    async def train(
        self,
        work: Positions | Sequence[Positions] | Mapping[str, Any],
        round: int,
        on_step: Callable[[StepDone], None] | None = None,
        *,
        first_step: int = 0,
        go_on: bool = False,
        budget: timedelta | None = None,
        lr: float | None = None,
    ) -> TrainResult:
        """Take inner steps from the outer parameters and leave the pseudo-gradient in the outer state.

        The outer state may not be flipped before this returns or raises. A cancelled call ends after the step
        in hand, and only then goes through.

        Args:
            work: Leased positions, used from the beginning on; or, as a JSON mapping, what another kind of training
                than that of text has in their place.
            round: The round, for the learning rate and for counting restarts.
            on_step: Told each inner step.
            first_step: Steps taken in this round before, for the learning rate.
            go_on: Continue from the pseudo-gradient in the outer state, which this call then includes.
            budget: No step begins after this time; at least one step is taken.
            lr: Highest learning rate of the schedule; the genesis' one if None.

        Raises:
            NodeError: TRN_WORKER_DIED, TRN_WORKER_STOPPED; the pseudo-gradient is then undefined.
        """
        began = time.monotonic()
        async with self._lock:
            self._round = round
            command: Line = {
                "do": "train",
                "work": work if isinstance(work, Mapping) else _spans(work),
                "round": round,
                "first_step": first_step,
                "go_on": go_on,
                "budget": None if budget is None else budget.total_seconds(),
                "lr": lr,
            }
            answers = await self._call(command, on_step)
        first = answers[0]
        return TrainResult(
            samples=first["samples"],
            tokens=first["tokens"],
            steps=first["steps"],
            loss=first["loss"],
            seconds=time.monotonic() - began,
            finite=first["finite"],
            memory=max(answer["memory"] for answer in answers),
        )

    def request_stop(self) -> None:
        """Have a running `train` end after the step in hand; without one nothing happens. Does not wait."""
        if self._ranks is not None and self._training is not None:
            self._ranks.send({"do": "stop", "id": self._training}, [0])

    async def evaluate(self) -> float | None:
        """Mean nats per token of the outer parameters on the run's validation samples; None where there are none.

        Raises:
            NodeError: TRN_WORKER_DIED.
        """
        async with self._lock:
            loss: float | None = (await self._call({"do": "evaluate"}))[0]["loss"]
        return loss

    async def generate(self, prompt: str, n: int, *, temperature: float = 0.8, seed: int = 0) -> str:
        """Up to `n` tokens of text that follow a prompt, by the outer parameters.

        Raises:
            NodeError: TRN_WORKER_DIED.
        """
        command: Line = {
            "do": "generate",
            "prompt": prompt,
            "count": n,
            "temperature": temperature,
            "seed": seed,
        }
        async with self._lock:
            return str((await self._call(command))[0]["text"])

    async def stop(self, grace: timedelta = timedelta(seconds=5)) -> None:
        """End all workers: at once where one is at work, else within the grace. Safe to call twice."""
        self._stopped = True
        busy = self._lock.locked()
        if self._watch is not None:
            self._watch.cancel()
        if self._rising is not None:
            self._rising.cancel()
            await asyncio.gather(self._rising, return_exceptions=True)
        ranks, self._ranks = self._ranks, None
        if ranks is not None:
            await ranks.end(timedelta(0) if busy else grace)

    async def _call(self, command: Line, on_step: Callable[[StepDone], None] | None = None) -> list[Line]:
        """Give one command to all ranks and wait for all answers. Called with the lock held."""
        ranks = await self._up()
        await self._settle(ranks)
        self._number += 1
        number = self._number
        ranks.send({**command, "id": number})
        self._training = number if command["do"] == "train" else None
        try:
            try:
                return await self._answers(ranks, number, on_step)
            except asyncio.CancelledError:
                if command["do"] == "train" and not self._stopped:
                    ranks.send({"do": "stop", "id": number}, [0])
                    with contextlib.suppress(NodeError):
                        await self._answers(ranks, number, None)
                raise
            except NodeError as error:
                if error.code == Code.TRN_WORKER_STOPPED:
                    ranks.send({"do": "stop", "id": number}, [0])
                raise
        finally:
            self._training = None

    async def _settle(self, ranks: Ranks) -> None:
        """Wait for what a call still owes in which a worker was stopped; until then workers take no other.

        Raises:
            NodeError: TRN_WORKER_STOPPED while one still is.
        """
        if self._owed is None or self._owed[0] is not ranks:
            return
        if still := self.stopped:
            raise NodeError(Code.TRN_WORKER_STOPPED, still)
        await self._answers(ranks, self._owed[1], None)

    async def _answers(
        self, ranks: Ranks, number: int, on_step: Callable[[StepDone], None] | None
    ) -> list[Line]:
        self._owed = (ranks, number)
        answers: dict[int, Line] = {}
        while len(answers) < self._plan.workers:
            rank, line = await self._next(ranks)
            if line.get("id") != number:
                continue  # of a call that was cancelled twice
            if line["event"] == "done":
                answers[rank] = line
            elif on_step is not None:
                on_step(StepDone(line["step"], line["loss"], line["tokens"], line["metrics"]))
        self._owed = None
        return [answers[rank] for rank in sorted(answers)]

    async def _next(self, ranks: Ranks) -> tuple[int, dict[str, Any]]:
        """The next line of any rank.

        Raises:
            NodeError: A rank has gone, was silent too long or said why it cannot work, and all ranks are ended by then;
                or a rank is stopped.
        """
        end = time.monotonic() + self._patience.total_seconds()
        looks = 0
        while True:
            try:
                # Not wait_for: before Python 3.12 it loses a cancellation that comes together with a line.
                async with asyncio.timeout(min(self._patience, _LOOK).total_seconds()):
                    rank, line = await ranks.inbox.get()
                break
            except TimeoutError:
                looks = looks + 1 if ranks.stopped() else 0
            if looks >= _STOPPED_FOR:
                raise NodeError(Code.TRN_WORKER_STOPPED, self.stopped)
            if time.monotonic() > end:
                await self._fall(ranks)
                raise NodeError(
                    Code.TRN_WORKER_DIED,
                    f"The workers said nothing for {self._patience.total_seconds():g} seconds.",
                )
        if line is None:
            sentence = f"Worker {rank} ended with {ranks.status(rank)}: {ranks.last_words(rank)}"
            await self._fall(ranks)
            raise NodeError(Code.TRN_WORKER_DIED, sentence)
        if line["event"] == "failed":
            await self._fall(ranks, again=False)
            raise NodeError(Code(line["code"]), line["sentence"], fix=line["fix"])
        return rank, line

    async def _fall(self, ranks: Ranks, again: bool = True) -> None:
        """End what is left of a broken group, and begin its one restart of this round."""
        if self._ranks is ranks:
            self._ranks = None
        await ranks.end()
        if again and not self._stopped and self._rising is None and self._restarted_in != self._round:
            self._restarted_in = self._round
            self._rising = asyncio.create_task(self._rise())

    async def _up(self) -> Ranks:
        """The living ranks, after their restart where there is one."""
        if self._stopped:
            raise NodeError(Code.TRN_WORKER_DIED, "The workers were stopped.")
        if self._rising is None and self._ranks is None:
            if self._restarted_in == self._round:
                raise NodeError(
                    Code.TRN_WORKER_DIED,
                    f"The workers ended twice in round {self._round} and rest until the next.",
                )
            self._restarted_in = self._round
            self._rising = asyncio.create_task(self._rise())
        if self._rising is not None:
            try:
                await asyncio.shield(self._rising)
            finally:
                if self._rising is not None and self._rising.done():
                    self._rising = None
        assert self._ranks is not None
        return self._ranks

    async def _rise(self) -> Ranks:
        """Start ranks and wait until each is up."""
        ranks = Ranks(self._plan)
        try:
            await ranks.spawn()
            for _ in range(self._plan.workers):
                await self._next_up(ranks)
        except BaseException:
            await ranks.end()
            raise
        self._ranks = ranks
        self._watch = asyncio.create_task(self._watch_idle(ranks))
        return ranks

    async def _next_up(self, ranks: Ranks) -> None:
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                rank, line = await ranks.inbox.get()
        except TimeoutError:
            raise NodeError(
                Code.TRN_WORKER_DIED,
                f"The workers did not start within {self._patience.total_seconds():g} seconds.",
            ) from None
        if line is None:
            raise NodeError(
                Code.TRN_WORKER_DIED,
                f"Worker {rank} could not start, {ranks.status(rank)}: {ranks.last_words(rank)}",
            )
        if line["event"] == "failed":
            raise NodeError(Code(line["code"]), line["sentence"], fix=line["fix"])

    async def _watch_idle(self, ranks: Ranks) -> None:
        """Notice a worker that dies while nothing is asked of it, so that its restart does not cost a step."""
        await ranks.gone.wait()
        async with self._lock:  # a running call notices by itself
            if self._ranks is ranks:
                await self._fall(ranks)


def _spans(work: Positions | Sequence[Positions]) -> Line:
    spans = work if isinstance(work, Sequence) else [work]
    return {"spans": [[span.start, span.count] for span in spans]}
