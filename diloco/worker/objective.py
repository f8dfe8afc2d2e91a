"""What the inner steps of a worker minimise: the seam between the optimizer and what is learnt.

A kind of training is a program of its own (`python -m diloco.worker` for text), which gives `serve` a `Kind`. Which
program a node runs, its daemon's code says; nothing that comes from a peer names a module.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from diloco.genesis import Genesis

Part = Any
"""One forward and backward pass of this rank, as its objective made it."""


@dataclass(frozen=True)
class Place:
    """Where an objective computes.

    Attributes:
        model: The sharded model. Each of its forward passes is made by all ranks together.
        rank: This rank.
        world: Number of ranks.
        device: This rank's device.
        precision: "bf16" computes under autocast.
        load: Replaces the weights by flat ones, float32[parameters]; for passes before an inner step only.
    """

    model: LlamaForCausalLM
    rank: int
    world: int
    device: torch.device
    precision: str
    load: Callable[[npt.NDArray[np.float32]], None]

    def logits(self, **inputs: Any) -> torch.Tensor:
        """Logits of token ids; in bf16 where the run computes so."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            logits: torch.Tensor = self.model(use_cache=False, **inputs).logits
        return logits


@dataclass(frozen=True)
class Step:
    """One inner step.

    Attributes:
        samples: Positions that it uses up.
        tokens: Target tokens on all ranks.
        parts: This rank's passes; all ranks have equally many. Without one nothing is learnt, and the optimizer rests.
    """

    samples: int
    tokens: int
    parts: Sequence[Part]


@dataclass(frozen=True)
class Passed:
    """What a pass gave.

    Attributes:
        loss: Summed over this rank's target tokens of the pass.
        sums: float64 on the CPU, one for each of the objective's `sums`, summed over the same tokens.
        peaks: float64 on the CPU, one for each of its `peaks`.
    """

    loss: torch.Tensor
    sums: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    peaks: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))


class Objective(Protocol):
    """What is learnt from the positions of a lease. All ranks call it alike, with the same arguments."""

    sums: tuple[str, ...]
    """Names of what each pass sums over its tokens; means over all ranks are told with each inner step."""
    peaks: tuple[str, ...]
    """Names of what each pass has a largest value of."""

    def steps(self, work: dict[str, Any], place: Place) -> Iterable[Step]:
        """The inner steps of a piece of work, in order.

        Until this returns the weights may be replaced; then the trainer loads those it begins from.

        Args:
            work: What the daemon handed over, from `WorkerGroup.train`.
            place: Where passes are made.

        Raises:
            NodeError: The work cannot be used.
        """
        ...

    def loss(self, part: Part, place: Place) -> Passed:
        """One forward pass."""
        ...

    def held_out(self, place: Place) -> Step:
        """The passes of an evaluation; without a part where the objective holds nothing out."""
        ...


class Kind(Protocol):
    """A kind of training, as the program of a worker knows it."""

    def prepare(self, genesis: Genesis, options: argparse.Namespace) -> None:
        """What the first rank does before torch is imported, so that wrong data is said at once.

        Raises:
            NodeError: The data is not there.
        """
        ...

    def objective(self, genesis: Genesis, options: argparse.Namespace) -> Objective:
        """The objective, on each rank, once the first one is prepared.

        Args:
            genesis: The run.
            options: The worker's command line; `options.settings` is what the daemon gave for this kind.

        Raises:
            NodeError: The settings are not those of this kind.
        """
        ...
