"""The daemon's view of one start of its worker processes: spawn, talk, end. Imports no torch."""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil

from diloco.worker.channel import MAX_LINE, Line, decode, encode

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


@dataclass(frozen=True)
class Plan:
    """How worker processes are started.

    Attributes:
        genesis: File of the run's genesis.
        state: Descriptor of the outer state.
        workers: Number of processes.
        device: "cpu" or "cuda".
        threads: Threads of each process.
        folder: Where token cache, logs and the ranks' meeting point lie.
        base: Folder of the run file, for corpora given by path.
        program: Module that a worker process runs. Code of this installation names it, never what came from a peer.
        settings: What the program is told of what it learns, as text.
    """

    genesis: Path
    state: int
    workers: int
    device: str
    threads: int
    folder: Path
    base: Path | None
    program: str = "diloco.worker"
    settings: str = "{}"

    def log(self, rank: int) -> Path:
        """What a worker process prints."""
        return self.folder / f"worker-{rank}.log"


class Ranks:
    """Worker processes that were started together and end together.

    `inbox` gets (rank, line) for each line that a process sends and (rank, None) when one has gone; `gone` is set then.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._store = plan.folder / f"ranks-{secrets.token_hex(8)}"
        self._processes: list[asyncio.subprocess.Process] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._readers: list[asyncio.Task[None]] = []
        self.inbox: asyncio.Queue[tuple[int, Line | None]] = asyncio.Queue()
        self.gone = asyncio.Event()

    async def spawn(self) -> None:
        """Start all processes; they report {"event": "up"} each when they are ready."""
        self._plan.folder.mkdir(parents=True, exist_ok=True)
        for rank in range(self._plan.workers):
            ours, theirs = socket.socketpair()
            with theirs, self._plan.log(rank).open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *self._command(rank, theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=_environment(self._plan.threads),
                    pass_fds=(theirs.fileno(), self._plan.state),
                    process_group=0,  # a terminal's Ctrl-C is the daemon's to handle
                )
            self._processes.append(process)
            reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
            self._writers.append(writer)
            self._readers.append(asyncio.create_task(self._read(rank, reader)))

    def send(self, line: Line, ranks: Sequence[int] | None = None) -> None:
        """Send a line to all processes, or to some. Processes that have gone are noticed by the inbox."""
        for rank in range(len(self._writers)) if ranks is None else ranks:
            with contextlib.suppress(ConnectionError, RuntimeError):
                self._writers[rank].write(encode(line))

    def pids(self) -> tuple[int, ...]:
        """Process ids, by rank."""
        return tuple(process.pid for process in self._processes)

    def stopped(self) -> tuple[tuple[int, int], ...]:
        """Rank and process id of each process that a signal has stopped (SIGSTOP, SIGTSTP)."""
        return tuple((rank, pid) for rank, pid in enumerate(self.pids()) if _is_stopped(pid))

    def last_words(self, rank: int) -> str:
        """How a process ended and the last line it printed."""
        with contextlib.suppress(OSError):
            data = self._plan.log(rank).read_bytes()[-4096:].decode("utf-8", errors="replace")
            lines = [line.strip() for line in data.splitlines() if line.strip()]
            # Interpreters end a traceback with the error; the C++ part of torch may add warnings after it.
            errors = [line for line in lines if "Error" in line or "error" in line]
            if lines:
                return (errors or lines)[-1][:300]
        return "it printed nothing"

    def status(self, rank: int) -> str:
        """Exit status or signal of a process in words."""
        code = self._processes[rank].returncode
        if code is None:
            return "still ending"
        return f"signal {-code}" if code < 0 else f"exit status {code}"

    async def end(self, grace: timedelta = timedelta(0)) -> None:
        """End all processes and leave nothing behind; those that do not leave within `grace` are killed."""
        if grace:
            self.send({"do": "shutdown"})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace.total_seconds()):
                    await asyncio.gather(*(process.wait() for process in self._processes))
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            await process.wait()
        for task in self._readers:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        self._store.unlink(missing_ok=True)
        self.gone.set()
        self.inbox.put_nowait((0, None))  # whoever still waits for an answer is told

    async def _read(self, rank: int, reader: asyncio.StreamReader) -> None:
        try:
            while raw := await reader.readline():
                self.inbox.put_nowait((rank, decode(raw)))
        except (ConnectionError, ValueError):
            pass  # a line that is too long or no JSON ends the conversation like a death
        if reader.at_eof():
            await self._processes[rank].wait()  # so that whoever is told can say how it ended
        self.gone.set()
        self.inbox.put_nowait((rank, None))

    def _command(self, rank: int, channel: int) -> list[str]:
        plan = self._plan
        command = [sys.executable, "-m", plan.program]
        for name, value in (
            ("rank", rank),
            ("world", plan.workers),
            ("threads", plan.threads),
            ("socket", channel),
            ("state", plan.state),
            ("parent", os.getpid()),
            ("genesis", plan.genesis.resolve()),
            ("folder", plan.folder.resolve()),
            ("store", self._store.resolve()),
            ("device", plan.device),
            ("settings", plan.settings),
        ):
            command += [f"--{name}", str(value)]
        return command if plan.base is None else [*command, "--base", str(plan.base.resolve())]


def _is_stopped(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:  # it has gone, which is noticed elsewhere
        return False


def _environment(threads: int) -> dict[str, str]:
    environment = dict(os.environ)
    environment.update({name: str(threads) for name in _THREAD_VARIABLES})
    environment.update(
        TOKENIZERS_PARALLELISM="false",
        # torch computes gradients in a second thread, whose own arena would keep as much memory again.
        MALLOC_ARENA_MAX="1",
        # Nothing is ever looked up on a hub.
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_VERBOSITY="error",
    )
    root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return environment
