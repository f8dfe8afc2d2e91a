"""The synchronous baseline: the same model on as many tokens, gradients averaged over the nodes at every step.

``python -m node.demo.compare RUN.toml FOLDER STEPS NODES`` prints JSON, and a JSON line per step before that. The
average over the batches of k nodes is the gradient of one batch k times as long, so one worker computes it by
accumulation with the run's own model, data and optimizer: one long round, whose pseudo-gradient is then taken off the
parameters as it is.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diloco.config import RunSections
from diloco.creation import create_genesis, initial_state
from diloco.data.corpus import corpus_of
from diloco.outer_state import OuterState
from diloco.worker.group import StepDone, WorkerGroup
from node.runfile import RunFile, load
from protocol.identity import Identity

SEED = bytes(range(32))
"""Of the baseline's operator key: its genesis describes no run that anybody joins."""


@dataclass(frozen=True)
class Baseline:
    """What the baseline came to.

    Attributes:
        validation_loss: Nats per token, on the run's own validation samples.
        tokens: Trained on.
        steps: Optimizer steps.
        seconds: Of training.
    """

    validation_loss: float
    tokens: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class Positions:
    """Sample positions from the first on."""

    start: int
    count: int


def steps_for(tokens: int, sections: RunSections, nodes: int) -> int:
    """How many synchronous steps of so many nodes use so many tokens, at least one."""
    return max(1, round(tokens / (sections.inner.samples_per_step * sections.model.context * nodes)))


def synchronous(sections: RunSections, steps: int, nodes: int) -> RunSections:
    """The run as one round of so many steps, each over the batches of all nodes; schedule and rest stay as they are."""
    return sections.model_copy(
        update={
            "run": sections.run.model_copy(update={"rounds": 1}),
            "round": sections.round.model_copy(
                update={"inner_steps": steps, "time_budget": None, "start_members": 1}
            ),
            "inner": sections.inner.model_copy(update={"accumulation": sections.inner.accumulation * nodes}),
        }
    )


async def train(
    runfile: RunFile,
    folder: Path,
    base: Path,
    steps: int,
    nodes: int,
    *,
    device: str,
    threads: int,
    on_step: Callable[[StepDone], None],
) -> Baseline:
    """Train the baseline and evaluate it as the run's members do.

    Args:
        runfile: The run's.
        folder: For the worker's files.
        base: The run file's folder.
        steps: Synchronous steps.
        nodes: Whose gradients each step averages.
        device: "cpu" or "cuda".
        threads: Of the worker.
        on_step: Told each step.

    Raises:
        NodeError: As the worker raises it.
    """
    sections = synchronous(runfile.sections(), steps, nodes)
    genesis = create_genesis(sections, Identity.ephemeral(SEED).peer_id, base)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "genesis.json"
    path.write_bytes(genesis.to_bytes())
    state = initial_state(genesis, corpus_of(genesis, folder, base))
    group = await WorkerGroup.start(path, state, 1, device, threads, folder, base=base)
    try:
        count = steps * sections.inner.samples_per_step
        done = await group.train(Positions(0, count), 0, on_step)
        take_off(state)
        loss = await group.evaluate()
        assert loss is not None, "a run of text holds samples out"
        return Baseline(loss, done.tokens, done.steps, done.seconds)
    finally:
        await group.stop()
        state.close()


def take_off(state: OuterState) -> None:
    """Make the inner parameters the outer ones: outer minus pseudo-gradient."""
    params, momentum = state.back()
    params[:] = state.params - state.gradient
    momentum[:] = state.momentum
    state.flip(1)


def main(argv: Sequence[str]) -> int:
    """Print a line per step and then the result, or `error` with one sentence."""
    from dataclasses import asdict

    from node.children import available_cores, die_with_parent_if_asked
    from node.machine import measure

    die_with_parent_if_asked()
    run_file, folder, steps, nodes = Path(argv[0]), Path(argv[1]), int(argv[2]), int(argv[3])
    runfile = load(run_file)
    device = measure(folder).device(runfile.node.device)

    def on_step(done: StepDone) -> None:
        _print({"step": done.step + 1, "steps": steps, "loss": done.loss})

    try:
        found = asyncio.run(
            train(
                runfile,
                folder,
                run_file.parent,
                steps,
                nodes,
                device=device,
                threads=available_cores(),
                on_step=on_step,
            )
        )
    except Exception as error:  # whatever it is, the verdict is to name it
        _print({"error": f"{type(error).__name__}: {error}"})
        return 1
    _print(asdict(found))
    return 0


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
