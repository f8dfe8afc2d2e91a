"""Carries the demo of reinforcement learning out: starts real processes, reads their logs, and ends them in order."""

import json
import os
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from node import eventlog
from node.demo import processes
from node.demo.processes import Child, command_line, module_line
from node.demo_rl.facts import Facts
from node.demo_rl.plan import (
    CHEAT,
    CHEAT_FROM,
    HONEST,
    NODES,
    RELAY,
    TRAINER,
    VALIDATOR,
    run_file,
    worker_file,
)
from node.demo_rl.timeline import Watch
from node.demo_rl.view import View
from node.eventlog import EventLog, Tail
from protocol.errors import NodeError
from protocol.identity import Identity

LOOK = timedelta(milliseconds=100)
SAMPLE_EVERY = timedelta(seconds=2)
WARM_PATIENCE = timedelta(minutes=10)
START_PATIENCE = timedelta(minutes=4)
"""Until the first step."""
STEP_PATIENCE = timedelta(minutes=3)
"""Between two steps."""
END_PATIENCE = timedelta(seconds=60)
BAN_PATIENCE = timedelta(minutes=2)
"""For the ban of the cheat, once the run has ended."""


class Broken(Exception):
    """The demo cannot go on; the argument is the sentence that says why."""


class Conductor:
    """One demo.

    Args:
        folder: Everything goes there.
        facts: Grows while the demo runs.
        view: Shows it.
        journal: Of the demo.
    """

    def __init__(self, folder: Path, facts: Facts, view: View, journal: EventLog) -> None:
        self._folder, self._facts, self._view, self._journal = folder, facts, view, journal
        self._tails = {name: Tail(folder / name / eventlog.FILE) for name in NODES}
        self._children: dict[str, Child] = {}
        self._policies = folder / "policies"
        self._processor, self._looked = Watch(), 0.0
        self._told = False

    def run(self) -> None:
        """Carry the demo out to its end. What goes wrong is kept in the facts, not raised."""
        began = time.monotonic()
        try:
            self._warm_start()
            self._launch()
            self._watch()
            self._stop()
            self._measure()
        except Broken as error:
            self._trouble(str(error))
        except NodeError as error:
            self._trouble(f"{error.code}: {error.sentence}")
        finally:
            self.close()
            self._read()
            self._facts.seconds = time.monotonic() - began
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            self._facts.cpu = used.ru_utime + used.ru_stime

    def close(self) -> None:
        """End what still runs. Safe to call twice."""
        processes.end_all(self._children.values())

    # ---- beginning

    def _warm_start(self) -> None:
        """Train the policy that the run begins with, on solved tasks."""
        (self._folder / VALIDATOR).mkdir(parents=True, exist_ok=True)
        validator = Identity.load_or_create(self._folder / VALIDATOR / "identity.key").peer_id
        weights, text = self._folder / "warm.safetensors", self._folder / "run.toml"
        text.write_text(run_file(self._facts.options, weights, validator), encoding="utf-8")
        self._view.note("a supervised warm start, until a few tasks in a hundred are solved")
        child = self._start("warm-start", module_line("node.demo_rl.warm", text, weights))
        self._facts.warm = self._lines(child, WARM_PATIENCE)
        last = self._facts.warm[-1]
        self._view.note(f"{last['steps']} steps; {last['solved']:.1%} of held-out tasks are solved")
        self._policies.mkdir(exist_ok=True)
        shutil.copyfile(weights, self._policies / "v0.safetensors")

    def _launch(self) -> None:
        text = self._folder / "run.toml"
        self._node(TRAINER, command_line("init", text, "--dir", self._folder / TRAINER))
        self._wait(
            lambda: bool(self._facts.of(TRAINER, "directory.ready")),
            START_PATIENCE,
            "the trainer to be there",
        )
        self._wait(
            lambda: bool(self._facts.of(TRAINER, "policy.serving")), START_PATIENCE, "the trainer to serve"
        )
        origin = str(self._facts.of(TRAINER, "policy.serving")[0]["address"])
        relay = command_line(
            "shardcast",
            "relay",
            "--from",
            origin,
            "--dir",
            self._folder / RELAY,
            "--port",
            "0",
            "--keep",
            "12",
        )
        self._children[RELAY] = self._start(RELAY, relay)
        address = self._relay_address()
        (self._folder / "worker.toml").write_text(worker_file(address), encoding="utf-8")
        self._view.note(f"the trainer publishes policies at {origin}, a relay passes them on at {address}")
        self._join(VALIDATOR, "validator")
        for name in HONEST:
            self._join(name, "rollout")
        self._view.note("one validator and two rollout workers join")

    def _join(self, name: str, role: str) -> None:
        join = str(self._facts.of(TRAINER, "directory.ready")[-1]["multiaddrs"][0])  # type: ignore[index]
        words = (
            "run",
            self._folder / "worker.toml",
            "--join",
            join,
            "--role",
            role,
            "--dir",
            self._folder / name,
        )
        self._node(name, module_line("node.demo_rl.cheat", *words) if name == CHEAT else command_line(*words))

    def _node(self, name: str, argv: list[str]) -> None:
        self._journal.emit("demo.launch", node=name)
        self._children[name] = self._start(name, argv)

    def _start(self, name: str, argv: list[str]) -> Child:
        child = processes.start(name, argv, self._folder / "logs" / f"{name}.log", 1)
        self._children[name] = child
        return child

    def _relay_address(self) -> str:
        log = self._children[RELAY].log
        found: list[str] = []

        def serves() -> bool:
            found[:] = re.findall(r"http://\S+:\d+", log.read_text(errors="replace"))
            return bool(found)

        self._wait(serves, START_PATIENCE, "the relay")
        return found[0]

    # ---- the run

    def _watch(self) -> None:
        """Until the run has ended and the cheat is banned."""
        steps, last = 0, time.monotonic()
        while not self._facts.finished:
            self._look()
            if CHEAT not in self._children and self._is_time_for_the_cheat():
                self._join(CHEAT, "rollout")
                self._view.note(
                    "a third worker joins: it claims the newest policy and uses one that is older"
                )
            if len(self._facts.steps) > steps:
                steps, last = len(self._facts.steps), time.monotonic()
                self._sample()
            patience = STEP_PATIENCE if steps else START_PATIENCE
            if time.monotonic() - last > patience.total_seconds():
                raise Broken(f"No step for {patience.total_seconds():.0f} s.")
            time.sleep(LOOK.total_seconds())
        self._view.note("the run is finished")
        if CHEAT in self._children:
            self._wait(
                lambda: self._facts.ban() is not None and self._children[CHEAT].status is not None,
                BAN_PATIENCE, "the cheat to be banned",
            )  # fmt: skip

    def _is_time_for_the_cheat(self) -> bool:
        return self._facts.newest >= CHEAT_FROM

    def _sample(self) -> None:
        """What the processes have used so far, when a step is done; at most so often that it costs nothing."""
        if time.monotonic() - self._looked < SAMPLE_EVERY.total_seconds():
            return
        self._looked = time.monotonic()
        nodes = {name: child.process.pid for name, child in self._children.items() if child.status is None}
        self._facts.samples.append(self._processor.look(nodes, time.time()))

    def _look(self) -> None:
        self._read()
        self._keep_policies()
        ban = self._facts.ban()
        if ban is not None and not self._told:
            self._told = True
            self._view.note(f"the cheat is banned: {ban['sentence']}")
        for name in (TRAINER, RELAY, VALIDATOR, *HONEST):
            child = self._children.get(name)
            if child is not None and child.status is not None:
                raise Broken(f"{name} ended with status {child.status}. {child.last_words()}")
        self._view.update()

    def _read(self) -> None:
        for name, tail in self._tails.items():
            self._facts.events[name] += tail.new()

    def _keep_policies(self) -> None:
        """Policy versions are deleted when nothing needs them any more; here they are kept to be measured."""
        for path in (self._folder / TRAINER / "rl" / "policies").glob("v*.safetensors"):
            kept = self._policies / path.name
            if not kept.exists():
                os.link(path, kept)

    def _wait(self, done: Callable[[], bool], patience: timedelta, what: str) -> None:
        end = time.monotonic() + patience.total_seconds()
        while not done():
            if time.monotonic() > end:
                raise Broken(f"Waited {patience.total_seconds():.0f} s for {what}.")
            self._look()
            time.sleep(LOOK.total_seconds())

    # ---- the end

    def _stop(self) -> None:
        """Have everyone leave: workers and validator first."""
        order = [CHEAT, *HONEST, VALIDATOR, RELAY, TRAINER]
        for name in order:
            child = self._children.get(name)
            if child is not None and child.status is None:
                child.signal(signal.SIGTERM)
        if not processes.wait_for(
            [self._children[name] for name in order if name in self._children], END_PATIENCE
        ):
            self._trouble(f"Not all processes ended within {END_PATIENCE.total_seconds():.0f} s.")
        for name in NODES:
            child = self._children.get(name)
            if child is not None and child.status is not None:
                self._facts.exits[name] = child.status
        evidence = self._folder / TRAINER / "rl" / "rollouts" / "evidence"
        self._facts.evidence = tuple(sorted(path.name for path in evidence.glob("*.parquet")))

    def _measure(self) -> None:
        """How many held-out tasks each policy version solves."""
        self._keep_policies()
        paths = sorted(self._policies.glob("v*.safetensors"), key=lambda path: int(path.stem[1:]))
        self._view.note(f"measuring {len(paths)} policy versions on held-out tasks")
        child = self._start("measure", module_line("node.demo_rl.measure", self._folder / "run.toml", *paths))
        for line in self._lines(child, WARM_PATIENCE):
            self._facts.solved[int(str(line["file"]).removesuffix(".safetensors")[1:])] = float(
                line["solved"]
            )

    def _lines(self, child: Child, patience: timedelta) -> list[dict[str, float]]:
        """What a child prints, as JSON, once it has ended.

        Raises:
            Broken: It fails, or takes too long.
        """
        if not processes.wait_for([child], patience) or child.status != 0:
            raise Broken(f"{child.name} failed with status {child.status}. {child.last_words()}")
        text = child.log.read_text(errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def _trouble(self, sentence: str) -> None:
        self._facts.trouble.append(sentence)
        self._view.note(sentence)
        self._journal.emit("demo.trouble", sentence=sentence)
