"""An environment in a process of its own: what raises, hangs or eats memory there harms one task and nothing else.

The process is started with one hash seed everywhere, so that an environment whose order of a set matters still gives
every machine the same tasks. It answers requests as lines of JSON over a socket, many at once.
"""

import asyncio
import contextlib
import itertools
import json
import math
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from protocol.errors import Code, NodeError
from protocol.units import Bytes
from rl.environments.interface import ROLES, Config, Json, Message, Messages, Task

MEMORY = Bytes(4 << 30)
LINE = Bytes(16 << 20)


@dataclass(frozen=True)
class Limits:
    """What an environment's process may use.

    Attributes:
        start: Until it is imported and made.
        call: Each task, reply or score.
        end: Until it has put things away, when it is no longer needed.
        memory: Address space of the process.
    """

    start: timedelta = timedelta(seconds=60)
    call: timedelta = timedelta(seconds=20)
    end: timedelta = timedelta(seconds=5)
    memory: Bytes = MEMORY


class _Lost(Exception):
    """The process ended, or answered too late; the text says which."""


class HostedEnvironment:
    """An environment by name, in its own process, which is started again when it is lost.

    A call that was under way when the process was lost is made once more, alone in a fresh process; if that is lost,
    too, it is this call's doing. Use as an async context manager.

    Attributes:
        name: The environment's name.
        version: Its version, known once it is entered.
    """

    def __init__(
        self, name: str, config: Config, limits: Limits | None = None, log: Path | None = None
    ) -> None:
        self.name, self.version = name, ""
        self._config, self._limits, self._log = dict(config), limits or Limits(), log
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._alone = asyncio.Semaphore(2)

    async def __aenter__(self) -> Self:
        """Start the process.

        Raises:
            NodeError: RL_ENVIRONMENT when it cannot be imported or made.
        """
        self.version = (await self._shared()).version
        return self

    async def __aexit__(self, *error: object) -> None:
        """End the process: it is given a moment to put things away."""
        if self._child is not None:
            await self._child.end(self._limits.end)

    async def task(self, seed: int) -> Task:
        """As `Environment.task`.

        Raises:
            NodeError: RL_ENVIRONMENT_FAILED when it raised, hung, or took too much memory.
        """
        return task_of(await self._call("task", {"seed": seed}))

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """As `Environment.reply`.

        Raises:
            NodeError: As `task`.
        """
        given = await self._call("reply", {"task": asdict(task), "transcript": list(map(asdict, transcript))})
        return None if given is None else message_of(given)

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """As `Environment.score`; the rewards are as many as the transcripts, and finite.

        Raises:
            NodeError: As `task`.
        """
        said: list[Json] = [list(map(asdict, transcript)) for transcript in transcripts]
        given = await self._call("score", {"task": asdict(task), "transcripts": said})
        if not (
            isinstance(given, list)
            and len(given) == len(transcripts)
            and all(isinstance(reward, float) and math.isfinite(reward) for reward in given)
        ):
            raise self._failed("it did not give one finite number for each transcript")
        return tuple(float(str(reward)) for reward in given)

    async def _call(self, what: str, arguments: dict[str, Json]) -> Json:
        with contextlib.suppress(_Lost):
            return await self._ask(await self._shared(), what, arguments)
        async with self._alone:
            child = await _Child.start(self.name, self._config, self._limits, self._log)
            try:
                return await self._ask(child, what, arguments)
            except _Lost as lost:
                raise self._failed(f"{what}: {lost}") from None
            finally:
                await child.end(self._limits.end)

    async def _ask(self, child: "_Child", what: str, arguments: dict[str, Json]) -> Json:
        answer = await child.ask({"do": what, **arguments}, self._limits.call)
        if "error" in answer:
            raise self._failed(f"{what}: {answer['error']}")
        return answer.get("ok")

    async def _shared(self) -> "_Child":
        async with self._starting:
            if self._child is None or self._child.lost:
                self._child = await _Child.start(self.name, self._config, self._limits, self._log)
            return self._child

    def _failed(self, why: str) -> NodeError:
        return NodeError(Code.RL_ENVIRONMENT_FAILED, f"The environment {self.name} failed: {why[:500]}.")


class _Child:
    """One process, its socket, and the questions that wait for answers."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.lost, self.version = "", ""
        self._process, self._reader, self._writer = process, reader, writer
        self._waiting: dict[int, asyncio.Future[dict[str, Json]]] = {}
        self._ids = itertools.count()
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, name: str, config: Config, limits: Limits, log: Path | None) -> "_Child":
        here, there = socket.socketpair()
        with there, contextlib.ExitStack() as stack:
            output = stack.enter_context(log.open("ab")) if log is not None else asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "rl.environments.hosted"),
                *(str(os.getpid()), str(there.fileno()), str(int(limits.memory))),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(there.fileno(),),
                start_new_session=True,
                env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            )
        reader, writer = await asyncio.open_connection(sock=here, limit=LINE)
        child = cls(process, reader, writer)
        try:
            answer = await child.ask({"do": "load", "name": name, "config": dict(config)}, limits.start)
        except _Lost as lost:
            raise NodeError(Code.RL_ENVIRONMENT, f"The environment {name} does not start: {lost}.") from None
        if "error" in answer:
            await child.kill("it was refused")
            raise NodeError(Code.RL_ENVIRONMENT, str(answer["error"])[:1000])
        child.version = str(answer.get("ok"))[:200]
        return child

    async def ask(self, question: dict[str, Json], patience: timedelta) -> dict[str, Json]:
        """Raises _Lost when the process is lost, or answers too late and is killed for it."""
        if self.lost:
            raise _Lost(self.lost)
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience.total_seconds()):
                self._writer.write(json.dumps({"id": number, **question}).encode() + b"\n")
                await self._writer.drain()
                return await asyncio.shield(answer)
        except TimeoutError:
            await self.kill(f"it did not answer within {patience.total_seconds():g} s")
            raise _Lost(self.lost) from None
        except OSError:
            await self.kill("its process ended")
            raise _Lost(self.lost) from None
        finally:
            self._waiting.pop(number, None)

    async def end(self, patience: timedelta) -> None:
        """Let the process end by itself, and kill it when it does not, and all that it left."""
        with contextlib.suppress(TimeoutError, OSError):
            self._writer.write_eof()
            async with asyncio.timeout(patience.total_seconds()):
                await self._process.wait()
        await self.kill("it was closed")

    async def kill(self, why: str) -> None:
        self._lose(why)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reading.cancel()
        self._writer.close()
        await self._process.wait()

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_Lost(self.lost))
                answer.exception()  # whoever waits is told; nobody need

    async def _read(self) -> None:
        why = "its process ended"
        try:
            while line := await self._reader.readline():
                answer = json.loads(line)
                waiting = self._waiting.get(answer["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except (ValueError, KeyError, TypeError, RecursionError):
            why = "it answered with something that cannot be read, or too long"
        except OSError:
            pass
        self._lose(why)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def message_of(given: Json) -> Message:
    """A message that came as JSON.

    Raises:
        NodeError: RL_ENVIRONMENT_FAILED when it is something else.
    """
    match given:
        case {"role": str(role), "content": str(content)} if role in ROLES:
            return Message(role, content)
    raise NodeError(
        Code.RL_ENVIRONMENT_FAILED, "The environment gave a message without a known role and a text."
    )


def task_of(given: Json) -> Task:
    """A task that came as JSON.

    Raises:
        NodeError: RL_ENVIRONMENT_FAILED when it is something else.
    """
    match given:
        case {"seed": int(seed), "messages": [_, *_] as messages, "answer": dict(answer)}:
            return Task(seed, tuple(map(message_of, messages)), answer)
    raise NodeError(Code.RL_ENVIRONMENT_FAILED, "The environment gave a task without messages.")
