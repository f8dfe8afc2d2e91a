"""A swarm of real daemons that bad things happen to, and what its event logs say of it afterwards."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from node.children import start_child
from node.eventlog import Event
from tests.chaos.disks import Disk
from tests.chaos.links import Links
from tests.e2e.cluster import LOCAL, RUN, Cluster, Daemon, environment, free_port, python
from tests.e2e.remains import PATIENCE

_SKEW = Path(__file__).parent / "skew"
_LOOK = 0.01
_PATIENCE = 200.0
"""Five starts at once are long ones on busy cores."""

PHASES: dict[str, Callable[[Event], bool]] = {
    "train.step": lambda event: bool(event["step"] >= 1),
    "contribution.frozen": lambda event: True,
    "ready.sent": lambda event: True,
    "reduce.begin": lambda event: True,
    "reduce.progress": lambda event: bool(event["fraction"] > 0.4),
    "reduce.end": lambda event: True,
    "vote": lambda event: True,
    "commit": lambda event: True,
}
"""Where in a round a node is: the event that says so."""


@dataclass
class Life:
    """One start of a node.

    Attributes:
        first: Place of its first event in the node's log.
        began: When it was started, monotonic seconds.
        end: Place after its last event, once it has ended.
        off: Places in the log while it was not on the quorum's side, as (first, after last).
    """

    first: int
    began: float
    end: int | None = None
    off: list[tuple[int, int | None]] = field(default_factory=list)


class Node(Daemon):
    """A daemon with a link, a disk and a clock of its own, where the swarm gives it one."""

    links: Links | None = None
    disk: Disk | None = None
    shift: float = 0.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lives: list[Life] = []
        self.stopped = self.cut = False
        self._by_kind: dict[str, list[Event]] = {}

    def start(self, *words: Any, **options: Any) -> "Node":
        """Start `intellect-node WORDS[0] RUN.toml --dir DIR WORDS[1:]…` on the node's own link and clock."""
        assert self.process is None or self.process.poll() is not None
        self.lives.append(Life(self.mark(), time.monotonic()))
        first, *rest = words
        argv = python("-m", "node", first, self.file, "--dir", self.folder, *rest)
        argv = [*(self.links.enter(self.name) if self.links else []), *argv]
        variables = environment(TMPDIR=self._temporary, CHAOS_CLOCK_SHIFT=str(self.shift))
        if self.shift:
            variables["PYTHONPATH"] = f"{_SKEW}:{variables['PYTHONPATH']}"
        self.process = start_child(argv, threads=1, log=self.log, environment=variables)
        return self

    def wait(
        self, kind: str, where: Callable[[Event], bool] = lambda event: True, *, since: int = 0
    ) -> Event:
        """As a daemon's, with more patience; an event that was there is found at once."""
        end = time.monotonic() + _PATIENCE
        while self.runs and time.monotonic() < end:
            for event in self.look()[since:]:
                if event.kind == kind and where(event):
                    return event
            time.sleep(0.05)
        return super().wait(kind, where, since=since)

    def look(self) -> list[Event]:
        """Read what is new in its log; all events so far."""
        new = self._tail.new()
        self.events += new
        for event in new:
            self._by_kind.setdefault(event.kind, []).append(event)
        return self.events

    def of(self, kind: str, since: int = 0) -> list[Event]:
        """All events of a kind so far."""
        self.look()
        return super().of(kind, since) if since else self._by_kind.get(kind, [])

    def kill(self) -> None:
        """End it as a power cut would."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(PATIENCE)
        self.lives[-1].end = self.mark()
        self.stopped = False

    def stop(self) -> None:
        """Stop all of its processes, as an overloaded host would."""
        self.stopped = True
        self.off()
        for process in self._all():
            process.suspend()

    def go_on(self) -> None:
        """Let them go on."""
        for process in self._all():
            process.resume()
        self.stopped = False

    def off(self) -> None:
        """It is not on the quorum's side from now on."""
        self.lives[-1].off.append((self.mark(), None))

    def back(self) -> None:
        """It is again, once it has contributed."""
        life = self.lives[-1]
        if life.off and life.off[-1][1] is None:
            life.off[-1] = (life.off[-1][0], self.mark())

    def _all(self) -> list[psutil.Process]:
        top = psutil.Process(self.pid)
        return [top, *top.children(recursive=True)]

    def kill_helper(self) -> bool:
        """Kill the program by which it finds peers; whether there was one."""
        for process in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "p2pd" in process.name():
                    process.kill()
                    return True
        return False

    def phase(self, kind: str, within: float) -> bool:
        """Wait until the node's log says that it is there; whether it came."""
        since, end = self.mark(), time.monotonic() + within
        while time.monotonic() < end and self.runs:
            if any(event.kind == kind and PHASES[kind](event) for event in self.look()[since:]):
                return True
            time.sleep(_LOOK)
        return False

    def held(self) -> dict[str, float]:
        """What its daemon holds: memory, file descriptors, threads; segments of shared memory of all its processes."""
        with contextlib.suppress(psutil.Error, OSError):
            top = psutil.Process(self.pid)
            shared = set()
            for process in self._all():
                maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
                shared |= {line.split()[4] for line in maps if "/dev/shm/" in line or "memfd:" in line}
            return {
                "memory": top.memory_info().rss / 2**20,
                "files": top.num_fds(),
                "threads": top.num_threads(),
                "shared": len(shared),
            }
        return {}


class Swarm(Cluster):
    """A cluster of such nodes.

    Args:
        folder: For everything of theirs.
        links: Whether each has a link of its own.
        disks: Names of those that have a disk of their own.
        run: Run file of all.
    """

    def __init__(
        self, folder: Path, *, links: bool = False, disks: tuple[str, ...] = (), run: str = RUN
    ) -> None:
        super().__init__(folder)
        self.links = Links(folder) if links else None
        self._disks, self._run = disks, run
        self._stack = contextlib.ExitStack()
        if self.links is not None:
            self._stack.callback(lambda made: asyncio.run(made.close()), self.links)

    def add(self, name: str, **options: Any) -> Node:
        """A node."""
        local = LOCAL.format(name=name, workers=1, port=free_port())
        address = self.links.add(name) if self.links else ""
        if address:
            local = local.replace("[network]", f'[network]\nhost = "0.0.0.0"\nannounce = "{address}"')
        file = self.folder / f"{name}.toml"
        file.write_text(self._run + local)
        node = Node(name, file, self.folder / name, self.temporary)
        node.links = self.links
        if name in self._disks:
            node.disk = Disk(self.folder / name)
            self._stack.callback(node.disk.close)
        self.nodes[name] = node
        return node

    def node(self, name: str) -> Node:
        """One of the nodes."""
        node = self.nodes[name]
        assert isinstance(node, Node)
        return node

    def everyone(self) -> list[Node]:
        """All nodes."""
        return [node for node in self.nodes.values() if isinstance(node, Node)]

    def observers(self) -> list[Node]:
        """Nodes whose logs are live."""
        return [
            node
            for node in self.everyone()
            if node.runs and not node.stopped and not node.cut and node.of("commit")
        ]

    def newest(self) -> int:
        """The last round that anybody knows to be committed."""
        return max((node.of("commit")[-1]["round"] for node in self.observers()), default=-1)

    def leader(self) -> Node | None:
        """Who leads the round that is being reduced, or was last."""
        found = [
            (event["round"], event["attempt"], event["leader"])
            for node in self.observers()
            for event in node.of("reduce.begin")[-1:]
        ]
        peers = {node.peer: node for node in self.everyone() if node.of("node.start")}
        return peers.get(max(found)[2]) if found else None

    def caught(self, phase: str, chosen: Callable[[], list[Node]]) -> Node:
        """One of the chosen nodes in the moment in which its log says that it is in a phase."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            for node in chosen()[:1]:
                if node.phase(phase, 3.0) and node in chosen()[:1]:
                    return node
            time.sleep(_LOOK)
        raise AssertionError(f"nobody was seen in {phase}")

    def committed_after(self, number: int, *, without: str = "", within: float = _PATIENCE) -> Event:
        """Wait for a commit of a later round, whose roster lacks a peer."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            for node in self.observers():
                for event in node.of("commit")[-20:]:
                    if event["round"] > number and without not in event["roster"]:
                        return event
            time.sleep(0.05)
        words = "\n".join(node.last_words() for node in self.everyone())
        raise AssertionError(f"no round after {number} without {without!r}: {words}")

    def end(self) -> None:
        """End everything at once."""
        for node in self.everyone():
            if node.stopped and node.runs:
                node.go_on()
        super().end()
        self._stack.close()


@contextlib.contextmanager
def swarm(folder: Path, **options: Any) -> Iterator[Swarm]:
    """A swarm of which nothing runs any more afterwards, whatever happened."""
    made = Swarm(folder, **options)
    try:
        yield made
    finally:
        made.end()
