"""Reading strangers' rollout files: first in a process that may use little memory and time, then here.

A Parquet file may declare little and unfold into much, and its decoder is a large piece of C++ that aborts on some
bytes, as fuzzing shows. So a process of its own decodes the bytes first. What kills it, or takes too long, is refused;
what it reads within its bounds is read again here.
"""

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from protocol.errors import Code, NodeError
from protocol.units import PeerId
from rl.rollouts.files import load
from rl.rollouts.limits import READER_BYTES, READER_SECONDS, Limits
from rl.rollouts.parquet import check_envelope, decode
from rl.rollouts.record import Group, Provenance
from rl.rollouts.signing import Signed

_LINE = 1 << 16


class Reader:
    """Reads rollout files one after the other; the process that goes first is started when needed.

    Args:
        limits: What a file may hold.
        seconds: How long one file may take.
        memory: Bytes of address space that reading may add to the process at its start.

    Used by one event loop; callers at the same time wait for each other.
    """

    def __init__(
        self, limits: Limits, *, seconds: float = READER_SECONDS, memory: int = READER_BYTES
    ) -> None:
        self._limits = limits
        self._memory = memory
        self._seconds = seconds
        self._child: asyncio.subprocess.Process | None = None
        self._alone = asyncio.Lock()

    async def read(
        self, path: Path, courier: PeerId | None = None
    ) -> tuple[Provenance, tuple[Group, ...], Signed]:
        """What a finished file holds, and its signature, which is its worker's.

        Args:
            path: The file.
            courier: Who signed instead of the worker.

        Raises:
            NodeError: ``E-RL-001``, ``E-RL-002``, ``E-RL-003``, or a storage error.
        """
        data, signed = await asyncio.to_thread(load, path, self._limits)
        check_envelope(data, self._limits)
        async with self._alone:
            await self._try(path)
        provenance, groups = await asyncio.to_thread(decode, data, self._limits)
        if signed.signer != (courier or provenance.worker):
            raise NodeError(
                Code.RL_FILE_SIGNATURE,
                f"A rollout file of {provenance.worker} is signed by {signed.signer}.",
                peer=signed.signer,
            )
        return provenance, groups, signed

    async def _try(self, path: Path) -> None:
        """Has the child read a file.

        Raises:
            NodeError: What it found, or that it did not survive.
        """
        used = self._child is not None
        answer = await self._ask(path)
        if answer is None and used:  # it may have died of anything since the last file
            answer = await self._ask(path)
        if answer is None:
            raise NodeError(
                Code.RL_FILE_TOO_LARGE,
                "Reading a rollout file needs more memory than it may, or ends the reader.",
            )
        if answer:
            raise NodeError(Code(answer["code"]), str(answer["sentence"]))

    async def _ask(self, path: Path) -> dict[str, Any] | None:
        child = self._child or await self._start()
        assert child.stdin and child.stdout
        answer = None
        try:
            async with asyncio.timeout(self._seconds):
                child.stdin.write(json.dumps({"path": str(path), **asdict(self._limits)}).encode() + b"\n")
                await child.stdin.drain()
                answer = _answer(await child.stdout.readline())
        except TimeoutError:
            raise NodeError(
                Code.RL_FILE_TOO_LARGE, f"Reading a rollout file takes more than {self._seconds:g} s."
            ) from None
        except (OSError, ValueError):
            pass
        finally:
            if answer is None:  # what it may still say would be taken for its answer about the next file
                await self.close()
        return answer

    async def _start(self) -> asyncio.subprocess.Process:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rl.rollouts.reader", str(os.getpid()), str(self._memory),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LINE,
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        )  # fmt: skip
        return self._child

    async def close(self) -> None:
        """Ends the child; a later read starts another."""
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _answer(line: bytes) -> dict[str, Any] | None:
    """What the child said: nothing wrong (empty), a code and a sentence, or nothing (None)."""
    try:
        answer = json.loads(line)
        if answer:
            Code(answer["code"])
        return answer if isinstance(answer, dict) else None
    except (ValueError, TypeError, KeyError):
        return None
