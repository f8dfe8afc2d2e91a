"""Where a benchmark ran: enough to compare two results, nothing that names a person or a host."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import psutil

_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
_LIBRARIES = ("torch", "numpy", "numba", "grpcio", "hivemind", "protobuf")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe_machine() -> dict[str, object]:
    """Processor, cores this process may use, memory in bytes, system, Python and library versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "threads": {
            name: os.environ[name] for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS") if name in os.environ
        },
        "libraries": {name: version for name in _LIBRARIES if (version := _version(name))},
        "byteorder": sys.byteorder,
    }
