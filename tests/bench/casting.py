"""Origin, relay and client for benchmarks, each in a process of its own: ``python -m tests.bench.casting ROLE …``.

A process reads one word or path a line, does that, and answers with one line of JSON.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from protocol.identity import Identity
from shardcast.expect import Expect
from shardcast.http.fetching import fetch_version
from shardcast.http.origin import Origin
from shardcast.http.relay import Relay
from shardcast.http.source import Source

IDENTITY = Identity.ephemeral(b"benchmark".ljust(32))
_ROOT = Path(__file__).parents[2]


class Process:
    """One of these processes, or another that prints a line when it is ready."""

    def __init__(self, *command: str, folder: Path = _ROOT) -> None:
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
        )

    def tell(self, line: str) -> None:
        """Say what is to be done."""
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def answer(self) -> Any:
        """What it says next."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._child.args} ended: {self._child.wait()}")
        return json.loads(line)

    def ask(self, line: str) -> Any:
        """Both."""
        self.tell(line)
        return self.answer()

    def used(self) -> float:
        """Seconds of a processor that it has taken so far."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> "Process":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@dataclass(frozen=True)
class Place:
    """Where a process runs: this machine, or a network namespace of it.

    Attributes:
        address: Where it listens.
        space: The namespace's name.
    """

    address: str = "127.0.0.1"
    space: str = ""

    def run(self, *arguments: str) -> Process:
        """Start one of the roles there."""
        inside = ("ip", "netns", "exec", self.space) if self.space else ()
        return Process(*inside, sys.executable, "-m", "tests.bench.casting", *arguments)


HERE = Place()


def origin(folder: Path, place: Place = HERE) -> Process:
    """Answers with its URL; told a path, publishes that and answers with its serial once it is announced."""
    return place.run("origin", str(folder), place.address)


def relay(folder: Path, url: str, place: Place = HERE) -> Process:
    """Answers with its URL."""
    return place.run("relay", str(folder), place.address, url)


def client(into: Path, url: str, place: Place = HERE) -> Process:
    """Answers when it is ready; told a serial, fetches what is newer and answers with its seconds."""
    return place.run("client", str(into), url)


@contextlib.contextmanager
def raw_server(path: Path) -> Iterator[str]:
    """The URL at which a bare sendfile server has a file."""
    with Process(
        sys.executable, str(Path(__file__).parent / "peers" / "sendfile_server.py"), str(path)
    ) as server:
        yield f"http://127.0.0.1:{server.answer()}/file"


def curl(url: str, into: Path) -> "subprocess.Popen[bytes]":
    """Begins to copy."""
    return subprocess.Popen(["curl", "-s", "-f", "-o", str(into), url])


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder in memory where there is one, so that no disk is measured."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def write_random(path: Path, size: int) -> None:
    """Bytes that nothing makes smaller."""
    piece = memoryview(os.urandom(1 << 24))
    with path.open("wb") as file:
        for start in range(0, size, len(piece)):
            file.write(start.to_bytes(16, "little"))
            file.write(piece[16 : min(len(piece), size - start)])


def peak_mb() -> float:
    """The most memory that this process ever had resident, in MB, without what it maps of files in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


# the processes


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


async def _lines() -> Any:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.strip()


async def _origin(folder: str, address: str) -> None:
    server = Origin(Path(folder), IDENTITY)
    await server.start(address)
    _say(f"http://{address}:{server.server.port}")
    async for line in _lines():
        if line == "memory":
            _say(peak_mb())
            continue
        publication = await server.publish(Path(line))
        _say(publication.serial)


async def _relay(folder: str, address: str, url: str) -> None:
    server = Relay(Path(folder), [Source.parse(url)])
    await server.start(address)
    _say(f"http://{address}:{server.server.port}")
    async for _ in _lines():
        _say(peak_mb())


async def _client(into: str, url: str) -> None:
    _say("ready")
    async for line in _lines():
        if line == "memory":
            _say(peak_mb())
            continue
        start = time.perf_counter()
        expect = Expect(publisher=IDENTITY.peer_id)
        await fetch_version([Source.parse(url)], Path(into), expect, newer_than=int(line))
        _say(time.perf_counter() - start)


if __name__ == "__main__":
    roles = {"origin": _origin, "relay": _relay, "client": _client}
    asyncio.run(roles[sys.argv[1]](*sys.argv[2:]))
