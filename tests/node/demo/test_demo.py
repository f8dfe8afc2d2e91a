"""The whole demo, with nodes that only write event logs: the steps, the kill, the end, breaking off and going on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from node import eventlog
from node.demo.processes import environment
from node.eventlog import Tail

ROOT = Path(__file__).parents[3]
PATIENCE = 60


class Running:
    """A demo in a process of its own."""

    def __init__(self, folder: Path, hold: int = -1) -> None:
        self.folder = folder
        browser = folder.with_name("browser")
        browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {folder.with_name("opened")}\n')
        browser.chmod(0o700)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.node.demo.fake_demo", str(folder)],
            cwd=ROOT,
            env={
                **environment(),
                "PYTHONPATH": str(ROOT),
                "FAKE_HOLD": str(hold),
                "BROWSER": f"{browser} %s",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._journal = Tail(folder / "demo.jsonl")
        self._log = Tail(folder / "node-2" / eventlog.FILE)

    def wait_for_commit(self, round: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while not any(event.kind == "commit" and event["round"] >= round for event in self._log.new()):
            assert time.monotonic() < deadline and self.process.poll() is None, self.output()
            time.sleep(0.02)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def output(self) -> str:
        return self.process.communicate(timeout=PATIENCE)[0]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts demos in one folder."""
    begun: list[Running] = []

    def start(hold: int = -1) -> Running:
        begun.append(Running(tmp_path / "demo", hold))
        return begun[-1]

    yield start
    for running in begun:
        running.process.kill()
        running.process.wait()


def wait_until_gone(children: list[psutil.Process]) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in children):
        assert time.monotonic() < deadline, children
        time.sleep(0.02)


def test_a_whole_demo_shows_all_that_it_promises(begin: Callable[..., Running]) -> None:
    started = begin()
    text = started.output()
    assert started.process.returncode == 0, text
    assert "The demo showed all that it promises." in text
    report = json.loads((started.folder / "report.json").read_text())
    assert report["failures"] == []
    assert [event["kind"] for event in report["events"]] == ["join", "kill", "leave"]
    assert 0.2 <= report["events"][1]["fraction"] <= 0.8
    assert report["nodes"]["node-1"]["exit_status"] == -signal.SIGKILL
    assert report["nodes"]["node-2"]["exit_status"] == 0
    assert report["peak_memory_bytes"] > 0
    assert "dashboard: http://127.0.0.1:0" in text
    assert (started.folder.parent / "opened").read_text() == "http://127.0.0.1:0"
    assert "<svg" in (started.folder / "report.html").read_text()


def test_a_killed_demo_takes_all_with_it_and_the_next_start_goes_on(begin: Callable[..., Running]) -> None:
    first = begin(hold=2)
    first.wait_for_commit(1)
    children = first.children()
    assert len(children) >= 4
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    wait_until_gone(children)

    second = begin()
    text = second.output()
    assert second.process.returncode == 0, text
    assert "It was resumed from round 1" in text
    steps = [
        event["step"] for event in eventlog.read(first.folder / "demo.jsonl") if event.kind == "demo.step"
    ]
    assert sorted(steps) == ["join", "kill", "leave"], "nothing is done twice"
    report = json.loads((first.folder / "report.json").read_text())
    assert (report["resumed"], report["resumed_from_round"], report["rounds"]) == (True, 1, 6)


def test_an_interrupted_demo_says_how_to_go_on(begin: Callable[..., Running]) -> None:
    started = begin(hold=1)
    started.wait_for_commit(0)
    children = started.children()
    started.process.send_signal(signal.SIGTERM)
    assert "The same command goes on" in started.output()
    wait_until_gone(children)


def test_a_node_that_ends_by_itself_is_named_with_its_status(begin: Callable[..., Running]) -> None:
    started = begin(hold=1)
    started.wait_for_commit(0)
    os.kill(int((started.folder / "node-3" / "pid").read_text()), signal.SIGKILL)
    text = started.output()
    assert started.process.returncode == 1
    assert "node-3 ended by itself with status -9" in text
