"""Carries a demo out: starts nodes, reads their logs, does what the scenario says, writes the journal."""

import json
import signal
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from node import eventlog
from node.demo import dashboard, processes
from node.demo.deeds import Facts
from node.demo.figures import tokens_committed
from node.demo.folder import DemoFolder
from node.demo.history import roster
from node.demo.memory import PeakMemory
from node.demo.processes import Child, command_line, module_line
from node.demo.scenario import Action, Finish, Kill, Launch, Leave, Reduce, Scene, Step, decide
from node.demo.view import View
from node.eventlog import EventLog, Tail
from node.status import ask_admin
from protocol.errors import NodeError

LOOK = timedelta(milliseconds=20)
"""Between two looks at the logs: an all-reduce lasts about a second, and the kill has to hit it."""

START_PATIENCE = timedelta(seconds=240)
"""Until the first commit."""
ROUND_PATIENCE = timedelta(seconds=120)
"""Between two commits, at least; slow machines get in proportion to their own rounds."""
ROUNDS_PATIENCE = 6
"""... and at least so many times the longest round so far."""
END_PATIENCE = timedelta(seconds=90)
"""For nodes to end after they were told to."""
DEATH_PATIENCE = timedelta(seconds=10)
"""For the processes below a killed node to end by themselves."""
CHECK_PATIENCE = timedelta(seconds=180)
"""For exporting, and for reloading, the model."""


class Broken(Exception):
    """The demo cannot go on; the argument is the sentence that says why."""


class Conductor:
    """One start of a demo.

    Args:
        folder: Held by this process.
        facts: Grows while the demo runs; it holds what earlier starts left.
        view: Shows it.
        journal: Of the demo.
        threads: Thread budget of each node.
        fresh: Whether the run is still to be made.
        browse: Open the dashboard in a browser.
    """

    def __init__(
        self,
        folder: DemoFolder,
        facts: Facts,
        view: View,
        journal: EventLog,
        *,
        threads: int,
        fresh: bool,
        browse: bool = False,
    ) -> None:
        self._folder = folder
        self._facts = facts
        self._view = view
        self._journal = journal
        self._threads = threads
        self._fresh = fresh
        self._browse = browse
        self._dashboard = ""
        self._journal_tail = Tail(folder.journal)
        self._tails = {name: Tail(folder.node(name) / eventlog.FILE) for name in facts.cast.names}
        self._children: dict[str, Child] = {}
        self._others: list[Child] = []
        self._going: set[str] = set()
        self._killed_at: float | None = None
        self._seated = False
        self._seen_below_in = -1
        self._memory = PeakMemory()
        self._last_commit = time.monotonic()
        self._longest_round = 0.0
        self._committed = -1
        self.read()

    def run(self) -> None:
        """Carry the demo out to its end. What goes wrong is written to the journal, not raised."""
        self._last_commit, self._committed = time.monotonic(), self._facts.history.committed
        self._memory.start()
        try:
            self._play()
            self._stop_survivors()
            self._check_model()
        except Broken as error:
            self._say_trouble(str(error))
        except NodeError as error:
            self._say_trouble(f"{error.code}: {error.sentence}")
        finally:
            self._memory.stop()
            self._journal.emit("demo.memory", peak=self._memory.peak)
            self.close()
            self.read()

    def compare(self) -> None:
        """Train the synchronous baseline on as many tokens as the run committed."""
        from node.demo.compare import steps_for
        from node.runfile import load

        tokens = tokens_committed(self._facts)
        if not tokens:
            return
        nodes = self._facts.options.nodes
        steps = steps_for(tokens, load(self._folder.run_file).sections(), nodes)
        self._view.note(
            f"the synchronous baseline trains {steps} steps, the gradients of {nodes} nodes averaged at each"
        )
        run_file, folder = self._folder.run_file, self._folder.baseline
        argv = module_line("node.demo.compare", run_file, folder, str(steps), str(nodes))
        child = self._start_other("compare", argv)
        seen, found, ended = 0, dict[str, Any](), False
        while not ended:
            time.sleep(0.2)
            ended = child.status is not None
            lines = [
                line for line in child.log.read_text(errors="replace").splitlines(True) if line.endswith("\n")
            ]
            for line in lines[seen:]:
                found = _json(line) or found
                if found.get("step") and found["step"] % 20 == 0:
                    self._view.note(
                        f"baseline step {found['step']} of {found['steps']}, loss {found['loss']:.3f}"
                    )
            seen = len(lines)
        if "validation_loss" not in found:
            found = {"error": found.get("error") or child.last_words() or f"exit status {child.status}"}
        self._journal.emit("demo.baseline", **found)
        self.read()

    def close(self) -> None:
        """End every process that is left. Safe to call twice."""
        processes.end_all([*self._children.values(), *self._others])

    def read(self) -> None:
        """Take in what logs and journal have gained."""
        for name, tail in self._tails.items():
            for event in tail.new():
                self._facts.history[name].add(event)
        for event in self._journal_tail.new():
            self._facts.deeds.add(event)

    # ---- the scenario

    def _play(self) -> None:
        while True:
            self.read()
            for action in decide(self._facts.cast, self._facts.script, self._scene()):
                if isinstance(action, Finish):
                    self._view.note("all survivors have finished the run")
                    return
                self._do(action)
            self._watch()
            self._view.update()
            time.sleep(LOOK.total_seconds())

    def _scene(self) -> Scene:
        history, cast = self._facts.history, self._facts.cast
        founder = history[cast.founder]
        reducing = founder.reducing if cast.founder in self._children else None
        newest = history.committed
        return Scene(
            fresh=self._fresh,
            done=self._facts.deeds.done,
            launched=frozenset(self._children),
            addresses={
                node.name: node.address for node in history if node.name in self._children and node.address
            },
            committed=newest,
            contributing=frozenset(history.contributors(newest)),
            founder_reduce=Reduce(reducing.round, reducing.fraction) if reducing is not None else None,
            leaver_training=history[cast.leaver].training if cast.leaver in self._children else None,
            finished=frozenset(node.name for node in history if node.finished is not None),
        )

    def _do(self, action: Action) -> None:
        match action:
            case Launch(node, make_run, join, step, round):
                self._launch(node, make_run, join)
                if step is not None:
                    self._journal.emit("demo.step", step=step, node=node, round=round)
                    self._view.note(
                        f"{node} joins while the others train round {round}, by the address of {self._facts.cast.guide}"
                    )
            case Kill(node, round, fraction):
                self._journal.emit("demo.step", step=Step.KILL, node=node, round=round, fraction=fraction)
                self._children[node].signal(signal.SIGKILL)
                self._killed_at = time.monotonic()
                self._going.add(node)
                self._view.note(
                    f"{node}, the founder, is killed at {fraction:.0%} of the all-reduce of round {round}"
                )
            case Leave(node, round):
                self._journal.emit("demo.step", step=Step.LEAVE, node=node, round=round)
                self._children[node].signal(signal.SIGTERM)
                self._going.add(node)
                self._view.note(f"{node} is told to leave in round {round}")
        self.read()

    def _launch(self, node: str, make_run: bool, join: str) -> None:
        words: list[str | Path] = [
            "init" if make_run else "run",
            self._folder.run_file,
            "--dir",
            self._folder.node(node),
        ]
        if join:
            words += ["--join", join]
        if node == self._facts.cast.guide:
            words += dashboard.words()
        self._facts.history[node].launched()
        self._children[node] = processes.start(
            node, command_line(*words), self._folder.log(node), self._threads
        )
        self._journal.emit("demo.launch", node=node, how=str(words[0]), join=join)
        if not join:
            self._view.note(f"{node} {'makes the run' if make_run else 'goes on with the run'}")

    # ---- what may go wrong

    def _watch(self) -> None:
        self._see_ends()
        self._prepare_kill()
        self._see_orphans()
        self._seat_joiner()
        self._show_dashboard()
        committed = self._facts.history.committed
        now = time.monotonic()
        if committed > self._committed:
            if self._committed >= 0:
                self._longest_round = max(self._longest_round, now - self._last_commit)
            self._committed, self._last_commit = committed, now
        patience = ROUND_PATIENCE if committed >= 0 and not self._starting() else START_PATIENCE
        if now - self._last_commit > max(patience.total_seconds(), ROUNDS_PATIENCE * self._longest_round):
            waits = "; ".join(
                f"{node.name}: {node.sentence or node.phase or 'silent'}"
                for node in self._facts.history
                if node.name in self._children and self._children[node.name].status is None
            )
            raise Broken(f"No round was committed for {now - self._last_commit:.0f} s. {waits}")

    def _starting(self) -> bool:
        """Whether this start of the demo has not seen a commit yet."""
        start = self._facts.deeds.starts[-1]
        return not any(commit.t > start for commit in self._facts.history.commits().values())

    def _see_ends(self) -> None:
        for name, child in self._children.items():
            status = child.status
            if status is None or name in self._facts.deeds.exits:
                continue
            self._journal.emit("demo.exit", node=name, status=status)
            self.read()
            if name not in self._going:
                raise Broken(f"{name} ended by itself with status {status}: {child.last_words()}")
            if name != self._facts.cast.founder:
                self._view.note(f"{name} ended with status {status}")

    def _seat_joiner(self) -> None:
        """The joiner gets a vote from the operator once it contributes: in an open run a latecomer has none."""
        history, cast = self._facts.history, self._facts.cast
        founder, joiner = self._children.get(cast.founder), history[cast.joiner]
        there = joiner.peer and joiner.name in history.contributors(history.committed)
        if self._seated or not there or founder is None or founder.status is not None:
            return
        self._seated = True
        with suppress(NodeError):  # it may be going just now; the run goes on without that vote
            ask_admin(self._folder.node(cast.founder), "seat", {"peer": joiner.peer, "reason": "it joined"})
            self._view.note(f"{joiner.name} gets a vote from the operator")

    def _show_dashboard(self) -> None:
        """Say once where it is, and open it where that was wished for."""
        url = self._facts.history[self._facts.cast.guide].dashboard
        if not url or url == self._dashboard:
            return
        self._dashboard = url
        opened = not self._browse or dashboard.show(url)
        self._view.note(f"dashboard: {url}" + ("" if opened else ", no browser was found to open it in"))

    def _prepare_kill(self) -> None:
        """Once a round, before its all-reduce: the kill itself has no time to look around."""
        founder = self._children.get(self._facts.cast.founder)
        trains = self._facts.history[self._facts.cast.founder].training
        if founder is not None and trains is not None and trains != self._seen_below_in:
            self._seen_below_in = trains
            founder.see_below()

    def _see_orphans(self) -> None:
        """Once after the kill: the processes below the founder have to end by themselves."""
        if self._killed_at is None or time.monotonic() - self._killed_at < DEATH_PATIENCE.total_seconds():
            return
        self._killed_at = None
        left = self._children[self._facts.cast.founder].left_behind()
        if left:
            self._journal.emit("demo.left-behind", node=self._facts.cast.founder, processes=len(left))

    # ---- the end

    def _stop_survivors(self) -> None:
        """`intellect-node stop` for each that is left."""
        # The leaver waits until the others hold the last round, so they stay until it has gone.
        processes.wait_for(
            [self._children[name] for name in self._going if name in self._children], END_PATIENCE
        )
        running = {name: child for name, child in self._children.items() if child.status is None}
        stoppers = []
        for name in running:
            if name not in self._going:
                self._going.add(name)
                argv = command_line("stop", "--dir", self._folder.node(name))
                stoppers.append(self._start_other(f"stop-{name}", argv))
        ended = processes.wait_for([*running.values(), *stoppers], END_PATIENCE)
        self._see_ends()
        if self._killed_at is not None:
            time.sleep(max(0.0, self._killed_at + DEATH_PATIENCE.total_seconds() - time.monotonic()))
            self._see_orphans()
        if not ended:
            late = [name for name, child in running.items() if child.status is None]
            raise Broken(
                f"{', '.join(late) or 'A stop command'} did not end within {END_PATIENCE.seconds} s."
            )

    def _check_model(self) -> None:
        """Export the model of a survivor, reload it and compare."""
        name = next(
            each for each in self._facts.cast.survivors if self._facts.history[each].finished is not None
        )
        self._view.note(f"the model of {name} is exported and reloaded")
        child = self._start_other(
            "export", command_line("export", self._folder.node(name), "--to", self._folder.model)
        )
        if not processes.wait_for([child], CHECK_PATIENCE) or child.status != 0:
            self._journal.emit(
                "demo.model", error=f"export ended with status {child.status}: {child.last_words()}"
            )
            return
        argv = module_line("node.demo.reload", self._folder.run_file, self._folder.model)
        child = self._start_other("reload", argv)
        processes.wait_for([child], CHECK_PATIENCE)
        lines = child.log.read_text(errors="replace").splitlines()
        found = next(
            (line for text in reversed(lines) if (line := _json(text))),
            {"error": child.last_words() or "no answer"},
        )
        self._journal.emit("demo.model", folder=str(self._folder.model), node=name, **found)

    def _start_other(self, name: str, argv: list[str]) -> Child:
        log = self._folder.log(name)
        log.unlink(missing_ok=True)
        child = processes.start(name, argv, log, self._threads)
        self._others.append(child)
        return child

    def _say_trouble(self, sentence: str) -> None:
        self._journal.emit("demo.trouble", sentence=sentence)
        self._view.note(sentence)


def resumed_note(facts: Facts) -> str:
    """What a start says that goes on with an unfinished demo."""
    commits = facts.history.commits()
    last = max(commits)
    return f"going on after round {last}, the last committed one, of {len(roster(commits[last]))} members"


def _json(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
