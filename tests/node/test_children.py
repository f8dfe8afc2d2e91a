import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from node.children import (
    PARENT_VARIABLE,
    available_cores,
    child_environment,
    end_descendants,
    share_of_cores,
    start_child,
    thread_budget,
    worker_threads,
)
from tests.node.processes import ROOT, program, said, wait_until_gone

CHILD = (
    "import os, signal; from node.children import die_with_parent_if_asked as f; f(); print(os.getpid(), flush=True);"
    "assert 'INTELLECT_NODE_PARENT' not in os.environ; signal.pause()"
)
PARENT = f"""
    import sys
    from pathlib import Path
    from node.children import start_child
    child = start_child([sys.executable, "-c", {CHILD!r}], threads=1)
    __import__("signal").pause()
"""


def test_a_child_dies_with_a_parent_that_is_killed() -> None:
    with program(PARENT) as parent:
        child = int(said(parent))
        parent.kill()
        parent.wait()
        wait_until_gone(child)


def test_a_child_whose_parent_has_died_before_it_could_ask_ends_at_once() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    environment = {**os.environ, PARENT_VARIABLE: str(gone.pid), "PYTHONPATH": str(ROOT)}
    late = subprocess.run([sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE, check=False)
    assert late.returncode == 128 + signal.SIGKILL
    assert late.stdout == b""


def test_who_was_started_by_hand_outlives_its_parent() -> None:
    environment = {**os.environ, PARENT_VARIABLE: "", "PYTHONPATH": str(ROOT)}
    child = CHILD.replace("signal.pause()", "print('on', flush=True)")
    done = subprocess.run([sys.executable, "-c", child], env=environment, stdout=subprocess.PIPE, check=True)
    assert done.stdout.endswith(b"on\n")


def test_a_child_has_its_own_process_group_and_log(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    log.write_text("before\n")
    source = "import os, sys; print(os.getpgrp() == os.getpid(), sys.stdin.read() == '', os.environ['OMP_NUM_THREADS'])"
    child = start_child([sys.executable, "-c", source], threads=3, log=log)
    assert child.wait() == 0
    assert log.read_text() == "before\nTrue True 3\n"


def test_every_process_below_is_ended(tmp_path: Path) -> None:
    source = """
        import subprocess, sys, time
        from datetime import timedelta
        from node.children import end_descendants
        stubborn = "import signal, subprocess; p = subprocess.Popen(['sleep', '60'], process_group=0);" \
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(p.pid, flush=True); signal.pause()"
        child = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE, text=True)
        print(child.pid, child.stdout.readline().strip(), flush=True)
        print(end_descendants(timedelta(milliseconds=int(sys.argv[1]))), flush=True)
        child.wait()
    """
    for grace, killed in ((0, 2), (50, 1)):
        with program(source, grace) as parent:
            pids = [int(word) for word in said(parent).split()]
            assert int(said(parent)) == killed
            for pid in pids:
                wait_until_gone(pid)


def test_nothing_below_is_nothing_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: [])
    assert end_descendants(timedelta(seconds=1)) == 0


def test_every_thread_pool_is_bounded() -> None:
    environment = child_environment(2, {"KEEP": "1", "OMP_NUM_THREADS": "64"})
    for name in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "RAYON_NUM_THREADS",
    ):
        assert environment[name] == "2"
    assert environment["KEEP"] == "1"
    assert environment[PARENT_VARIABLE] == str(os.getpid())
    assert thread_budget(1)["TOKENIZERS_PARALLELISM"] == "false"


def test_cores_are_shared_and_nobody_gets_none() -> None:
    assert share_of_cores(2, cores=8) == 4
    assert share_of_cores(3, cores=8) == 2
    assert share_of_cores(16, cores=8) == 1
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))
    assert worker_threads(5, 2) == 5
    assert worker_threads(0, 10_000) == 1


def test_a_containers_quota_bounds_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    for quota, cores in (("200000 100000", 2), ("50000 100000", 1), ("max 100000", 64), ("nonsense", 64)):
        monkeypatch.setattr(Path, "read_text", lambda self, quota=quota: quota)
        assert available_cores() == cores
