"""What this machine has, measured once: memory, disk, cores, clock, libraries, accelerators. Imports nothing heavy."""

import ctypes
import errno
import os
import platform
import resource
import shutil
import socket
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from node.children import available_cores

DISTRIBUTION = "intellect-node"


@dataclass(frozen=True)
class Machine:
    """Measured facts.

    Attributes:
        memory_total: Bytes, bounded by a container's limit.
        memory_available: Bytes that can be had without swapping.
        cores: That this process may use.
        disk_free: Bytes for this user, where the data directory is or will be.
        now: Unix seconds.
        newest_file: Unix seconds of the data directory's newest file; 0 without one.
        clock_synchronized: Whether the kernel says that a time service keeps the clock; None where it does not tell.
        open_files: Files that this process may have open.
        python: Version.
        system: Such as "Linux x86_64".
        installed: Version of each library that `requirements` names; missing ones are not in it.
        gpus: NVIDIA devices that this process can see.
    """

    memory_total: int
    memory_available: int
    cores: int
    disk_free: int
    now: float
    newest_file: float
    clock_synchronized: bool | None
    open_files: int
    python: tuple[int, int, int]
    system: str
    installed: Mapping[str, str]
    gpus: int

    @property
    def cuda_usable(self) -> bool:
        """Whether there is a GPU and a torch that was built for it."""
        return self.gpus > 0 and not self.installed.get("torch", "+cpu").endswith("+cpu")

    def device(self, wish: str) -> str:
        """The device, "cpu" or "cuda", that a run file's `node.device` comes to here."""
        if wish == "auto":
            return "cuda" if self.cuda_usable else "cpu"
        return wish


def measure(folder: Path) -> Machine:
    """Measure this machine for a node whose data directory is `folder`, which need not exist."""
    total, available = _memory()
    return Machine(
        memory_total=total,
        memory_available=available,
        cores=available_cores(),
        disk_free=shutil.disk_usage(nearest_existing(folder)).free,
        now=time.time(),
        newest_file=_newest(folder),
        clock_synchronized=_clock_synchronized(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        python=sys.version_info[:3],
        system=f"{platform.system()} {platform.machine()}",
        installed=_installed(),
        gpus=sum(1 for name in os.listdir("/dev") if name.removeprefix("nvidia").isdecimal()),
    )


def nearest_existing(folder: Path) -> Path:
    """`folder` or the nearest directory above it that exists."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def listen_error(host: str, port: int) -> OSError | None:
    """Why a TCP port cannot be listened on; None when it can. Leaves nothing behind."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except socket.gaierror as error:
        return OSError(errno.EADDRNOTAVAIL, f"{error.strerror}")
    except OSError as error:
        return error
    return None


def requirements() -> tuple[Requirement, ...]:
    """The libraries that this software needs, from its own metadata, else from the source tree it runs in."""
    try:
        texts = metadata.requires(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        texts = None
    if texts is None:
        try:
            project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
            texts = project["project"]["dependencies"]
        except (OSError, KeyError, tomllib.TOMLDecodeError):
            texts = []
    needed = (Requirement(text) for text in texts)
    return tuple(each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""}))


def software_version() -> str:
    """Version of this software."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        try:
            project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
            return str(project["project"]["version"])
        except (OSError, KeyError, tomllib.TOMLDecodeError):
            return "unknown"


def _installed() -> dict[str, str]:
    found = {}
    for each in requirements():
        try:
            found[each.name] = metadata.version(each.name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _memory() -> tuple[int, int]:
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            used = int((group / "memory.current").read_text()) - int(fields.get("inactive_file", 0))
            total, available = min(total, int(limit)), min(available, max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    return total, available


def _newest(folder: Path) -> float:
    try:
        with os.scandir(folder) as entries:
            return max((entry.stat(follow_symlinks=False).st_mtime for entry in entries), default=0.0)
    except OSError:
        return 0.0


def _clock_synchronized() -> bool | None:
    buffer = ctypes.create_string_buffer(512)  # struct timex with modes = 0: only read; it has 208 bytes
    state = ctypes.CDLL(None).adjtimex(buffer)
    return None if state < 0 else state != 5  # TIME_ERROR: not synchronized
