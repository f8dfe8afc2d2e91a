"""The engine of a rollout worker: a process of its own, with the newest policy that there is."""

from pathlib import Path

from diloco.genesis import Genesis
from node.roles.policies import PolicyFollower
from node.runfile import RunFile
from rl.config import kind_of, rl_of
from rl.engine.client import RemoteEngine, start_engine
from rl.engine.limits import Limits


async def engine_of(
    genesis: Genesis, runfile: RunFile, policies: PolicyFollower, folder: Path
) -> RemoteEngine:
    """Start it.

    Raises:
        NodeError: The policy cannot be had, or the engine does not start with it.
    """
    known = await policies.after(-1)
    path = await policies.bring(known)
    return await start_engine(
        genesis.sections.model,
        path,
        known.version,
        folder=folder / "engine",
        digest=known.weights,
        kind=kind_of(rl_of(genesis.sections)),
        threads=runfile.node.threads or 1,
        limits=Limits(slots=runfile.policy.requests),
        tokenizer=genesis.tokenizer,
    )
