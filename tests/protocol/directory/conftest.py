import asyncio
import os
import select
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.directory import Directory
from protocol.identity import Identity
from tests.protocol.directory.scene import NAMESPACE


class Swarm:
    """Starts directories, each with its own identity and folder, and stops them all at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[Directory] = []
        self.identities: dict[Directory, Identity] = {}

    async def start(self, *, identity: Identity | None = None, **options: Any) -> Directory:
        who = identity or Identity.ephemeral()
        options = {"namespace": NAMESPACE, "folder": self._folder / f"node-{len(self.started)}", **options}
        directory = await Directory.start(who, **options)
        self.started.append(directory)
        self.identities[directory] = who
        return directory

    async def chain(self, count: int) -> list[Directory]:
        """Each joins through the one before and knows of no other."""
        nodes = [await self.start()]
        while len(nodes) < count:
            nodes.append(await self.start(bootstrap=nodes[-1].multiaddrs))
        return nodes


@pytest.fixture
async def swarm(tmp_path: Path) -> AsyncIterator[Swarm]:
    made = Swarm(tmp_path)
    yield made
    await asyncio.gather(*(directory.stop() for directory in made.started))


@pytest.fixture
def helper_that(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a network helper from lines of shell."""

    def make(script: str) -> Path:
        path = tmp_path / "helper"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        return path

    return make


def all_end(pidfds: list[int], seconds: float = 60) -> bool:
    """Whether all processes end; a process that nobody has reaped counts as ended."""
    left = list(pidfds)
    while left:
        ended, _, _ = select.select(left, [], [], seconds)
        if not ended:
            return False
        left = [pidfd for pidfd in left if pidfd not in ended]
    for pidfd in pidfds:
        os.close(pidfd)
    return True


@pytest.fixture
def ends() -> Callable[[list[int]], bool]:
    return all_end
