"""One rank of a node's inner loop: FSDP2 inside, AdamW on the local shards, the same steps on all ranks.

What is learnt is the objective's (`objective.py`). All ranks get the same commands and take the same decisions:
whatever may differ between them (loss, gradient norm, the wish to stop) is summed in one small reduction per step
before anyone acts on it.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from diloco.architecture import layout_of
from diloco.genesis import Genesis
from diloco.model import empty_model, materialize
from diloco.outer_state import OuterState
from diloco.worker.objective import Objective, Place, Step
from diloco.worker.schedule import learning_rate
from diloco.worker.shards import Shards


@dataclass(frozen=True)
class Trained:
    """What one `train` did.

    Attributes:
        samples: Positions used up, from the beginning of the work on.
        tokens: Target tokens of these.
        steps: Optimizer steps.
        loss: Mean nats per token over all steps; NaN or infinity of the step that ended it where not finite.
        finite: False when a loss or gradient was not; then nothing is contributed.
    """

    samples: int
    tokens: int
    steps: int
    loss: float
    finite: bool


@dataclass(frozen=True)
class Stepped:
    """What one inner step did.

    Attributes:
        loss: Nats per token, or what the objective has in their place, before the step.
        metrics: Norm of the gradient before it was clipped ("norm"), and what the objective measures.
        finite: Whether loss and gradient were; only then the weights have changed.
        ending: Whether training ends here.
    """

    loss: float
    metrics: Mapping[str, float]
    finite: bool
    ending: bool


class Trainer:
    """Model, optimizer and objective of one rank.

    Args:
        genesis: The run.
        state: The node's outer state.
        objective: What is learnt.
        mesh: One-dimensional device mesh over the node's workers.
        device: This rank's device.
    """

    def __init__(
        self,
        genesis: Genesis,
        state: OuterState,
        objective: Objective,
        mesh: DeviceMesh,
        device: torch.device,
    ) -> None:
        self._sections = genesis.sections
        self._inner = self._schedule = genesis.sections.inner
        self._state = state
        self._objective = objective
        self._device = device
        self._world = mesh.size()
        self._model = empty_model(self._sections.model)
        for layer in self._model.model.layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=self._world > 1)
        fully_shard(self._model, mesh=mesh, reshard_after_forward=False)
        materialize(self._model, device)
        self._shards = Shards(self._model, layout_of(self._sections.model))
        self._place = Place(
            self._model, mesh.get_local_rank(), self._world, device, self._inner.precision, self._load
        )
        self._fresh_optimizer()

    def train(
        self,
        work: dict[str, Any],
        round: int,
        first_step: int,
        go_on: bool,
        stop: Callable[[], bool],
        on_step: Callable[[int, float, int, Mapping[str, float]], None],
        lr: float | None = None,
    ) -> Trained:
        """Take inner steps over leased positions and leave the pseudo-gradient in the outer state.

        Args:
            work: What the objective is to learn from.
            round: The round, for the schedule.
            first_step: Steps already taken in this round, for the schedule.
            go_on: Continue from the pseudo-gradient that lies in the outer state instead of from the outer parameters.
            stop: Asked once per step; true on any rank ends training after that step.
            on_step: Told step (from 0), loss in nats per token, tokens, and what else was measured.
            lr: Highest learning rate of the schedule; the genesis' one if None.

        Raises:
            NodeError: The objective cannot use the work.
        """
        # The views are of the copy that is current now: the daemon cannot flip it away from under us unseen.
        self._schedule = self._inner if lr is None else self._inner.model_copy(update={"lr": lr})
        outer, sequence = self._state.params, self._state.sequence
        self._model.train()
        steps = self._objective.steps(work, self._place)
        self._reshard()
        if go_on:
            self._shards.load_difference(outer, self._state.gradient)
        else:
            self._shards.load(outer)
        done = Trained(0, 0, 0, 0.0, True)
        total_loss = 0.0
        for step in steps:
            if not step.parts:
                done = replace(done, samples=done.samples + step.samples)
                continue
            stepped = self._step(step, round, first_step + done.steps, stop)
            on_step(done.steps, stepped.loss, step.tokens, stepped.metrics)
            if not stepped.finite:
                self._fresh_optimizer()
                self._shards.write_nothing(self._state.gradient)
                return Trained(done.samples, done.tokens, done.steps, stepped.loss, False)
            total_loss += stepped.loss * step.tokens
            done = Trained(
                done.samples + step.samples,
                done.tokens + step.tokens,
                done.steps + 1,
                total_loss / max(done.tokens + step.tokens, 1),
                True,
            )
            if stepped.ending:
                break
        self._shards.write_difference(outer, self._state.gradient)
        if self._state.sequence != sequence:
            raise RuntimeError("the outer state was flipped while its workers were training")
        return done

    def evaluate(self) -> float | None:
        """Mean nats per token of the outer parameters on what the objective holds out, the same on all ranks.

        None where it holds nothing out.
        """
        self._model.eval()
        self._load(self._state.params)
        step = self._objective.held_out(self._place)
        if not step.parts:
            return None
        loss = torch.zeros(1, dtype=torch.float64)
        for part in step.parts:
            with torch.no_grad():
                loss[0] += self._objective.loss(part, self._place).loss.item()
        self._reshard()
        self._sum(loss)
        return float(loss[0]) / step.tokens

    def generate(self, prompt: Sequence[int], count: int, temperature: float, seed: int) -> list[int]:
        """Continue a prompt with the outer parameters.

        Args:
            prompt: Token ids, at least one.
            count: Tokens to draw; fewer come when the end mark is drawn.
            temperature: 0 for the likeliest token each time.
            seed: Decides the draws.

        Returns:
            The drawn token ids, the same on all ranks.
        """
        self._shards.load(self._state.params)
        self._model.eval()
        random = torch.Generator().manual_seed(seed)
        ids = list(prompt)
        for _ in range(count):
            window = torch.tensor([ids[-self._sections.model.context :]], device=self._device)
            with torch.no_grad():
                logits = self._model(input_ids=window, use_cache=False).logits[0, -1].float().cpu()
            if temperature > 0:
                drawn = torch.multinomial(torch.softmax(logits / temperature, 0), 1, generator=random)
            else:
                drawn = logits.argmax(keepdim=True)
            if self._world > 1:
                dist.broadcast(drawn, 0)
            if int(drawn) == 0:
                break
            ids.append(int(drawn))
        self._reshard()
        return ids[len(prompt) :]

    def _step(self, step: Step, round: int, number: int, stop: Callable[[], bool]) -> Stepped:
        """One optimizer step."""
        tokens = max(step.tokens, 1)
        totals = torch.zeros(3 + len(self._objective.sums), dtype=torch.float64)
        peaks = torch.zeros(len(self._objective.peaks), dtype=torch.float64)
        for part in step.parts:
            passed = self._objective.loss(part, self._place)
            # FSDP2 averages over ranks; the factor makes that the sum, divided by all targets of the step.
            (passed.loss * (self._world / tokens)).backward()
            totals[0] += passed.loss.item()
            totals[3:] += passed.sums
            peaks = torch.maximum(peaks, passed.peaks)
        for run in self._shards.runs:
            gradient = run.sharded.grad
            run.local.grad = None if gradient is None else gradient.to_local()
            run.sharded.grad = None
        squares = [run.local.grad.square().sum() for run in self._shards.runs if run.local.grad is not None]
        totals[1] = float(torch.stack(squares).sum()) if squares else 0.0
        totals[2] = float(stop())
        self._sum(totals)
        if len(peaks) and self._world > 1:
            dist.all_reduce(peaks, dist.ReduceOp.MAX)
        loss, squared, ending = float(totals[0]) / tokens, float(totals[1]), float(totals[2]) > 0
        norm = math.sqrt(max(squared, 0.0))
        finite = math.isfinite(loss) and math.isfinite(norm) and math.isfinite(squared)
        if finite:
            self._apply(round, number, norm)
        metrics = {"norm": norm}
        metrics |= dict(zip(self._objective.sums, (totals[3:] / tokens).tolist(), strict=True))
        metrics |= dict(zip(self._objective.peaks, peaks.tolist(), strict=True))
        return Stepped(loss, metrics, finite, ending)

    def _apply(self, round: int, step: int, norm: float) -> None:
        if norm > self._inner.clip:
            gradients = [run.local.grad for run in self._shards.runs if run.local.grad is not None]
            torch._foreach_mul_(gradients, self._inner.clip / norm)
        length = self._sections.round.inner_steps
        progress = (round + min(step / length, 1.0)) / self._sections.run.rounds
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self._schedule, progress, self._age)
        self._optimizer.step()
        self._age += 1

    def _load(self, params: npt.NDArray[np.float32]) -> None:
        """Replace the weights, also those that a pass without a backward one has left gathered."""
        self._reshard()
        self._shards.load(params)

    def _fresh_optimizer(self) -> None:
        for run in self._shards.runs:
            run.local.requires_grad_(False)
        decayed = [run.local for run in self._shards.runs if run.sharded.dim() > 1]
        others = [run.local for run in self._shards.runs if run.sharded.dim() <= 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": self._inner.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=self._inner.lr,
            betas=self._inner.betas,
            fused=True,
        )
        self._age = 0

    def _sum(self, values: torch.Tensor) -> None:
        if self._world > 1:
            dist.all_reduce(values)

    def _reshard(self) -> None:
        """Forget gathered parameters: after a forward pass without backward nothing else would."""
        for module in self._model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


class StopClock:
    """Answers whether to stop: after a time budget, or when the daemon said so.

    Args:
        budget: Seconds from now, or None.
        asked: Whether the daemon has said so.
    """

    def __init__(self, budget: float | None, asked: Callable[[], bool]) -> None:
        self._until = None if budget is None else time.monotonic() + budget
        self._asked = asked

    def __call__(self) -> bool:
        """Whether training should end after this step."""
        return self._asked() or (self._until is not None and time.monotonic() >= self._until)
