"""What a daemon asks of its workers, in the words of their channel. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import Code, NodeError
from rl.training.limits import MAX_POLICIES

PROGRAM = "rl.training"
"""The program of workers that train a policy, for `WorkerGroup.start`."""


@dataclass(frozen=True)
class Batch:
    """One inner step.

    Attributes:
        path: File with its rows; None when nothing is learnt from its positions.
        positions: Positions that it uses up.
    """

    path: Path | None
    positions: int


@dataclass(frozen=True)
class Work:
    """Inner steps, and the policies that they need.

    Attributes:
        batches: In order.
        policies: Weights file of each policy version that sampled a token of the batches.
        reference: Weights file of the reference policy, where the loss has a divergence from it.
    """

    batches: tuple[Batch, ...]
    policies: Mapping[int, Path]
    reference: Path | None = None


def work_of(
    batches: Sequence[Batch], policies: Mapping[int, Path], reference: Path | None = None
) -> dict[str, Any]:
    """The work for `WorkerGroup.train`.

    Raises:
        NodeError: ``RL_POLICY`` when it names more policy versions than a worker takes.
    """
    _check(policies)
    return {
        "batches": [[None if each.path is None else str(each.path), each.positions] for each in batches],
        "policies": [[version, str(path)] for version, path in sorted(policies.items())],
        "reference": None if reference is None else str(reference),
    }


def parse_work(line: Mapping[str, Any]) -> Work:
    """The reverse of `work_of`, in the worker."""
    policies = {int(version): Path(path) for version, path in line["policies"]}
    _check(policies)
    return Work(
        tuple(Batch(None if path is None else Path(path), int(count)) for path, count in line["batches"]),
        policies,
        None if line["reference"] is None else Path(line["reference"]),
    )


def _check(policies: Mapping[int, Path]) -> None:
    if len(policies) > MAX_POLICIES:
        raise NodeError(
            Code.RL_POLICY,
            f"{len(policies)} policy versions are more than the {MAX_POLICIES} of one piece of work.",
        )
