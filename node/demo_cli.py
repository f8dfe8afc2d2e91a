"""The command of the two demos."""

from pathlib import Path
from typing import Annotated

import typer

from node.lifecycle import RUNS


def demo(
    nodes: Annotated[
        int, typer.Option("--nodes", min=2, max=16, help="Nodes at the start; one more joins later.")
    ] = 4,
    rounds: Annotated[int, typer.Option("--rounds", min=4, max=1000, help="Rounds to train.")] = 10,
    inner_steps: Annotated[
        int, typer.Option("--inner-steps", min=1, max=1000, help="Steps of each round.")
    ] = 20,
    workers_per_node: Annotated[
        int, typer.Option("--workers-per-node", min=1, max=8, help="Workers of each node.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The run's seed.")] = 1,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where everything goes.", readable=False)
    ] = RUNS / "demo",
    as_json: Annotated[bool, typer.Option("--json", help="Print only the report.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Train the synchronous baseline, too.")] = False,
    browse: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
    rl: Annotated[
        bool, typer.Option("--rl", help="Reinforcement learning instead: one of three workers cheats.")
    ] = False,
    steps: Annotated[int, typer.Option("--steps", min=1, max=1000, help="With --rl: steps to train.")] = 48,
) -> int:
    """Train a small model with a swarm on this machine: one node joins, one is killed, one leaves."""
    if rl:
        from node.demo_rl.command import run_rl_demo

        folder = RUNS / "demo-rl" if folder == RUNS / "demo" else folder
        return int(run_rl_demo(steps=steps, seed=seed, folder=folder, as_json=as_json))
    from node.demo import run_demo

    return int(
        run_demo(
            nodes=nodes,
            rounds=rounds,
            inner_steps=inner_steps,
            workers_per_node=workers_per_node,
            seed=seed,
            folder=folder,
            as_json=as_json,
            compare=compare,
            browse=browse,
        )
    )
