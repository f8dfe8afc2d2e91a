"""The demo's folder: what lies where, whose it is, and whether there is a demo in it to go on with."""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from node import eventlog
from node.demo.deeds import Deeds
from node.demo.options import DemoOptions
from node.lifecycle import holder, prepare_folder
from protocol.errors import Code, NodeError

_LOCK = "demo.lock"
_OURS = ("run.toml", "demo.jsonl", "report.html", "report.json", "model", "baseline", "logs")


@dataclass(frozen=True)
class DemoFolder:
    """Paths in the folder.

    Attributes:
        path: The folder.
    """

    path: Path

    @property
    def run_file(self) -> Path:
        """The run file of all nodes."""
        return self.path / "run.toml"

    @property
    def journal(self) -> Path:
        """The demo's own event log: what it did to the nodes."""
        return self.path / "demo.jsonl"

    @property
    def model(self) -> Path:
        """The trained model, for Hugging Face."""
        return self.path / "model"

    @property
    def baseline(self) -> Path:
        """Where the synchronous baseline trains."""
        return self.path / "baseline"

    def node(self, name: str) -> Path:
        """A node's data directory."""
        return self.path / name

    def log(self, name: str) -> Path:
        """What a node, or another child, prints."""
        return self.path / "logs" / f"{name}.log"


@contextlib.contextmanager
def hold(path: Path) -> Iterator[DemoFolder]:
    """Hold the folder for this demo; the lock goes with the process.

    Raises:
        NodeError: STO_LOCKED when another demo runs in it; STO_UNWRITABLE, STO_FULL.
    """
    prepare_folder(path)
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NodeError(Code.STO_UNWRITABLE, f"{path} cannot be used: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NodeError(
                Code.STO_LOCKED,
                f"Another demo runs in {path}.",
                fix="Wait for its end, or give this one another folder with --dir.",
            ) from error
        yield DemoFolder(path)
    finally:
        os.close(descriptor)


def open_demo(folder: DemoFolder, names: tuple[str, ...], options: DemoOptions) -> bool:
    """See whether there is an unfinished demo to go on with; else make the folder empty for a new one.

    An unfinished demo is one that was broken off after a round was committed. A finished one is replaced.

    Args:
        folder: Held by this process.
        names: Of the nodes.
        options: Of this start.

    Returns:
        Whether to go on with what is there.

    Raises:
        NodeError: CFG_USAGE when an unfinished demo has other options, or the folder holds something else;
            STO_LOCKED when a node of it still runs.
    """
    deeds = Deeds.of(eventlog.read(folder.journal))
    nodes = sorted(each for each in folder.path.glob("node-*") if each.is_dir())
    for node in nodes:
        held_by = holder(node)
        if held_by is not None:
            raise NodeError(
                Code.STO_LOCKED,
                f"The node in {node} still runs, process {held_by.pid}.",
                fix=f"Stop it with `intellect-node stop --now --dir {node}`.",
            )
    if deeds.starts and deeds.ended is None and _has_commit(folder, names):
        if deeds.options != options.plain():
            was = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in deeds.options.items())
            raise NodeError(
                Code.CFG_USAGE,
                f"{folder.path} holds an unfinished demo with other options.",
                fix=f"Go on with it by {was}, use another --dir, or remove the folder.",
            )
        return True
    _clear(folder, nodes, started=bool(deeds.starts))
    return False


def _has_commit(folder: DemoFolder, names: tuple[str, ...]) -> bool:
    return any(
        event.kind == "commit" for name in names for event in eventlog.read(folder.node(name) / eventlog.FILE)
    )


def _clear(folder: DemoFolder, nodes: list[Path], started: bool) -> None:
    """Remove a former demo, and nothing that is not one."""
    present = [*nodes, *(folder.path / name for name in _OURS if (folder.path / name).exists())]
    if present and not started:
        raise NodeError(
            Code.CFG_USAGE,
            f"{folder.path} holds {present[0].name}, but no demo made it.",
            fix="Give the demo a folder of its own with --dir.",
        )
    try:
        # The journal goes last: without it the rest would not be known as ours.
        for each in sorted(present, key=lambda path: path == folder.journal):
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()
    except OSError as error:
        code = Code.STO_FULL if error.errno == errno.ENOSPC else Code.STO_UNWRITABLE
        raise NodeError(code, f"{error.filename} cannot be removed: {error.strerror}.") from error
