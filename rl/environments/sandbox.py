"""Generated code, run once in a process that is bounded in everything. `rl.environments.jail` puts the bounds on."""

import asyncio
import contextlib
import math
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Literal

from protocol.errors import Code, NodeError
from protocol.units import Bytes

_JAIL = Path(__file__).with_name("jail.py")
_NO_WALLS = 125
MEMORY = Bytes(256 << 20)
OUTPUT = Bytes(64 << 10)


@dataclass(frozen=True)
class Limits:
    """What a program may use. It is one process with one thread, without network, and can write no file.

    Attributes:
        wall: From start to end.
        cpu: Time on a core; counted in whole seconds.
        memory: Address space, the interpreter included.
        output: What it prints, standard output and error together.
    """

    wall: timedelta = timedelta(seconds=10)
    cpu: timedelta = timedelta(seconds=2)
    memory: Bytes = MEMORY
    output: Bytes = OUTPUT


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    Attributes:
        end: ``done`` with status 0, ``failed`` with another (an exception, too little memory), or stopped at its
            limit of ``time`` or ``output``.
        output: What it printed, at most the limit.
    """

    end: Literal["done", "failed", "time", "output"]
    output: bytes


async def run(source: str, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
    """Run a Python program that nobody has to trust.

    Args:
        source: The program. It sees the standard library and nothing else.
        stdin: What it can read.
        limits: Its bounds.

    Raises:
        NodeError: RL_SANDBOX when this machine cannot keep it from the network, or its user from Python.
    """
    limits = limits or Limits()
    status, outcome = await _run(source, stdin, limits)
    if status == _NO_WALLS and (await _run("", b"", Limits()))[0] == _NO_WALLS:
        raise NodeError(Code.RL_SANDBOX, "This machine offers no way to run generated code safely.")
    return outcome


async def _run(source: str, stdin: bytes, limits: Limits) -> tuple[int | None, Outcome]:
    cpu = max(1, math.ceil(limits.cpu.total_seconds()))
    with _memory(source.encode()) as program, _memory(stdin) as given:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", str(_JAIL)),
            *(str(number) for number in (os.getpid(), int(limits.memory), cpu, program.fileno())),
            stdin=given,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(program.fileno(),),
            start_new_session=True,
            env={},
        )
    assert process.stdout is not None
    output = bytearray()
    stopped: Literal["time", "output"] | None = None
    try:
        async with asyncio.timeout(limits.wall.total_seconds()):
            while len(output) <= limits.output and (piece := await process.stdout.read(16 << 10)):
                output += piece
            if len(output) > limits.output:
                stopped = "output"
            else:
                await process.wait()
    except TimeoutError:
        stopped = "time"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        while await process.stdout.read(16 << 10):
            pass  # asyncio tells of the end only once what was written is read
        await process.wait()
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        stopped = stopped or "time"
    ended: Literal["done", "failed"] = "done" if process.returncode == 0 else "failed"
    return process.returncode, Outcome(stopped or ended, bytes(output[: limits.output]))


def _memory(content: bytes) -> BinaryIO:
    """Bytes as a file that lies in memory and is read from its beginning."""
    file = os.fdopen(os.memfd_create("generated"), "w+b")
    file.write(content)
    file.seek(0)
    return file
