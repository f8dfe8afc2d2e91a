"""Processes below this one: none outlives its parent, none takes more cores than its share.

Linux tells a process that its parent died (``PR_SET_PDEATHSIG``), also after ``kill -9``. A child asks for that itself,
at its very start: code that runs between fork and exec of a process with threads is not safe.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import psutil

from protocol.parent import die_with_parent

PARENT_VARIABLE = "INTELLECT_NODE_PARENT"
"""Environment variable: the process id that a started `intellect-node` must not outlive."""

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "GOMAXPROCS",
)


def die_with_parent_if_asked() -> None:
    """Call `die_with_parent` when whoever started this process said so in `PARENT_VARIABLE`.

    The variable is removed, so that it does not reach this process's own children.
    """
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if parent.isdecimal():
        die_with_parent(int(parent))


def available_cores() -> int:
    """Cores that this process may use: its affinity, bounded by a container's processor quota. At least 1."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, round(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        pass
    return max(1, cores)


def share_of_cores(processes: int, cores: int | None = None) -> int:
    """Threads for each of `processes` equal processes, at least 1."""
    return max(1, (available_cores() if cores is None else cores) // max(1, processes))


def worker_threads(wish: int, workers: int) -> int:
    """Threads of each of a node's workers, from `node.threads` (0: an equal share) and `node.workers`."""
    return wish or share_of_cores(workers)


def thread_budget(threads: int) -> dict[str, str]:
    """Environment variables that bound every thread pool of a process to `threads`.

    torch, OpenMP, numba and the others read them once, when they are loaded: set them before that.
    Without a bound, processes that share two cores become ten times slower than with one.
    """
    budget = {name: str(threads) for name in _THREAD_VARIABLES}
    budget["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
    return budget


def child_environment(threads: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for a child that dies with this process and keeps to `threads` threads."""
    environment = dict(os.environ if base is None else base)
    environment.update(thread_budget(threads))
    environment[PARENT_VARIABLE] = str(os.getpid())
    return environment


def start_child(
    argv: Sequence[str],
    *,
    threads: int,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start one of our programs in a process group of its own, with no standard input.

    The group keeps a terminal's Ctrl-C away from it: the parent decides in which order things end.
    The child must call `die_with_parent_if_asked`; `intellect-node` does.

    Args:
        argv: Program and arguments.
        threads: Its thread budget.
        log: File that its output is appended to; by default it shares this process's.
        environment: Base of its environment, by default this process's.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log is not None else None
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            env=child_environment(threads, environment),
            process_group=0,
        )
    finally:
        if output is not None:
            os.close(output)


def end_descendants(grace: timedelta = timedelta(0)) -> int:
    """End every process below this one: SIGTERM and `grace` first if there is any, then SIGKILL.

    Returns:
        How many had to be killed.
    """
    below = psutil.Process().children(recursive=True)
    if grace:
        for process in below:
            _send(process, signal.SIGTERM)
        deadline = time.monotonic() + grace.total_seconds()
        while (below := [process for process in below if _lives(process)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        below += [
            new for new in psutil.Process().children(recursive=True) if new not in below and _lives(new)
        ]
    for process in below:
        _send(process, signal.SIGKILL)
    return len(below)


def _lives(process: psutil.Process) -> bool:
    """Whether a process still runs; one that its parent has not asked about yet does not. Reaps nothing."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):  # it may have ended by itself
        process.send_signal(number)
