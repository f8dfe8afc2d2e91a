"""One rank of a node's inner loop: FSDP2 inside, AdamW on the local shards, the same steps on all ranks.

All ranks get the same commands and take the same decisions: whatever may differ between them (loss, gradient
norm, the wish to stop) is summed in one small reduction per step before anyone acts on it.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from diloco.architecture import layout_of
from diloco.data.samples import Samples
from diloco.genesis import Genesis
from diloco.model import empty_model, materialize
from diloco.outer_state import OuterState
from diloco.worker.schedule import learning_rate
from diloco.worker.shards import Shards


@dataclass(frozen=True)
class Trained:
    """What one `train` did.

    Attributes:
        samples: Samples used, from the beginning of the spans on.
        tokens: Target tokens of these samples.
        steps: Optimizer steps.
        loss: Mean nats per token over all steps; NaN or infinity of the step that ended it where not finite.
        finite: False when a loss or gradient was not; then nothing is contributed.
    """

    samples: int
    tokens: int
    steps: int
    loss: float
    finite: bool


class Trainer:
    """Model, optimizer and samples of one rank.

    Args:
        genesis: The run.
        state: The node's outer state.
        samples: The run's samples.
        mesh: One-dimensional device mesh over the node's workers.
        device: This rank's device.
    """

    def __init__(
        self, genesis: Genesis, state: OuterState, samples: Samples, mesh: DeviceMesh, device: torch.device
    ) -> None:
        self._sections = genesis.sections
        self._inner = self._schedule = genesis.sections.inner
        self._state = state
        self._samples = samples
        self._device = device
        self._rank, self._world = mesh.get_local_rank(), mesh.size()
        self._model = empty_model(self._sections.model)
        for layer in self._model.model.layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=self._world > 1)
        fully_shard(self._model, mesh=mesh, reshard_after_forward=False)
        materialize(self._model, device)
        self._shards = Shards(self._model, layout_of(self._sections.model))
        self._fresh_optimizer()

    def train(
        self,
        spans: Sequence[tuple[int, int]],
        round: int,
        first_step: int,
        go_on: bool,
        stop: Callable[[], bool],
        on_step: Callable[[int, float, int], None],
        lr: float | None = None,
    ) -> Trained:
        """Take inner steps over leased positions and leave the pseudo-gradient in the outer state.

        Args:
            spans: Start and count of leased positions, in the order to be used.
            round: The round, for the schedule.
            first_step: Steps already taken in this round, for the schedule.
            go_on: Continue from the pseudo-gradient that lies in the outer state instead of from the outer parameters.
            stop: Asked once per step; true on any rank ends training after that step.
            on_step: Told step (from 0), loss in nats per token, tokens.
            lr: Highest learning rate of the schedule; the genesis' one if None.
        """
        # The views are of the copy that is current now: the daemon cannot flip it away from under us unseen.
        self._schedule = self._inner if lr is None else self._inner.model_copy(update={"lr": lr})
        outer, sequence = self._state.params, self._state.sequence
        if go_on:
            self._shards.load_difference(outer, self._state.gradient)
        else:
            self._shards.load(outer)
        self._model.train()
        positions = [position for start, count in spans for position in range(start, start + count)]
        size = self._inner.samples_per_step
        done = Trained(0, 0, 0, 0.0, True)
        total_loss = 0.0
        for step, begin in enumerate(range(0, len(positions), size)):
            chosen = positions[begin : begin + size]
            loss, finite, ending = self._step(chosen, round, first_step + step, stop)
            tokens = len(chosen) * self._sections.model.context
            on_step(step, loss, tokens)
            if not finite:
                self._fresh_optimizer()
                self._shards.write_nothing(self._state.gradient)
                return Trained(done.samples, done.tokens, done.steps, loss, False)
            total_loss += loss * tokens
            done = Trained(
                done.samples + len(chosen),
                done.tokens + tokens,
                done.steps + 1,
                total_loss / (done.tokens + tokens),
                True,
            )
            if ending:
                break
        self._shards.write_difference(outer, self._state.gradient)
        if self._state.sequence != sequence:
            raise RuntimeError("the outer state was flipped while its workers were training")
        return done

    def evaluate(self) -> float:
        """Mean nats per token of the outer parameters on the run's validation samples, the same on all ranks."""
        self._shards.load(self._state.params)
        self._model.eval()
        batch = self._inner.batch
        samples = self._samples.validation(self._sections.round.evaluation_batches * batch)
        sums = torch.zeros(2, dtype=torch.float64)
        for begin in range(0, len(samples), batch):
            part = samples[begin : begin + batch]
            with torch.no_grad():
                sums[0] += self._loss_sum(*self._mine(part)).item()
            sums[1] += part[:, 1:].size
        self._reshard()
        loss = sums[:1].clone()
        self._sum(loss)
        return float(loss[0] / sums[1])

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

    def _step(
        self, positions: Sequence[int], round: int, step: int, stop: Callable[[], bool]
    ) -> tuple[float, bool, bool]:
        """One optimizer step: loss, whether all was finite, whether training ends here."""
        rows = np.stack([self._samples.sample(position) for position in positions])
        targets = rows[:, 1:].size
        mine = 0.0
        for begin in range(0, len(rows), self._inner.batch):
            loss = self._loss_sum(*self._mine(rows[begin : begin + self._inner.batch]))
            # FSDP2 averages over ranks; the factor makes that the sum, divided by all targets of the step.
            (loss * (self._world / targets)).backward()
            mine += loss.item()
        for run in self._shards.runs:
            gradient = run.sharded.grad
            run.local.grad = None if gradient is None else gradient.to_local()
            run.sharded.grad = None
        squares = [run.local.grad.square().sum() for run in self._shards.runs if run.local.grad is not None]
        squared = float(torch.stack(squares).sum()) if squares else 0.0
        sums = torch.tensor([mine, squared, float(stop())], dtype=torch.float64)
        self._sum(sums)
        loss_mean, norm, ending = (
            float(sums[0]) / targets,
            math.sqrt(max(float(sums[1]), 0.0)),
            float(sums[2]) > 0,
        )
        finite = math.isfinite(loss_mean) and math.isfinite(norm) and math.isfinite(float(sums[1]))
        if finite:
            self._apply(round, step, norm)
        return loss_mean, finite, ending

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

    def _loss_sum(self, inputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Summed nats of this rank's samples; those of weight 0 only keep the ranks in step."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._inner.precision == "bf16"):
            logits = self._model(input_ids=inputs, use_cache=False).logits
        losses = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
        return (losses.view(targets.shape).sum(1) * weights).sum()

    def _mine(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """This rank's share of a batch: inputs, targets, weights; every rank has at least one row."""
        share = -(-len(rows) // self._world)
        part = rows[self._rank * share : (self._rank + 1) * share]
        weights = torch.zeros(share)
        weights[: len(part)] = 1.0
        if len(part) < share:
            part = np.concatenate([part, np.repeat(rows[:1], share - len(part), axis=0)])
        tensor = torch.from_numpy(part).to(self._device)
        return tensor[:, :-1], tensor[:, 1:], weights.to(self._device)

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
