"""Stands in for `intellect-node` where the demo itself is tested: it writes the event log of a node that does nothing.

Six rounds of three nodes and a joiner, scripted: nobody waits for a clock, everyone for those that belong to a round.
In round 2 all wait for the joiner, in round 3 the founder stays in the middle of its all-reduce until it is killed,
in round 4 the second node trains until it is told to leave. `FAKE_HOLD` names a round that nobody completes.
"""

import json
import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from node.children import PARENT_VARIABLE, die_with_parent_if_asked, start_child
from node.eventlog import FILE, EventLog, read
from node.lifecycle import hold, holder
from tests.node.demo.made_up import PARAMETERS, TOKENS, digest, loss_at, peer

ROUNDS, JOINED, KILLED, LEFT = 6, 2, 3, 4
HOLD = int(os.environ.get("FAKE_HOLD", "-1"))


class Stopped(Exception):
    """SIGTERM came."""


def belong(round: int) -> list[str]:
    """Who contributes to a round."""
    ends = {"node-1": KILLED, "node-2": LEFT}
    begins = {"node-4": JOINED}
    names = ("node-1", "node-2", "node-3", "node-4")
    return [name for name in names if begins.get(name, 0) <= round < ends.get(name, ROUNDS)]


class FakeNode:
    """One node: its log, and a file by which the others see how far it is."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.log = EventLog(folder / FILE)
        self.passed = folder.parent / "passed"
        self.first = (
            max((event["round"] for event in read(self.log.path) if event.kind == "commit"), default=-1) + 1
        )

    def live(self, dashboard: str) -> None:
        """Until SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop)
        self.log.emit("node.start", peer=peer(self.name), version="0", pid=os.getpid(), boot="00")
        self.log.emit("directory.ready", multiaddrs=[f"/ip4/127.0.0.1/tcp/4001/p2p/{self.name}"], seconds=0.1)
        if dashboard:
            self.log.emit("dashboard.ready", url=f"http://{dashboard}", database="ready")
        self.passed.mkdir(exist_ok=True)
        round = self.first
        try:
            if self.name == "node-4" and not self.first:
                round = JOINED
                self._download()
            while round < ROUNDS:
                self._round(round)
                round += 1
            self.log.emit("run.finished", round=ROUNDS, **self._digests(ROUNDS))
            self._stay()
        except Stopped:
            self.log.emit("drain.begin", round=round)
            self.log.emit("goodbye")

    def _download(self) -> None:
        self._wait(JOINED - 1, ["node-2"])
        found = {"bytes": 1, "holders": [peer("node-2"), peer("node-3")], "seconds": 0.1}
        self.log.emit("state.downloaded", round=JOINED, digest=digest("state", JOINED), **found)

    def _round(self, round: int) -> None:
        self.log.emit("evaluation", round=round, loss=loss_at(round))
        self.log.emit("train.begin", round=round, start=round * 1000 + int(self.name[-1]), count=160)
        if self.name == "node-2" and round == LEFT:
            self._stay()
        self.log.emit("train.end", round=round, steps=20, tokens=TOKENS, seconds=1.0, loss=loss_at(round))
        self.log.emit("contribution.frozen", round=round, bytes=1, seconds=0.0)
        self.log.emit("reduce.begin", round=round, attempt=0)
        self.log.emit("reduce.progress", round=round, attempt=0, fraction=0.5)
        if round == HOLD or (self.name == "node-1" and round == KILLED):
            self._stay()
        self.log.emit("reduce.end", round=round, attempt=0, seconds=1.0)
        fresh = self.passed / f"{self.name}.new"
        fresh.write_text(str(round))
        os.replace(fresh, self.passed / self.name)
        self._wait(round, belong(round))
        while round == KILLED and holder(self.passed.parent / "node-1") is not None:
            time.sleep(0.005)
        self._commit(round)

    def _commit(self, round: int) -> None:
        roster = [peer(name) for name in belong(round)]
        tokens = len(roster) * TOKENS
        value = {
            "epoch": 0,
            "round": round,
            "attempt": 0,
            "roster": roster,
            "tokens": tokens,
            "partial_tokens": 0,
        }
        self.log.emit("commit", **value)
        self.log.emit("apply", round=round + 1, seconds=0.0, **self._digests(round + 1))
        sent = (round + 1) * 1000
        self.log.emit("bytes", round=round + 1, rounds=sent, state=0, total=sent)

    def _wait(self, round: int, names: list[str]) -> None:
        while not all(self._has_passed(name, round) for name in names):
            time.sleep(0.005)

    def _has_passed(self, name: str, round: int) -> bool:
        try:
            return int((self.passed / name).read_text()) >= round
        except FileNotFoundError:
            return False

    def _digests(self, round: int) -> dict[str, str]:
        names = {"digest": "state", "parameters": "params", "momentum": "moment"}
        return {name: digest(what, round) for name, what in names.items()}

    def _stay(self) -> None:
        while True:
            time.sleep(60)

    def _stop(self, number: int, frame: Any) -> None:
        raise Stopped


def start(folder: Path, *, with_child: bool, dashboard: str) -> None:
    """`init` and `run`."""
    with hold(folder):
        (folder / "pid").write_text(str(os.getpid()))
        if with_child:
            sleeper = "from node.children import *; die_with_parent_if_asked(); import time; time.sleep(600)"
            start_child([sys.executable, "-c", sleeper], threads=1)
        FakeNode(folder).live(dashboard)


def main(words: list[str]) -> None:
    """As the real one, as far as the demo needs it."""
    options = dict(pairwise(words))
    match words[0]:
        case "init" | "run":
            dashboard = options.get("--dashboard", "")
            start(Path(options["--dir"]), with_child=words[0] == "init", dashboard=dashboard)
        case "stop":
            os.kill(int((Path(options["--dir"]) / "pid").read_text()), signal.SIGTERM)
        case "export":
            Path(options["--to"]).mkdir()
        case "node.demo.reload":
            found = {
                "parameters": PARAMETERS,
                "parameters_digest": digest("params", ROUNDS),
                "logit_difference": 0.0,
            }
            print(json.dumps({**found, "samples": ["one", "two"]}))


if __name__ == "__main__":
    die_with_parent_if_asked()
    assert PARENT_VARIABLE not in os.environ
    main(sys.argv[1:])
