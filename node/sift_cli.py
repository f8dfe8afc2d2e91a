"""`intellect-node sift`: tasks that are worth training on."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli_options import AsJson, RunFilePath

if TYPE_CHECKING:
    from rl.environments.measuring import Measured


def sift(
    path: RunFilePath,
    tasks: Annotated[int, typer.Option("--tasks", min=1, max=1_000_000, help="Tasks to play.")] = 256,
    first: Annotated[int, typer.Option("--first", min=0, max=2**62, help="Seed of the first one.")] = 0,
    rollouts: Annotated[
        int | None,
        typer.Option("--rollouts", min=2, max=1024, help="Rollouts of each; rl.group_size by default."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", metavar="FILE", help="A policy; by default what the run begins with.", readable=False
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Also write the lines to a file.", readable=False),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Play tasks of a run's environment before it begins, and print the lines of [rl] that ask those worth it."""
    from node.runfile import load
    from node.sifting import run_sift

    runfile = load(path)
    done = 0

    def told(measured: "Measured", why: str) -> None:
        nonlocal done
        done += 1
        if done * 10 // tasks > (done - 1) * 10 // tasks:
            print(f"{done} of {tasks} tasks were played.", file=sys.stderr)
        if measured.failure:
            print(f"Task {measured.seed}: {measured.failure}", file=sys.stderr)

    found = run_sift(
        runfile, path.parent, range(first, first + tasks), rollouts or runfile.rl.group_size, weights, told
    )
    print(found.summary(), file=sys.stderr)
    if as_json:
        print(found.to_json())
    if not found.kept:
        return 1
    if not as_json:
        print(found.lines(), end="")
    if to is not None:
        to.write_text(found.lines(), encoding="utf-8")
    return 0
