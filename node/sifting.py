"""`intellect-node sift`: which tasks of a run's environment are worth it, by the policy that the run begins with."""

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diloco.architecture import layout_of
from diloco.creation import create_genesis, initial_parameters_of
from diloco.data.corpus import Corpus
from diloco.data.tokenizer import load_tokenizer
from diloco.weights import write_weights
from node.runfile import RunFile
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from rl.config import kind_of, room_of, rules_of, sampling_of
from rl.engine.client import start_engine
from rl.engine.limits import Limits
from rl.environments.hosting import HostedEnvironment
from rl.environments.measuring import Measured, measure
from rl.environments.sifted import ranges
from rl.environments.transcript import Renderer


@dataclass(frozen=True)
class Sieve:
    """What was found.

    Attributes:
        tasks: All that were played, with what was found of each: "kept", or why it is not.
        environment: The run's.
        config: Its settings.
    """

    tasks: tuple[tuple[Measured, str], ...]
    environment: str
    config: dict[str, Any]

    @property
    def kept(self) -> tuple[int, ...]:
        """Seeds of the tasks that are worth it."""
        return tuple(measured.seed for measured, why in self.tasks if why == "kept")

    def lines(self) -> str:
        """The lines of a run file's `[rl]` that ask these tasks alone."""
        config = {"environment": self.environment, "config": self.config, "tasks": ranges(self.kept)}
        return f'environment = "sifted"\nconfig = {_toml(config)}\n'

    def summary(self) -> str:
        """In a sentence."""
        counted = Counter(why for _, why in self.tasks if why != "kept")
        others = "".join(f", {count} {why}" for why, count in counted.most_common())
        return f"{len(self.kept)} of {len(self.tasks)} tasks are kept{others}."

    def to_json(self) -> str:
        """Every task with its rewards."""
        tasks = [
            {"seed": measured.seed, "rewards": measured.rewards, "found": why, "failure": measured.failure}
            for measured, why in self.tasks
        ]
        return json.dumps({"tasks": tasks, "kept": ranges(self.kept)})


async def sift(
    runfile: RunFile,
    base: Path,
    seeds: range,
    rollouts: int,
    weights: Path | None,
    told: Callable[[Measured, str], None],
) -> Sieve:
    """Play tasks with the run's initial policy, and keep those that its bounds of difficulty would train on.

    Args:
        runfile: The run, of reinforcement learning.
        base: The run file's folder.
        seeds: The tasks.
        rollouts: Of each.
        weights: A safetensors file with another policy of the run's shape.
        told: Told of each task.

    Raises:
        NodeError: CFG_USAGE when the run learns from text; what the run's data, environment and engine raise.
    """
    if not runfile.rl.present:
        raise NodeError(
            Code.CFG_USAGE, "The run learns from text: it has no tasks.", fix="Set rl.environment."
        )
    sections = runfile.sections()
    genesis = create_genesis(sections, Identity.ephemeral().peer_id, base)
    renderer = Renderer(load_tokenizer(genesis.tokenizer, sections.model.vocab))
    difficulty = rules_of(sections).difficulty
    found: list[tuple[Measured, str]] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="intellect-sift-")))
        if weights is None:
            weights = folder / "policy.safetensors"
            corpus = Corpus(genesis.files, sections.data, folder=base, base=base)
            write_weights(weights, layout_of(sections.model), initial_parameters_of(genesis, corpus))
        environment = await stack.enter_async_context(
            HostedEnvironment(runfile.rl.environment, runfile.rl.config)
        )
        limits = Limits(slots=runfile.policy.requests)
        engine = await start_engine(
            sections.model, weights, 0, folder=folder / "engine", kind=kind_of(runfile.rl),
            threads=runfile.node.threads or 1, limits=limits, tokenizer=genesis.tokenizer,
        )  # fmt: skip
        stack.push_async_callback(engine.close)
        async for measured in measure(
            environment, engine, renderer, sampling_of(runfile.rl, renderer),
            room_of(runfile.rl, sections.model.context), seeds, rollouts, -(-2 * limits.slots // rollouts),
        ):  # fmt: skip
            why = difficulty.refuses(measured.rewards) or "kept" if measured.rewards else "failed"
            found.append((measured, why))
            told(measured, why)
    return Sieve(tuple(found), runfile.rl.environment, runfile.rl.config)


def run_sift(
    runfile: RunFile,
    base: Path,
    seeds: range,
    rollouts: int,
    weights: Path | None,
    told: Callable[[Measured, str], None],
) -> Sieve:
    """`sift`, on an event loop of its own."""
    return asyncio.run(sift(runfile, base, seeds, rollouts, weights, told))


def _toml(value: Any) -> str:
    """A value in one line of TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
