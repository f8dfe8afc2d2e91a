"""The node's end of the link to its directory process: starts it, calls it, notices its death, buries it."""

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import protocol
from protocol.directory.frames import error_of, read_frame, write_frame
from protocol.directory.limits import CALL, MAX_FRAME, MAX_WORDS, STOP
from protocol.errors import Code, NodeError


class Link:
    """A directory process and the connection to it. Belongs to one event loop and the thread that runs it.

    Attributes:
        died: Set when the process has ended without :meth:`stop` and nothing of it is left.
        failure: What it died of, once it did.
        helper: Process id of its network helper, once that runs.
    """

    def __init__(self, progress: Callable[[str], None], told: Callable[[dict[str, Any]], None]) -> None:
        self.died = asyncio.Event()
        self.clock_offset = 0.0
        self.clock_warning: str | None = None
        self.failure: NodeError | None = None
        self.helper: int | None = None
        self._progress = progress
        self._told = told
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pidfd: int | None = None  # of the helper
        self._words: deque[str] = deque(maxlen=40)
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._next = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def alive(self) -> bool:
        """Whether calls have a chance."""
        return self._ready.done() and self.failure is None and not self._stopping

    @property
    def pid(self) -> int | None:
        """Process id of the directory process."""
        return self._process.pid if self._process is not None else None

    async def start(self, config: dict[str, Any], limit: timedelta) -> dict[str, Any]:
        """Starts the process; returns its ``ready`` event.

        Raises:
            NodeError: What the process reported, or ``E-DIR-001``.
        """
        self._progress("starting the directory process")
        ours, theirs = socket.socketpair()
        root = str(Path(protocol.__file__).resolve().parent.parent)
        path = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": root if path is None else f"{root}{os.pathsep}{path}",
            "HIVEMIND_LOGLEVEL": "ERROR",
            "HIVEMIND_COLORS": "0",
        }
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "protocol.directory.process",
                "--link", str(theirs.fileno()), "--parent", str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),), env=environment,
            )  # fmt: skip
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=int(MAX_FRAME))
        self._tasks = [asyncio.create_task(self._listen(reader)), asyncio.create_task(self._read_words())]
        write_frame(self._writer, config)
        try:
            return await asyncio.wait_for(asyncio.shield(self._ready), limit.total_seconds())
        except TimeoutError:
            sentence = (
                f"The directory did not start within {limit.total_seconds():.0f} s. {self._last_words()}"
            )
            raise NodeError(Code.DIR_START, sentence) from None

    async def call(self, op: str, **arguments: Any) -> Any:
        """Calls an operation of the process.

        Raises:
            NodeError: What the operation reported, or ``E-DIR-003``.
        """
        if not self.alive or self._writer is None:
            raise self.failure or NodeError(Code.DIR_DIED, "The directory is not running.")
        self._next += 1
        number = self._next
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            write_frame(self._writer, {"id": number, "op": op, **arguments})
            return await asyncio.wait_for(future, CALL.total_seconds())
        except TimeoutError:
            sentence = f"The directory process did not answer within {CALL.total_seconds():.0f} s."
            raise NodeError(Code.DIR_DIED, sentence) from None
        finally:
            self._calls.pop(number, None)

    async def stop(self) -> None:
        """Ends the process; nothing of it is left afterwards."""
        self._stopping = True
        if self._writer is not None:
            self._writer.close()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        elif self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Takes what the process says until it is gone, and then sees to what is left of it."""
        with contextlib.suppress(ValueError):
            while (frame := await read_frame(reader)) is not None:
                self._take(frame)
        reported = self.failure
        # from here on no call is made; what is told to those that wait follows when it is known
        self.failure = reported or NodeError(Code.DIR_DIED, "The directory process ended.")
        await self._bury()
        if self._stopping:
            self.failure = NodeError(Code.DIR_DIED, "The directory was stopped.")
        elif reported is None:
            assert self._process is not None
            status = self._process.returncode or 0
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            code = Code.DIR_DIED if self._ready.done() else Code.DIR_START
            self.failure = NodeError(code, f"The directory process {how}. {self._last_words()}")
        for future in self._calls.values():
            if not future.done():
                future.set_exception(self.failure)
        if not self._ready.done():
            self._ready.set_exception(self.failure)
            self._ready.exception()  # it may be that nobody waits any more
        elif not self._stopping:
            self.died.set()

    def _take(self, frame: dict[str, Any]) -> None:
        match frame.get("event"):
            case "progress":
                self._progress(str(frame["text"]))
            case "clock":
                self.clock_offset = float(frame["offset"])
                self.clock_warning = frame["warning"]
            case "way" | "no-way":
                self._told(frame)
            case "helper":
                if self._pidfd is not None:  # another took the place of the first, which has ended
                    os.close(self._pidfd)
                    self._pidfd = None
                self.helper = int(frame["pid"])
                with contextlib.suppress(OSError):
                    self._pidfd = os.pidfd_open(self.helper)
            case "ready":
                if not self._ready.done():
                    self._ready.set_result(frame)
            case "failed":
                self.failure = error_of(frame)
            case _:
                future = self._calls.get(frame["id"])
                if future is not None and not future.done():
                    if "error" in frame:
                        future.set_exception(error_of(frame["error"]))
                    else:
                        future.set_result(frame["result"])

    async def _bury(self) -> None:
        """Waits until process and helper are gone, and kills what lingers."""
        assert self._process is not None
        try:
            await asyncio.wait_for(self._process.wait(), 2 * STOP.total_seconds())
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        helper, self._pidfd = self._pidfd, None
        if helper is not None:
            try:
                if not await _ended(helper, STOP):
                    signal.pidfd_send_signal(helper, signal.SIGKILL)
                    await _ended(helper, STOP)
            except ProcessLookupError:
                pass
            finally:
                os.close(helper)

    async def _read_words(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:  # longer than the reader's limit
                continue
            if not line:
                return
            self._words.append(line.decode(errors="replace").rstrip()[:500])

    def _last_words(self) -> str:
        return f"Its last words: {chr(10).join(self._words)[-MAX_WORDS:] or '(it wrote nothing)'}"


async def _ended(pidfd: int, within: timedelta) -> bool:
    """Waits until the process of a pidfd has ended."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), within.total_seconds())
    except TimeoutError:
        return bool(select.select([pidfd], [], [], 0)[0])
    finally:
        loop.remove_reader(pidfd)
    return True
