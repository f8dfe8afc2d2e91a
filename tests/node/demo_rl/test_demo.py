"""`intellect-node demo --rl` as a person starts it, with all its processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from node.demo.processes import environment

PATIENCE = 120


def begin(folder: Path, *words: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "node", "demo", "--rl", "--dir", str(folder), *words]
    return subprocess.Popen(
        argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def report_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "report.json").read_text()))


def below(process: "subprocess.Popen[str]", found: Callable[[list[str]], bool]) -> psutil.Process:
    """A process below another one, once it is there, by its command line."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for each in psutil.Process(process.pid).children(recursive=True):
            if found(each.cmdline()):
                return each
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def test_a_demo_that_cannot_show_what_it_promises_says_so_and_ends_with_an_error(tmp_path: Path) -> None:
    with begin(tmp_path / "demo", "--steps", "2") as process:
        warm = below(process, lambda argv: "node.demo_rl.warm" in argv)
        children = psutil.Process(process.pid).children(recursive=True)
        os.kill(warm.pid, signal.SIGKILL)
        text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, text
    assert "FAIL  nothing went wrong" in text and "warm-start failed with status -9" in text
    report = report_of(tmp_path / "demo")
    assert not report["ok"] and not report["held_out_solved"] and report["ban"] is None
    failed = {check["name"] for check in report["checks"] if not check["ok"]}
    assert {"nothing went wrong", "the policy learns", "the cheat is found, banned and told why"} <= failed
    assert "warm-start failed" in (tmp_path / "demo" / "report.html").read_text()
    assert not any(each.is_running() for each in children)


@pytest.mark.soak  # it takes three minutes on two cores, as the demo does
def test_a_whole_demo_shows_all_that_it_promises(tmp_path: Path) -> None:
    with begin(tmp_path / "demo", "--steps", "32", "--seed", "2") as process:
        text, _ = process.communicate()
    assert process.returncode == 0, text
    report = report_of(tmp_path / "demo")
    assert report["ok"] and not report["failures"] and len(report["steps"]) == 32
    solved = [each["solved"] for each in report["held_out_solved"]]
    assert 0.05 <= solved[0] <= 0.2 and solved[-1] >= 2 * solved[0]
    assert report["ban"]["evidence"] and report["ban"]["told"] == report["ban"]["sentence"]
    assert not report["rollout_files"]["cheat"].get("accepted")
    for worker in ("worker-1", "worker-2"):
        assert set(report["rollout_files"][worker]) == {"accepted"}
    assert set(report["staleness"]) == {"0", "1", "2"}
    spent = report["processor_seconds_of_a_step"]
    assert all(spent[phase] > 0 for phase in ("generation", "training", "verification", "broadcast"))
    assert all(seconds > 0 for seconds in report["seconds_of"].values())
    assert "Broadcast and verification add" in text


@pytest.mark.soak  # its warm start alone takes a minute
def test_a_demo_of_too_few_steps_is_one_that_did_not_show_all(tmp_path: Path) -> None:
    with begin(tmp_path / "demo", "--steps", "3", "--json") as process:
        text, _ = process.communicate()
    assert process.returncode == 1
    report = json.loads(text)
    assert report == report_of(tmp_path / "demo") and len(report["steps"]) == 3
    failed = {check["name"] for check in report["checks"] if not check["ok"]}
    assert {"the policy learns", "the cheat is found, banned and told why"} <= failed
