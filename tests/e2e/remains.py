"""What a node's processes hold while they live, and that nothing of it is left afterwards."""

import contextlib
import errno
import os
import select
import socket
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PATIENCE = 150.0
"""Seconds after which an event that does not come fails a test. Nothing is expected to need them."""


@dataclass
class Remains:
    """What a process and those below it hold: all of it has to go with them.

    Attributes:
        processes: It and those below it.
        ports: On which they listen.
        shared: Named shared memory that they have mapped.
    """

    processes: list[psutil.Process]
    ports: set[int] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, pid: int) -> "Remains":
        """What a living process holds now."""
        top = psutil.Process(pid)
        found = cls([top, *top.children(recursive=True)])
        for process in found.processes:
            with contextlib.suppress(psutil.Error, OSError):
                for each in process.net_connections(kind="tcp"):
                    if each.status == psutil.CONN_LISTEN:
                        found.ports.add(each.laddr.port)
                maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
                found.shared |= {line[line.index("/dev/shm/") :] for line in maps if "/dev/shm/" in line}
        return found

    def wait_until_gone(self) -> None:
        """Return when all processes have ended with all their threads; fail when nothing ends them."""
        for process in self.processes:
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue
            try:
                if process.is_running():  # else another one has its number
                    readable, _, _ = select.select([descriptor], [], [], PATIENCE)
                    assert readable, process
            finally:
                os.close(descriptor)

    def check_nothing_is_left(self) -> None:
        """Nobody listens on its ports, no shared memory has a name."""
        for port in self.ports:
            with socket.socket() as caller:
                assert caller.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED, port
        assert not [name for name in self.shared if os.path.exists(name)]
