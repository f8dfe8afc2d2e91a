"""A supervised start: a policy that solves a few tasks in a hundred, so that rewards have something to choose from.

A model is trained on an environment's solved examples until it first solves a wanted share of held-out tasks. That
share is not estimated by sampling: the chance that a solution is drawn is the product of its tokens' probabilities,
which one forward pass gives.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import numpy.typing as npt
import torch
from blake3 import blake3
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from diloco.architecture import initial_parameters, layout_of
from diloco.config import ModelSection
from diloco.model import model_with
from protocol.errors import Code, NodeError
from rl.environments.interface import Environment, Message, Task
from rl.environments.transcript import Renderer

_CONTEXT = "intellect-node 2026 rl warm start 1"

Solution = Callable[[Task], str]
"""What the model should answer to a task."""


@dataclass(frozen=True)
class Plan:
    """How a warm start goes.

    Attributes:
        low: Share of held-out tasks that is solved at its end, at least.
        high: ... and at most.
        lr: AdamW's learning rate.
        warmup: Steps of linear warm-up.
        batch: Examples of one step.
        every: Steps between evaluations.
        held_out: Tasks of an evaluation.
        most: Steps after which it is given up.
        temperature: That the policy will be sampled with.
    """

    low: float = 0.05
    high: float = 0.20
    lr: float = 3e-3
    warmup: int = 10
    batch: int = 128
    every: int = 5
    held_out: int = 256
    most: int = 2000
    temperature: float = 1.0


@dataclass(frozen=True)
class Evaluation:
    """What a model was like after some steps.

    Attributes:
        step: Steps taken so far.
        loss: Nats per token of the solutions, in the step before.
        solved: Share of held-out tasks that sampling solves, the mean over tasks.
    """

    step: int
    loss: float
    solved: float


@dataclass(frozen=True)
class Started:
    """A policy to begin with.

    Attributes:
        params: float32[parameters] in layout order.
        steps: Steps that its weights have behind them.
        solved: Share of held-out tasks that it solves.
    """

    params: npt.NDArray[np.float32]
    steps: int
    solved: float


def written(task: Task) -> str:
    """The solution of an environment that keeps it as ``text`` in a task's answer."""
    return str(task.answer["text"])


def warm_start(
    model: ModelSection,
    environment: Environment,
    renderer: Renderer,
    seed: int,
    plan: Plan | None = None,
    *,
    solution: Solution = written,
    threads: int | None = None,
    told: Callable[[Evaluation], None] = lambda evaluation: None,
) -> Started:
    """Train from the run's drawn weights until a share of held-out tasks between two bounds is solved.

    Where one evaluation lies below the bounds and the next above, training goes back to the former with a quarter of
    the learning rate.

    Args:
        model: Shape of the model.
        environment: Its tasks; held out are those of other seeds than what is trained on.
        renderer: Tasks as tokens.
        seed: Of the run: decides the drawn weights and the tasks.
        plan: How it goes.
        solution: What to answer to a task.
        threads: Of torch; unchanged if None.
        told: Told each evaluation.

    Raises:
        NodeError: ``TRN_MODEL`` when the bounds are not met within ``plan.most`` steps.
    """
    plan = plan or Plan()
    if threads is not None:
        torch.set_num_threads(threads)
    module = model_with(model, initial_parameters(model, seed)).train()
    examples = _examples(environment, renderer, solution, seed, "warm start", model.context)
    held_out = _take(
        _examples(environment, renderer, solution, seed, "held out", model.context), plan.held_out
    )
    lr, kept = plan.lr, (flat(module, model), 0)
    optimizer, step = _optimizer(module, lr), 0
    for _ in range(plan.most):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / (plan.warmup + 1))
        loss = _learn(module, optimizer, _take(examples, plan.batch))
        step += 1
        if step % plan.every:
            continue
        solved = solve_rate(module, held_out, plan.temperature)
        told(Evaluation(step, loss, solved))
        if plan.low <= solved <= plan.high:
            return Started(flat(module, model), step, solved)
        if solved < plan.low:
            kept = (flat(module, model), step)
        else:
            module = model_with(model, kept[0]).train()
            lr, step = lr / 4, kept[1]
            optimizer = _optimizer(module, lr)
    raise NodeError(
        Code.TRN_MODEL,
        f"In {plan.most} steps of the warm start the share of solved tasks was never between {plan.low:.0%} and "
        f"{plan.high:.0%}.",
        fix="Take easier tasks, a larger model, or other bounds.",
    )


@dataclass(frozen=True)
class Solved:
    """A task with its solution, as tokens.

    Attributes:
        tokens: Prompt and solution, which ends with the end token.
        prompt: Tokens of the prompt.
    """

    tokens: tuple[int, ...]
    prompt: int


def solved_task(task: Task, renderer: Renderer, solution: Solution = written) -> Solved:
    """A task and its solution, laid out as a conversation in which the model answers so."""
    prompt = renderer.prompt(task.messages)
    whole = renderer.prompt((*task.messages, Message("assistant", solution(task))))
    end = len(whole) - len(renderer.prompt(()))
    return Solved(whole[:end], len(prompt))


def solve_rate(module: LlamaForCausalLM, tasks: Sequence[Solved], temperature: float = 1.0) -> float:
    """The share of tasks whose solution is drawn at a temperature, in the mean over all draws."""
    with torch.no_grad():
        logprobs, mask = _logprobs(module, tasks, temperature)
        return float((logprobs * mask).sum(1).exp().mean())


def flat(module: LlamaForCausalLM, model: ModelSection) -> npt.NDArray[np.float32]:
    """The weights of a whole model, float32[parameters] in layout order."""
    named = dict(module.named_parameters())
    values = np.empty(layout_of(model).size, np.float32)
    for slot in layout_of(model).parameters:
        values[slot.slice] = named[slot.name].detach().cpu().numpy().reshape(-1)
    return values


def _examples(
    environment: Environment, renderer: Renderer, solution: Solution, seed: int, purpose: str, context: int
) -> Iterator[Solved]:
    """Solved tasks without end, other ones for each purpose."""
    for number in count():
        digest = blake3(f"{seed} {purpose} {number}".encode(), derive_key_context=_CONTEXT).digest(8)
        solved = solved_task(environment.task(int.from_bytes(digest) >> 1), renderer, solution)
        if len(solved.tokens) > context:
            raise NodeError(
                Code.TRN_MODEL,
                f"A solved task has {len(solved.tokens)} tokens, the model a context of {context}.",
            )
        yield solved


def _take(examples: Iterator[Solved], number: int) -> list[Solved]:
    return list(islice(examples, number))


def _learn(module: LlamaForCausalLM, optimizer: torch.optim.Optimizer, examples: Sequence[Solved]) -> float:
    """One step on the tokens of solutions; nats per token before it."""
    logprobs, mask = _logprobs(module, examples, 1.0)
    loss = -(logprobs * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    return float(loss.item())


def _logprobs(
    module: LlamaForCausalLM, examples: Sequence[Solved], temperature: float
) -> tuple[Tensor, Tensor]:
    """float32[B, L - 1] of each next token, and which of them belong to a solution.

    Padding stands behind, where no token sees it.
    """
    length = max(len(each.tokens) for each in examples)
    tokens = torch.zeros(len(examples), length, dtype=torch.long)
    mask = torch.zeros(len(examples), length - 1)
    for row, each in enumerate(examples):
        tokens[row, : len(each.tokens)] = torch.tensor(each.tokens)
        mask[row, each.prompt - 1 : len(each.tokens) - 1] = 1.0
    logits = module(input_ids=tokens, use_cache=False).logits[:, :-1].float() / temperature
    return torch.log_softmax(logits, -1).gather(2, tokens[:, 1:, None])[..., 0], mask


def _optimizer(module: LlamaForCausalLM, lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
