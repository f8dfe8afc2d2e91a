"""The objective of text: cross-entropy of the next token, on samples whose positions are leased."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as functional

from diloco.config import RunSections
from diloco.data.samples import Samples
from diloco.worker.objective import Passed, Place, Step


@dataclass(frozen=True)
class Rows:
    """This rank's share of a batch.

    Attributes:
        inputs: int64[rows, context].
        targets: int64[rows, context].
        weights: float32[rows]; those of weight 0 only keep the ranks in step.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor


class Text:
    """See `Objective`. The work names spans: pairs of start and count of positions, in the order to be used.

    Args:
        sections: The run's sections.
        samples: Its samples.
    """

    sums: tuple[str, ...] = ()
    peaks: tuple[str, ...] = ()

    def __init__(self, sections: RunSections, samples: Samples) -> None:
        self._sections, self._samples = sections, samples

    def steps(self, work: dict[str, Any], place: Place) -> Iterator[Step]:
        """See `Objective`; samples are read when their step comes."""
        positions = [position for start, count in work["spans"] for position in range(start, start + count)]
        inner = self._sections.inner
        for begin in range(0, len(positions), inner.samples_per_step):
            chosen = positions[begin : begin + inner.samples_per_step]
            samples = np.stack([self._samples.sample(position) for position in chosen])
            yield step_of(samples, inner.batch, place)

    def loss(self, part: Rows, place: Place) -> Passed:
        """Summed nats of this rank's samples."""
        logits = place.logits(input_ids=part.inputs)
        losses = functional.cross_entropy(
            logits.flatten(0, 1).float(), part.targets.flatten(), reduction="none"
        )
        return Passed((losses.view(part.targets.shape).sum(1) * part.weights).sum())

    def held_out(self, place: Place) -> Step:
        """The run's validation samples."""
        batch = self._sections.inner.batch
        samples = self._samples.validation(self._sections.round.evaluation_batches * batch)
        return step_of(samples, batch, place)


def step_of(samples: npt.NDArray[np.int64], batch: int, place: Place) -> Step:
    """One inner step over samples, int64[samples, context + 1]."""
    parts = [_mine(samples[begin : begin + batch], place) for begin in range(0, len(samples), batch)]
    return Step(len(samples), samples[:, 1:].size, parts)


def _mine(samples: npt.NDArray[np.int64], place: Place) -> Rows:
    """This rank's share; every rank has at least one row."""
    share = -(-len(samples) // place.world)
    part = samples[place.rank * share : (place.rank + 1) * share]
    weights = torch.zeros(share)
    weights[: len(part)] = 1.0
    if len(part) < share:
        part = np.concatenate([part, np.repeat(samples[:1], share - len(part), axis=0)])
    rows = torch.from_numpy(part).to(place.device)
    return Rows(rows[:, :-1], rows[:, 1:], weights.to(place.device))
