"""A stop signal that comes while a node's program is still loading."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from node import early
from tests.node.processes import ROOT, program, said


@pytest.mark.parametrize("number", early.SIGNALS)
@pytest.mark.parametrize("command", ["init", "run", "coordinator"])
def test_a_node_that_is_stopped_before_it_began_ends_with_a_sentence(
    tmp_path: Path, number: signal.Signals, command: str
) -> None:
    runfile = tmp_path / "run.toml"
    os.mkfifo(runfile)  # reading it, the program waits for this test
    node = subprocess.Popen(
        [sys.executable, "-m", "node", command, str(runfile), "--dir", str(tmp_path / "node")],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with node, runfile.open("wb"):
        node.send_signal(number)
        _, err = node.communicate()
    assert (node.returncode, err) == (0, "Stopped before the node had begun.\n")
    assert not (tmp_path / "node").exists()


def test_commands_that_start_no_node_end_by_the_signal(tmp_path: Path) -> None:
    runfile = tmp_path / "run.toml"
    os.mkfifo(runfile)
    doctor = subprocess.Popen(
        [sys.executable, "-m", "node", "doctor", str(runfile)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with doctor, runfile.open("wb"):
        doctor.send_signal(signal.SIGTERM)
        assert doctor.wait() == -signal.SIGTERM


def test_once_a_node_has_ended_a_signal_is_no_good_end_any_more() -> None:
    source = """
        import signal, time
        from node import early
        from node.lifecycle import StopSignals
        early.watch()
        with StopSignals(lambda reason: None):
            pass
        print("ended", flush=True)
        time.sleep(600)
    """
    with program(source) as node:
        assert said(node) == "ended"
        node.send_signal(signal.SIGTERM)
        assert node.wait() == -signal.SIGTERM
