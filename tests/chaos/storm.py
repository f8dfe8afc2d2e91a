"""A storm on real daemons: one fault every ten seconds, and what became of the run, as JSON.

    python -m tests.chaos.storm --seconds 600 --nodes 6

A quorum stays alive, so nothing may be lost but what the victims themselves were doing.
"""

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import disks, links
from tests.chaos.accounts import Work, slope, states_of, work_of
from tests.chaos.swarm import PHASES, Node, Swarm, swarm
from tests.e2e.cluster import RUN, settings

STORM_RUN = settings(RUN, {'silence = "4 s"': 'silence = "8 s"', 'attempt = "5 s"': 'attempt = "8 s"'})
"""Rounds of some seconds; on busy cores a healthy node may well be silent for four."""

NAMES = ("ada", "bob", "cyd", "dan", "eve", "fay", "gil", "hal")
_SAMPLE = 5.0
_SHIFTS = {2: 20.0}
"""By how many seconds the wall clocks of some nodes are wrong, always by the same."""
_FAR = 60
"""Milliseconds that one of the nodes is away from the others, where links can be made slow."""
_LONGEST_AWAY = 10.0


@dataclass
class Deed:
    """A fault that was done.

    Attributes:
        kind: Which.
        victim: To whom.
        t: When, seconds from the beginning.
        round: The last round committed then.
        next_commit: Seconds until others committed a round, once they did.
        attempts: Attempts that this round took.
        noticed: Seconds until another node believed the victim dead.
    """

    kind: str
    victim: str
    t: float
    round: int
    next_commit: float | None = None
    attempts: int | None = None
    noticed: float | None = None


@dataclass
class Storm:
    """One storm over a swarm that has begun."""

    swarm: Swarm
    random: random.Random
    deeds: list[Deed] = field(default_factory=list)
    samples: dict[tuple[str, int], list[tuple[float, dict[str, float]]]] = field(default_factory=dict)
    returns: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._due: list[tuple[float, Callable[[], None]]] = []
        # who has to contribute again, and the place in its log up to which it was read
        self._waiting: dict[str, int] = {}
        # for which round those said Ready first that was not decided then
        self._ready: dict[str, int] = {}
        self._places: dict[str, int] = {}

    @property
    def t(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    # ---- who is there

    def whole(self) -> list[Node]:
        """Nodes that run undisturbed and have contributed since they last came."""
        return [
            n for n in self.swarm.everyone()
            if n.runs and not n.stopped and not n.cut and n.name not in self._waiting
        ]  # fmt: skip

    def victims(self) -> list[Node]:
        """Whom a fault may take away so that a quorum is left."""
        whole = self.whole()
        needed = len(self.swarm.nodes) // 2 + 1
        return whole if len(whole) > needed else []

    # ---- deeds

    def kill(self, victim: Node) -> None:
        """SIGKILL at some phase of a round, and a restart."""
        phase = self.random.choice(list(PHASES))
        victim.phase(phase, 3.0)
        led = self.swarm.leader() is victim
        self._did(f"kill {'leader' if led else 'follower'} at {phase}", victim)
        victim.kill()
        self._left(victim)
        self._later(self.random.uniform(1, 5), lambda: self._restart(victim))

    def stop(self, victim: Node) -> None:
        """SIGSTOP to all of its processes, and SIGCONT."""
        self._did("stop", victim)
        victim.stop()
        self._left(victim)
        self._later(self.random.uniform(2, 2 * _LONGEST_AWAY), lambda: self._go_on(victim))

    def cut(self, victim: Node) -> None:
        """Its link is cut, and mended."""
        assert self.swarm.links is not None
        self._did("cut", victim)
        victim.cut = True
        victim.off()
        self.swarm.links.cut(victim.name)
        self._left(victim)
        self._later(self.random.uniform(2, _LONGEST_AWAY), lambda: self._mend(victim))

    def slow(self, victim: Node) -> None:
        """Its link is slow for a while, or loses packets."""
        assert self.swarm.links is not None
        self._did("slow link", victim)
        if self.random.random() < 0.5:
            self.swarm.links.shape(victim.name, "512kbit")
        else:
            self.swarm.links.lose(victim.name, 5)
        self._later(_LONGEST_AWAY, lambda: self._mend(victim))

    def fill(self, victim: Node) -> None:
        """Its disk is full for a while."""
        assert victim.disk is not None
        self._did("full disk", victim)
        victim.off()
        victim.disk.fill()
        self._left(victim)
        self._later(_LONGEST_AWAY, lambda: self._clear(victim))

    def helper(self, victim: Node) -> None:
        """The program by which it finds peers is killed."""
        self._did("directory helper killed", victim)
        victim.kill_helper()

    def _did(self, kind: str, victim: Node) -> None:
        self.deeds.append(Deed(kind, victim.name, self.t, self.swarm.newest()))

    def _left(self, victim: Node) -> None:
        """It has to contribute again."""
        self._waiting[victim.name] = victim.mark()
        self._ready.pop(victim.name, None)

    def _restart(self, victim: Node) -> None:
        others = [node for node in self.swarm.observers() if node is not victim]
        self._left(victim)
        victim.start("run", "--join", self.random.choice(others).address)

    def _go_on(self, victim: Node) -> None:
        if victim.runs:
            victim.go_on()

    def _mend(self, victim: Node) -> None:
        assert self.swarm.links is not None
        self.swarm.links.mend(victim.name)
        victim.cut = False

    def _clear(self, victim: Node) -> None:
        assert victim.disk is not None
        victim.disk.clear()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + seconds, action))

    # ---- the weather

    def rage(self, seconds: float, every: float = 10.0) -> None:
        """Do a fault every so many seconds, then let everybody come back."""
        kinds = itertools.cycle(self._kinds())
        due = 0.0
        while self.t < seconds:
            if self.t >= due:
                due += every
                self._strike(next(kinds))
            self._look()
        calm = self.t + 240.0
        while self.t < calm and (self._due or self._waiting):
            self._look()
        last = self.swarm.newest()
        self.swarm.committed_after(last)
        self._look()

    def _kinds(self) -> list[Callable[[Node], None]]:
        kinds: list[Callable[[Node], None]] = [self.kill, self.stop, self.kill, self.helper]
        if self.swarm.links is not None:
            kinds += [self.cut, self.kill, self.slow]
        if any(node.disk is not None for node in self.swarm.everyone()):
            kinds.append(self.fill)
        return kinds

    def _strike(self, deed: Callable[[Node], None]) -> None:
        """Do a deed to somebody; where it would cost the quorum, one that takes nobody away."""
        victims = self.victims()
        if deed == self.fill:
            victims = [node for node in victims if node.disk is not None]
        if deed not in (self.helper, self.slow) and not victims:
            deed = self.helper
        if deed in (self.helper, self.slow):
            victims = self.whole()
        if victims:
            leader = self.swarm.leader()
            leads = [node for node in victims if node is leader]
            deed(self.random.choice(leads if leads and self.random.random() < 0.5 else victims))

    def _look(self) -> None:
        now = time.monotonic()
        due = [action for when, action in self._due if when <= now]
        self._due = [(when, action) for when, action in self._due if when > now]
        for action in due:
            action()
        for observer in self.swarm.observers():
            self._read(observer)
        for node in self.swarm.everyone():
            self._sample(node)
            if node.name in self._waiting and node.runs and not node.stopped and not node.cut:
                self._readys(node)
        time.sleep(0.1)

    def _read(self, observer: Node) -> None:
        """What is new in one log: who contributes again, what followed a deed."""
        since = self._places.get(observer.name, len(observer.events))
        for event in observer.events[since:]:
            if event.kind == "commit":
                self._committed(event)
            elif event.kind == "peer.gone":
                gone = next(
                    (n for n in self.swarm.everyone() if n.of("node.start") and n.peer == event["peer"]), None
                )
                mine = [deed for deed in self.deeds if gone is not None and deed.victim == gone.name]
                if gone is not None and gone.stopped and mine[-1].kind == "stop" and mine[-1].noticed is None:
                    mine[-1].noticed = self.t - mine[-1].t
        self._places[observer.name] = len(observer.events)

    def _committed(self, event: Any) -> None:
        for deed in self.deeds:
            if deed.next_commit is None and event["round"] > deed.round:
                deed.next_commit, deed.attempts = self.t - deed.t, event["attempt"] + 1
        for name in list(self._waiting):
            node = self.swarm.nodes[name]
            assert isinstance(node, Node)
            if node.stopped or node.cut or not node.runs:
                continue
            if node.peer in event["roster"] and event["round"] >= self._ready.get(name, event["round"] + 1):
                del self._waiting[name]
                node.back()
                kind = [deed.kind.split()[0] for deed in self.deeds if deed.victim == name][-1]
                self.returns.append({"kind": kind, "rounds": event["round"] - self._ready.pop(name)})

    def _readys(self, node: Node) -> None:
        """Whether one that was away has said Ready for a round that is not decided yet."""
        since = self._waiting[node.name]
        for event in node.look()[since:]:
            if event.kind == "ready.sent" and event["round"] > self.swarm.newest():
                self._ready.setdefault(node.name, event["round"])
        self._waiting[node.name] = node.mark()

    def _sample(self, node: Node) -> None:
        if not node.runs or node.stopped:
            return
        samples = self.samples.setdefault((node.name, len(node.lives)), [])
        if not samples or self.t - samples[-1][0] >= _SAMPLE:
            held = node.held()
            if held:
                samples.append((self.t, held))

    # ---- the reckoning

    def report(self) -> dict[str, Any]:
        """All figures."""
        nodes = self.swarm.everyone()
        work = Work()
        for node in nodes:
            for life in node.lives:
                last = len(node.look()) if life.end is None else life.end
                spans = [range(a - life.first, (last if b is None else b) - life.first) for a, b in life.off]
                work += work_of(node.events[life.first : last], spans)
        shared, wrong = states_of({node.name: node.events for node in nodes})
        kills = [deed for deed in self.deeds if deed.kind.startswith("kill")]
        settled = [deed.next_commit for deed in kills if deed.next_commit is not None]
        stops = [deed.noticed for deed in self.deeds if deed.kind == "stop" and deed.noticed is not None]
        rounds = sorted({e["round"] for node in nodes for e in node.of("commit")})
        done = work.committed + work.lost
        return {
            "seconds": round(self.t),
            "nodes": len(nodes),
            "faults": dict(Counter(deed.kind.split(" at ")[0] for deed in self.deeds)),
            "rounds": len(rounds),
            "rounds_lost": (rounds[-1] - rounds[0] + 1 - len(rounds)) if rounds else None,
            "states_compared": shared,
            "digest_mismatches": wrong,
            "steps": {**vars(work), "committed_share": round(work.committed / done, 4) if done else None},
            "after_a_kill": {
                "next_commit_median_s": round(statistics.median(settled), 2) if settled else None,
                "next_commit_max_s": round(max(settled), 2) if settled else None,
                "attempts_max": max((d.attempts for d in kills if d.attempts is not None), default=None),
                "without_a_commit": sum(deed.next_commit is None for deed in kills),
            },
            "stop_noticed_max_s": round(max(stops), 2) if stops else None,
            "returns": {
                "count": len(self.returns),
                "rounds_after_a_kill_max": max(
                    (r["rounds"] for r in self.returns if r["kind"] == "kill"), default=None
                ),
                "rounds_max": max((r["rounds"] for r in self.returns), default=None),
                "still_away": sorted(self._waiting),
            },
            "leaks": self._leaks(),
        }

    def _leaks(self) -> dict[str, Any]:
        """Growth of what daemons hold, over lives that were watched for at least a minute after their start."""
        slopes: dict[str, list[float]] = {"memory": [], "files": [], "threads": [], "shared": []}
        most: dict[str, float] = dict.fromkeys(slopes, 0.0)
        for samples in self.samples.values():
            settled = [(t, held) for t, held in samples if t >= samples[0][0] + 30]
            for kind in slopes:
                most[kind] = max(most[kind], max(held[kind] for _, held in samples))
                if settled and settled[-1][0] - settled[0][0] >= 60:
                    slopes[kind].append(slope([(t, held[kind]) for t, held in settled]))
        return {
            kind: {
                "most": round(most[kind], 1),
                "slope_per_minute_median": round(statistics.median(slopes[kind]), 2)
                if slopes[kind]
                else None,
                "slope_per_minute_max": round(max(slopes[kind]), 2) if slopes[kind] else None,
            }
            for kind in slopes
        }


def storm(folder: Path, *, seconds: float, nodes: int, seed: int) -> dict[str, Any]:
    """Start a swarm, let a storm go over it, and report."""
    with_links, with_disks = not links.missing(), not disks.missing()
    names = NAMES[:nodes]
    run = settings(
        STORM_RUN, {"start_members = 3": f"start_members = {nodes}"}
    )  # who comes later has no seat
    with swarm(folder, links=with_links, disks=names[-1:] if with_disks else (), run=run) as made:
        first = made.add(names[0]).start("init")
        for number, name in enumerate(names[1:], start=1):
            made.add(name).shift = _SHIFTS.get(number, 0.0)
        if made.links is not None:
            made.links.delay(names[1], _FAR)
        for name in names[1:]:
            made.node(name).start("run", "--join", first.address)
        for node in made.everyone():
            node.wait("commit")
        for node in made.everyone():
            first.contributed(node.peer)
        weather = Storm(made, random.Random(seed))
        weather.rage(seconds)
        return weather.report()


def main() -> None:
    """Run a storm and print its report."""
    parser = argparse.ArgumentParser(description="A storm on real daemons; prints JSON.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--nodes", type=int, default=6, choices=range(4, 9))
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        print(
            json.dumps(
                storm(Path(folder), seconds=words.seconds, nodes=words.nodes, seed=words.seed), indent=2
            )
        )


if __name__ == "__main__":
    main()
