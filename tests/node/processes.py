"""Small Python programs in processes of their own, for tests of signals, locks and death."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]


@contextmanager
def program(source: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run `source` until the block ends; its standard output can be read line by line."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a program prints; fails when it ends instead."""
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line.strip()


def wait_until_gone(pid: int) -> None:
    """Return when a process, which need not be a child, has ended."""
    try:
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.005)
    except psutil.NoSuchProcess:
        return
