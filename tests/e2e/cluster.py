"""A swarm of real daemons on this machine, as a person would start them; what happened is read from their event logs.

Every process ends with the test process, even if that is killed: `start_child` has the kernel see to it.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from diloco.architecture import initial_parameters, layout_of
from diloco.config import ModelSection
from diloco.weights import write_weights
from node import eventlog
from node.children import child_environment, start_child
from node.eventlog import Event, Tail
from node.machine import listen_error
from tests.diloco.small_run import write_text
from tests.e2e.remains import PATIENCE, Remains

ROOT = Path(__file__).parents[2]

RUN = """\
[run]
name = "tiny"
rounds = 100000
[model]
hidden = 16
layers = 1
heads = 2
kv_heads = 1
intermediate = 32
vocab = 280
context = 16
weights = "first.safetensors"
[data]
source = "text"
paths = ["text"]
max_bytes = 20000
[inner]
batch = 4
warmup_steps = 0
[round]
inner_steps = 4
start_members = 3
chunk = 1024
checkpoint_every = 2
evaluation_batches = 1
[deadline]
ready_floor = "2 s"
attempt = "5 s"
heartbeat = "500 ms"
silence = "4 s"
progress = "3 s"
drain = "20 s"
"""
"""The run: a model of seven thousand values, rounds of a second."""

# Rounds take as long as their bytes: without a limit the daemons would keep both cores busy with hundreds of rounds.
LOCAL = """\
[limits]
upload = "160 kb/s"
[network]
directory_port = {port}
[node]
name = "{name}"
workers = {workers}
threads = 1
"""

# Root may write everywhere; a process without these capabilities, and all below it, may not.
_WITHOUT_PRIVILEGE = """\
import ctypes, os, sys
for capability in (1, 2):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def python(*words: str | Path, privileged: bool = True) -> list[str]:
    """This Python with arguments; without privileges it obeys file modes even for root."""
    rest = list(map(str, words))
    return [sys.executable, *rest] if privileged else [sys.executable, "-c", _WITHOUT_PRIVILEGE, *rest]


def environment(**more: str | Path) -> dict[str, str]:
    """Environment in which children find this source tree, wherever they run."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **{name: str(value) for name, value in more.items()}}


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: Its exit status.
        out: What it printed.
        err: What it said on standard error.
    """

    status: int
    out: str
    err: str

    def refused(self, code: str) -> str:
        """Its words, once it is sure that it refused properly: a code, one sentence, a fix, no stack of calls."""
        assert self.status in (1, 2), f"status {self.status}: {self.err}"
        assert "Traceback" not in self.err, self.err
        (line,) = [line for line in self.err.splitlines() if line.startswith("E-")]
        assert line.startswith(f"{code}: "), self.err
        assert re.search(r"\.( \(peer \w+\))?$", line), line
        assert "  Fix: " in self.err, self.err
        return self.err


def command(*words: str | Path, privileged: bool = True, **more: str | Path) -> Ended:
    """Run `intellect-node WORDS…` to its end."""
    with subprocess.Popen(
        python("-m", "node", *words, privileged=privileged),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(1, environment(**more)),
    ) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return Ended(process.returncode, out, err)


def free_port() -> int:
    """A free port outside the range from which the kernel takes those of outgoing connections."""
    while True:
        port = random.randrange(15_000, 30_000)
        if listen_error("127.0.0.1", port) is None:
            return port


class Daemon:
    """One node: its run file, its data directory, its process while it runs.

    Args:
        name: Its name.
        file: Its run file.
        folder: Its data directory.
        temporary: The directory for temporary files of its processes.
    """

    def __init__(self, name: str, file: Path, folder: Path, temporary: Path) -> None:
        self.name, self.file, self.folder, self._temporary = name, file, folder, temporary
        self.log = folder.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None
        self._tail = Tail(folder / eventlog.FILE)
        self.events: list[Event] = []

    def __repr__(self) -> str:
        return self.name

    # ---- starting and ending

    def start(
        self, *words: str | Path, privileged: bool = True, program: str = "", **more: str | Path
    ) -> "Daemon":
        """Start `intellect-node WORDS[0] RUN.toml --dir DIR WORDS[1:]…`, or a program that stands in for it."""
        assert self.process is None or self.process.poll() is not None
        self.mark()
        first, *rest = words
        what = ("-c", program) if program else ("-m", "node")
        argv = python(*what, first, self.file, "--dir", self.folder, *rest, privileged=privileged)
        variables = environment(TMPDIR=self._temporary, **more)
        self.process = start_child(argv, threads=1, log=self.log, environment=variables)
        return self

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """Its process."""
        assert self.process is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Wait for its end; the exit status."""
        assert self.process is not None
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end; {self.last_words()}") from None

    def said(self) -> str:
        """What it printed since its first start."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_words(self) -> str:
        """For a failure's message."""
        self.look()
        tail = [f"{event.kind} {dict(event.fields)}"[:300] for event in self.events[-12:]]
        return "\n".join([f"the last of {self.name}:", *tail, self.said()[-2000:]])

    # ---- events

    def look(self) -> list[Event]:
        """Read what is new in its log; all events so far."""
        self.events += self._tail.new()
        return self.events

    def mark(self) -> int:
        """The place in its log that is its end now, to wait for what comes after."""
        return len(self.look())

    def wait(
        self, kind: str, where: Callable[[Event], bool] = lambda event: True, *, since: int = 0
    ) -> Event:
        """The first event of a kind for which something holds; fails when the process ends without it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            runs = self.runs
            for event in self.look()[since:]:
                if event.kind == kind and where(event):
                    return event
            since_end = "" if runs else " and has ended"
            if not runs or time.monotonic() > deadline:
                raise AssertionError(f"{self.name} has no {kind}{since_end}; {self.last_words()}")
            time.sleep(0.05)

    def of(self, kind: str, since: int = 0) -> list[Event]:
        """All events of a kind so far."""
        return [event for event in self.look()[since:] if event.kind == kind]

    @property
    def peer(self) -> str:
        """Its peer id."""
        return str(self.wait("node.start")["peer"])

    @property
    def address(self) -> str:
        """A multiaddress by which others join."""
        self.wait("directory.ready")
        return str(self.of("directory.ready")[-1]["multiaddrs"][0])

    def contributed(self, peer: str, *, since: int = 0) -> Event:
        """Wait for a round that this node sees committed with a contribution of a peer."""
        return self.wait("commit", lambda event: peer in event["roster"], since=since)

    def newest_round(self) -> int:
        """The last round that it knows to be committed, -1 before any."""
        return max((event["round"] for event in self.of("commit")), default=-1)

    def status(self) -> dict[str, Any]:
        """What `intellect-node status --json` says."""
        ended = command("status", "--json", "--dir", self.folder)
        assert ended.status == 0, ended.err
        (answer,) = json.loads(ended.out)
        return dict(answer)


class Cluster:
    """The daemons of one run, below one folder.

    Args:
        folder: For everything of theirs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.nodes: dict[str, Daemon] = {}
        write_text(folder)
        write_first_weights(folder)

    def add(self, name: str, *, workers: int = 1, run: str = RUN, folder: Path | None = None) -> Daemon:
        """A node with a run file of its own; `folder` is for a run file that lies elsewhere."""
        file = (folder or self.folder) / f"{name}.toml"
        file.write_text(run + LOCAL.format(name=name, workers=workers, port=free_port()))
        node = self.nodes[name] = Daemon(name, file, self.folder / name, self.temporary)
        return node

    def __getitem__(self, name: str) -> Daemon:
        return self.nodes[name]

    def running(self) -> list[Daemon]:
        """Nodes whose process runs."""
        return [node for node in self.nodes.values() if node.runs]

    def check_digests(self) -> int:
        """All members that were in the state of a round had the same bits; how many states several members had."""
        by_round: dict[int, dict[str, str]] = {}
        for node in self.nodes.values():
            for event in node.of("apply"):
                before = by_round.setdefault(event["round"], {}).setdefault(node.name, event["digest"])
                assert before == event["digest"], f"{node.name} had two states of round {event['round']}"
        for number, states in by_round.items():
            assert len(set(states.values())) == 1, f"round {number}: {states}"
        return sum(len(states) > 1 for states in by_round.values())

    def check_values(self) -> None:
        """All members saw the same value of each round, and no member missed one in between."""
        values: dict[int, str] = {}
        for node in self.nodes.values():
            rounds = [event["round"] for event in node.of("commit")]
            assert rounds == sorted(set(rounds)), f"{node.name}: {rounds}"
            for event in node.of("commit"):
                assert values.setdefault(event["round"], event["value"]) == event["value"], event

    def end(self) -> None:
        """End everything at once."""
        all_remains = []
        for node in self.running():
            with contextlib.suppress(psutil.Error):
                all_remains.append(Remains.of(node.pid))
            node.signal(signal.SIGKILL)
        for node in self.nodes.values():
            if node.process is not None:
                node.process.wait(PATIENCE)
        for remains in all_remains:
            remains.wait_until_gone()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster of which nothing runs any more afterwards, whatever happened."""
    made = Cluster(folder)
    try:
        yield made
    finally:
        made.end()


def write_first_weights(folder: Path) -> None:
    """The weights that the run begins with, in the folder of its run file."""
    model = ModelSection.model_validate(tomllib.loads(RUN)["model"])
    write_weights(folder / model.weights, layout_of(model), initial_parameters(model, 7))


def settings(text: str, changes: Mapping[str, str]) -> str:
    """A run file's text with some lines changed."""
    for line, new in changes.items():
        assert line in text
        text = text.replace(line, new)
    return text
