"""The reference package ``shardcast`` 0.3.2 in an environment of its own, and how long it takes for one file.

The environment is kept in ``SHARDCAST_REFERENCE_VENV`` (by default below the user's cache folder). The package needs
``wget``.
"""

import json
import os
import socket
import subprocess
import sysconfig
import time
import venv
from contextlib import ExitStack
from pathlib import Path

from tests.bench.casting import Process

PACKAGE = "shardcast==0.3.2"
_ROLES = Path(__file__).with_name("shardcast_roles.py")


def reference_python() -> Path:
    """The interpreter that has the reference, made on first use.

    Raises:
        RuntimeError: It could not be installed.
    """
    default = Path.home() / ".cache" / "intellect-node" / "shardcast-reference"
    folder = Path(os.environ.get("SHARDCAST_REFERENCE_VENV", default))
    python = folder / "bin" / "python"
    if not (folder / ".built").exists():
        venv.EnvBuilder(with_pip=True, clear=True).create(folder)
        (site,) = (folder / "lib").glob("python*/site-packages")
        (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")  # for blake3
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            PACKAGE,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the reference could not be installed: {done.stderr[-2000:]}")
        (folder / ".built").touch()
    return python


def time_reference(file: Path, folder: Path) -> float:
    """Seconds from ``broadcast()`` at an origin to the verified file of a client behind one middle node.

    Everything runs before the clock does, with the fastest settings: an upstream check each second, retries after one,
    and the file ``data1.bin``, by which nodes measure each other, in place.
    """
    ports = _free_ports(2)
    with ExitStack() as stack:
        for name, role in (("origin", "origin"), ("middle", "middle"), ("out", "client")):
            (folder / name).mkdir(parents=True)
            (folder / name / "data1.bin").write_bytes(bytes(1_000_000))
            order = {"role": role, "folder": str(folder / name), "ports": ports}
            process = stack.enter_context(_process(order))
            assert process.answer() == "ready"
            if role == "origin":
                origin = process
        start = time.perf_counter()
        process.tell("go")
        origin.tell(str(file))
        assert process.answer() == "done"
        return time.perf_counter() - start


def _process(order: dict[str, object]) -> Process:
    environment = ("env", "SHARDCAST_FAST_RETRY_INTERVAL=1", "SHARDCAST_LOG_LEVEL=CRITICAL", "PYTHONPATH=")
    return Process(
        *environment, str(reference_python()), str(_ROLES), json.dumps(order), folder=_ROLES.parent
    )


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]
