"""The demo with fake nodes, as a program that a test can kill: ``python -m tests.node.demo.fake_demo FOLDER``."""

import sys
from datetime import timedelta
from pathlib import Path

from node.demo import conductor
from node.demo.command import run_demo


def use_fake_nodes() -> None:
    """Have the demo start fake nodes instead of real ones."""

    def command_line(*words: str | Path) -> list[str]:
        return [sys.executable, "-m", "tests.node.demo.fake_node", *map(str, words)]

    conductor.command_line = conductor.module_line = command_line  # type: ignore[attr-defined]
    conductor.DEATH_PATIENCE = timedelta(seconds=0.5)


def run(folder: Path, *, as_json: bool = False) -> int:
    """A demo of three nodes and a joiner."""
    return run_demo(
        nodes=3,
        rounds=6,
        inner_steps=20,
        workers_per_node=1,
        seed=1,
        folder=folder,
        as_json=as_json,
        compare=False,
        browse=True,
    )


if __name__ == "__main__":
    use_fake_nodes()
    raise SystemExit(run(Path(sys.argv[1])))
