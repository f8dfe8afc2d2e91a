"""A worker's part of the flat layout: FSDP2 shards dimension 0, so it is one contiguous run per parameter.

Rows need not divide by the number of workers, and a worker may have no row of a small parameter at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from diloco.layout import Layout
from protocol.errors import Code, NodeError

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Run:
    """One parameter's rows on this worker.

    Attributes:
        name: The parameter.
        place: Where the rows lie in the flat vector.
        local: fp32 tensor of the rows, sharing memory with FSDP2's shard.
        sharded: The parameter itself, to read its gradient from.
    """

    name: str
    place: slice
    local: torch.Tensor
    sharded: torch.nn.Parameter


class Shards:
    """This worker's runs of all parameters. Make it before the first forward pass, while all is sharded.

    Args:
        module: The model after `fully_shard`, with memory.
        layout: Its layout.

    Raises:
        NodeError: TRN_MODEL when parameters and layout differ.
    """

    def __init__(self, module: torch.nn.Module, layout: Layout) -> None:
        self.runs = tuple(_runs(module, layout))

    def load(self, outer: Floats) -> None:
        """Copy this worker's rows from the flat outer parameters."""
        with torch.no_grad():
            for run in self.runs:
                run.local.copy_(torch.tensor(outer[run.place]).view(run.local.shape))

    def write_difference(self, outer: Floats, out: Floats) -> None:
        """Write the pseudo-gradient, outer minus inner, of this worker's rows; each difference is rounded once.

        Args:
            outer: Flat outer parameters that training began from.
            out: Flat region that all workers of the node fill together.
        """
        for run in self.runs:
            inner = run.local.detach().to("cpu").numpy().reshape(-1)
            np.subtract(outer[run.place], inner, out=out[run.place])

    def write_nothing(self, out: Floats) -> None:
        """Write a pseudo-gradient of zeros into this worker's rows."""
        for run in self.runs:
            out[run.place] = 0.0

    def load_difference(self, outer: Floats, difference: Floats) -> None:
        """Go back to inner parameters from a pseudo-gradient that was written before."""
        with torch.no_grad():
            for run in self.runs:
                inner = outer[run.place] - difference[run.place]
                run.local.copy_(torch.from_numpy(inner).view(run.local.shape))


def _runs(module: torch.nn.Module, layout: Layout) -> Iterator[Run]:
    named = list(module.named_parameters())
    if [name for name, _ in named] != [slot.name for slot in layout.parameters]:
        raise NodeError(Code.TRN_MODEL, "The sharded model names other parameters than the layout.")
    for slot, (name, parameter) in zip(layout.parameters, named, strict=True):
        if not isinstance(parameter, DTensor):
            raise NodeError(Code.TRN_MODEL, f"FSDP2 has not sharded {name}.")
        shape, offset = compute_local_shape_and_global_offset(
            parameter.shape, parameter.device_mesh, parameter.placements
        )
        local = parameter.to_local().detach()
        if tuple(local.shape) != tuple(shape):
            raise NodeError(
                Code.TRN_MODEL, f"The shard of {name} has the shape {tuple(local.shape)}, not {shape}."
            )
        # A worker without rows is said to begin behind the last one.
        first = min(offset[0], slot.shape[0])
        yield Run(name, slot.rows(first, shape[0]), local, parameter)
