"""The demo's children. Each is a command that a person could type; none outlives the demo."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import psutil

import node
from node.children import start_child

LAST_WORDS_BYTES = 2000


def command_line(*words: str | Path) -> list[str]:
    """`intellect-node WORDS…` by this same Python."""
    return [sys.executable, "-m", "node", *map(str, words)]


def module_line(module: str, *words: str | Path) -> list[str]:
    """`python -m MODULE WORDS…` by this same Python."""
    return [sys.executable, "-m", module, *map(str, words)]


def environment() -> dict[str, str]:
    """This process's environment, in which the children find the same package, wherever they run."""
    root = str(Path(node.__file__).parent.parent)
    rest = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{rest}" if rest else root}


@dataclass
class Child:
    """One child process.

    Attributes:
        name: Of the node, or what it does.
        log: What it prints.
        process: The process.
        below: Processes that it had started, as of the last `see_below`.
    """

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    below: list[psutil.Process] = field(default_factory=list)

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self.process.poll()

    def see_below(self) -> None:
        """Remember which processes are below it. It takes some milliseconds."""
        with contextlib.suppress(psutil.Error):
            self.below = psutil.Process(self.process.pid).children(recursive=True)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this one process and to none below it."""
        self.process.send_signal(number)

    def left_behind(self) -> list[psutil.Process]:
        """Which of those below it still live."""
        return [each for each in self.below if _lives(each)]

    def last_words(self) -> str:
        """The end of what it printed."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-6:])


def start(name: str, argv: Sequence[str], log: Path, threads: int) -> Child:
    """Start a child whose output goes to a file.

    Call it from the main thread: Linux ends the child when the thread that started it ends.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    return Child(name, log, start_child(argv, threads=threads, log=log, environment=environment()))


def wait_for(children: Iterable[Child], patience: timedelta) -> bool:
    """Wait until all have ended; whether they have."""
    deadline = time.monotonic() + patience.total_seconds()
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
    return True


def end_all(children: Iterable[Child], patience: timedelta = timedelta(seconds=5)) -> None:
    """End these children and every process below them at once, and wait until they are gone."""
    mine = list(children)
    doomed: list[psutil.Process] = []
    for child in mine:
        doomed += child.left_behind()
        if child.status is None:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(child.process.pid)
                doomed += [process, *process.children(recursive=True)]
    for each in doomed:
        with contextlib.suppress(psutil.Error):
            each.kill()
    wait_for(mine, patience)
    deadline = time.monotonic() + patience.total_seconds()
    while any(map(_lives, doomed)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _lives(process: psutil.Process) -> bool:
    """Whether it runs. One that has ended and waits for its parent to notice holds nothing any more."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
