"""A process ends with the one that started it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent.parent

CHILD = (
    "import os, sys, time; from protocol.parent import die_with_parent; die_with_parent(int(sys.argv[1]));"
    "print(os.getpid(), flush=True); time.sleep(600)"
)
PARENT = (
    "import os, subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())]); time.sleep(600)"
)


def test_a_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_child_whose_parent_ended_before_it_asked_ends_at_once() -> None:
    gone = os.getpid() + 1  # anyone but this process
    done = subprocess.run([sys.executable, "-c", CHILD, str(gone)], cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode == 128 + signal.SIGKILL and not done.stdout
