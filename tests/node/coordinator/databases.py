"""Databases for tests: a SQLite file, and PostgreSQL from Debian's packages where it is installed."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def programs() -> Path | None:
    """The folder of PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def postgresql() -> Iterator[str]:
    """A server with an empty database, in a temporary folder, as a user without privileges; gives its URL."""
    bin = programs()
    if bin is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    words: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path may not be long
    if os.getuid() == 0:
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        words = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    data = folder / "data"
    run = [
        *words,
        bin / "initdb",
        "-D",
        data,
        "-U",
        "test",
        "-A",
        "trust",
        "--no-sync",
        "-E",
        "UTF8",
        "--locale=C",
    ]
    subprocess.run(list(map(str, run)), check=True, capture_output=True, cwd=folder)
    settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    server = subprocess.Popen(
        list(map(str, [*words, bin / "postgres", "-D", data, *settings])), cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"postgresql+psycopg://test@/postgres?host={folder}"
        _wait(server, folder / ".s.PGSQL.5432", url)
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # at once, whoever is connected
        server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(server: "subprocess.Popen[bytes]", path: Path, url: str) -> None:
    import psycopg

    plain = url.replace("+psycopg", "")
    while server.poll() is None:
        with socket.socket(socket.AF_UNIX) as probe:
            if path.exists() and probe.connect_ex(str(path)) == 0:
                try:
                    psycopg.connect(plain).close()
                    return
                except psycopg.OperationalError:
                    pass
        time.sleep(0.02)
    raise RuntimeError("PostgreSQL ended at its start")
