"""How long a daemon takes from its start to its first record in the directory: alone, five at once, with a slow helper.

The daemons are whole ones, started as people start them, of a run so small that its model does not matter. They go on
with a run that they know, as after a power cut; the five find one another again by the addresses that they remember. A
helper that needs a minute to start stands for a slow disk. Seconds are of this machine as busy as it is.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from protocol.directory.p2pd import default_program
from tests.bench.measurement import Measurement

ROOT = Path(__file__).parent.parent.parent
TOGETHER = 5
SLOW = 60
PATIENCE = 180

RUN = """
[run]
name = "start"
rounds = 100

[model]
hidden = 12
layers = 1
heads = 2
kv_heads = 1
intermediate = 35
vocab = 301
context = 16

[data]
source = "text"
paths = ["text"]
max_bytes = 20_000

[network]
directory_port = {port}
"""


class Daemon:
    """One daemon process and its event log."""

    def __init__(self, command: str, run: Path, folder: Path, **environment: str) -> None:
        self._log = folder / "events.jsonl"
        self._read = self._log.stat().st_size if self._log.exists() else 0
        self.began = time.time()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "node", command, str(run), "--dir", str(folder)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def events(self) -> list[dict[str, Any]]:
        """What this start wrote into the log."""
        if not self._log.exists():
            return []
        lines = self._log.read_bytes()[self._read :].splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def seconds_to_record(self) -> float:
        """Waits for the first record; how long it took since the process was started."""
        while time.time() < self.began + PATIENCE:
            for event in self.events():
                if event["kind"] == "directory.record":
                    return float(event["t"]) - self.began
            if self._process.poll() is not None:
                assert self._process.stderr is not None
                raise RuntimeError(f"the daemon ended: {self._process.stderr.read()[-1000:]}")
            time.sleep(0.05)
        raise RuntimeError(f"no record within {PATIENCE} s")

    def processor_seconds(self) -> float:
        """What the daemon and all that it started have used so far: what the start costs on a machine of any load."""
        daemon = psutil.Process(self._process.pid)
        every = [each.cpu_times() for each in (daemon, *daemon.children(recursive=True))]
        return float(sum(times.user + times.system for times in every))

    def end(self) -> None:
        """Ends it at once, with everything that it started."""
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGTERM)  # the second does not drain
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def started(*daemons: tuple[str, Path, Path], **environment: str) -> Iterator[list[Daemon]]:
    """Daemons that are started together, and ended together."""
    running = [Daemon(*daemon, **environment) for daemon in daemons]
    try:
        yield running
    finally:
        for daemon in running:
            daemon.end()


def prepare(base: Path) -> list[tuple[str, Path, Path]]:
    """Makes a run and the folders of its nodes, which know one another's addresses."""
    (base / "text").mkdir()
    for number in range(10):
        lines = (f"{line} and {number} are {line + number}.\n" for line in range(number, 120 + number))
        (base / "text" / f"{number}.txt").write_text("".join(lines))
    ports, runs = free_ports(TOGETHER), []
    for number, port in enumerate(ports):
        run = base / f"RUN-{number}.toml"
        run.write_text(RUN.format(port=port))
        runs.append(run)
    folders = [base / f"node-{number}" for number in range(TOGETHER)]
    with started(("init", runs[0], folders[0])) as (founder,):
        founder.seconds_to_record()
        addresses = [event["multiaddrs"] for event in founder.events() if event["kind"] == "directory.ready"]
    for folder in folders[1:]:
        folder.mkdir()
        shutil.copy(folders[0] / "genesis.json", folder / "genesis.json")
        (folder / "peers.json").write_text(json.dumps(addresses[0]))
    return [("run", run, folder) for run, folder in zip(runs, folders, strict=True)]


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run() -> Measurement:
    """Measure; takes about two minutes, one of them waiting for the slow helper."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        nodes = prepare(base)
        alone = []
        for _ in range(3):
            with started(nodes[0]) as (daemon,):
                alone.append((daemon.seconds_to_record(), daemon.processor_seconds()))
        figures["alone_s"], figures["alone_processor_s"] = sorted(alone)[1]
        with started(*nodes) as daemons:
            figures["slowest_of_five_s"] = max(daemon.seconds_to_record() for daemon in daemons)
        slow = base / "slow-helper"
        slow.write_text(f'#!/bin/sh\nsleep {SLOW}; exec {default_program()} "$@"\n')
        slow.chmod(0o700)
        with started(nodes[0], INTELLECT_NODE_HELPER=str(slow)) as (daemon,):
            figures["with_slow_helper_s"] = daemon.seconds_to_record()
            said = [event for event in daemon.events() if event["kind"] == "directory.starting"]
            figures["signs_of_progress"] = len(said)
    figures["load_of_machine"] = os.getloadavg()[0]
    return Measurement(figures=figures)
