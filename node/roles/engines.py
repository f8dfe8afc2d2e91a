"""The engine of a rollout worker, with the newest policy that there is."""

import asyncio
from pathlib import Path

from diloco.genesis import Genesis
from node.roles.policies import PolicyFollower
from node.runfile import RunFile
from rl.config import kind_of, rl_of
from rl.engine.generator import Generator
from rl.engine.limits import Limits
from rl.engine.service import TorchEngine
from rl.engine.shape import Shape
from rl.engine.weights import from_file


async def engine_of(
    genesis: Genesis, runfile: RunFile, policies: PolicyFollower, folder: Path
) -> TorchEngine:
    """Start it.

    Raises:
        NodeError: The policy cannot be had, or is not one of the run's model.
    """
    import torch

    torch.set_num_threads(runfile.node.threads or 1)
    known = await policies.after(-1)
    path = await policies.bring(known)
    kind, shape = kind_of(rl_of(genesis.sections)), Shape.of(genesis.sections.model)
    weights = await asyncio.to_thread(from_file, path, shape, kind, known.weights)
    return TorchEngine(Generator(weights, known.version, Limits(slots=runfile.policy.requests)), kind)
