"""Stands in for `intellect-node` where the demo itself is tested: it writes the event log of a node that does nothing.

All fake nodes of a folder follow one clock, which the node that opens the run sets, so that their rounds happen at the
same time.
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
from node.lifecycle import hold
from tests.node.demo.made_up import PARAMETERS, TOKENS, digest, loss_at, peer

ROUND = float(os.environ.get("FAKE_ROUND", "0.2"))
ROUNDS = int(os.environ.get("FAKE_ROUNDS", "10"))


class Stopped(Exception):
    """SIGTERM came."""


class FakeNode:
    """One node: its log, and the clock that it shares with the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.log = EventLog(folder / FILE)
        self.clock = folder.parent / "clock"
        self.pids = folder.parent / "pids"

    def live(self, opens: bool) -> None:
        """Until SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop)
        first = (
            max((event["round"] for event in read(self.log.path) if event.kind == "commit"), default=-1) + 1
        )
        self.log.emit("node.start", peer=peer(self.name), version="0", pid=os.getpid(), boot="00")
        self.pids.mkdir(exist_ok=True)
        (self.pids / self.name).write_text(str(os.getpid()))
        if opens:
            fresh = self.clock.with_suffix(".new")
            fresh.write_text(json.dumps({"round": first, "t": time.time() + 1.5}))
            os.replace(fresh, self.clock)
        self.log.emit("directory.ready", multiaddrs=[f"/ip4/127.0.0.1/tcp/4001/p2p/{self.name}"], seconds=0.1)
        round = 0
        try:
            origin = json.loads(self.clock.read_text())
            round = max(origin["round"], origin["round"] + 1 + int((time.time() - origin["t"]) // ROUND))
            if round > 0 and first == 0:
                self.log.emit(
                    "state.downloaded",
                    round=round,
                    bytes=1,
                    holders=["a", "b"],
                    seconds=0.1,
                    digest=digest("state", round),
                )
            while round < ROUNDS:
                self._round(round, origin["t"] + (round - origin["round"]) * ROUND)
                round += 1
            self.log.emit("run.finished", round=ROUNDS, **self._digests(ROUNDS))
            while True:
                time.sleep(1)
        except Stopped:
            self.log.emit("drain.begin", round=round)
            self.log.emit("goodbye")

    def _round(self, round: int, begin: float) -> None:
        self._until(begin)
        self.log.emit("evaluation", round=round, loss=loss_at(round))
        self.log.emit("train.begin", round=round, start=round * 1000 + int(self.name[-1]), count=160)
        self._until(begin + 0.4 * ROUND)
        self.log.emit(
            "train.end", round=round, steps=20, tokens=TOKENS, seconds=0.4 * ROUND, loss=loss_at(round)
        )
        self.log.emit("contribution.frozen", round=round, bytes=1, seconds=0.0)
        self.log.emit("reduce.begin", round=round, attempt=0)
        for step in range(1, 10):
            self._until(begin + (0.4 + 0.05 * step) * ROUND)
            self.log.emit("reduce.progress", round=round, attempt=0, fraction=step / 10)
        self.log.emit("reduce.end", round=round, attempt=0, seconds=0.45 * ROUND)
        self._until(begin + 0.9 * ROUND)
        roster = [peer(each.name) for each in self.pids.iterdir() if _lives(int(each.read_text()))]
        self.log.emit(
            "commit",
            epoch=0,
            round=round,
            attempt=0,
            roster=roster,
            tokens=len(roster) * TOKENS,
            partial_tokens=0,
        )
        self.log.emit("apply", round=round + 1, seconds=0.0, **self._digests(round + 1))
        self.log.emit("bytes", round=round + 1, rounds=(round + 1) * 1000, state=0, total=(round + 1) * 1000)

    def _digests(self, round: int) -> dict[str, str]:
        return {
            "digest": digest("state", round),
            "parameters": digest("params", round),
            "momentum": digest("moment", round),
        }

    def _until(self, t: float) -> None:
        time.sleep(max(0.0, t - time.time()))

    def _stop(self, number: int, frame: Any) -> None:
        raise Stopped


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main(words: list[str]) -> None:
    """As the real one, as far as the demo needs it."""
    options = dict(pairwise(words))
    match words[0]:
        case "init" | "run":
            folder = Path(options["--dir"])
            with hold(folder):
                if words[0] == "init":
                    sleeper = "from node.children import *; die_with_parent_if_asked(); import time; time.sleep(600)"
                    start_child([sys.executable, "-c", sleeper], threads=1)
                FakeNode(folder).live(opens="--join" not in options)
        case "stop":
            os.kill(
                int((Path(options["--dir"]).parent / "pids" / Path(options["--dir"]).name).read_text()),
                signal.SIGTERM,
            )
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
