"""``intellect-node shardcast``: publish, relay, fetch, list, verify, as processes of their own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from node.cli import main
from tests.node.processes import ROOT

COMMAND = [sys.executable, "-m", "node", "shardcast"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}


class Shell:
    """The command line in a folder; what runs ends with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [*COMMAND, *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def start(self, *words: str) -> "tuple[subprocess.Popen[str], str]":
        """Starts a server; returns it with its address."""
        process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        assert process.stdout is not None
        found = re.search(r"Serving on (https?://\S+?)(?: as |\.$)", process.stdout.readline())
        assert found is not None
        return process, found[1]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with ExitStack() as stack:
        yield Shell(tmp_path, stack)


def test_a_file_goes_from_publish_over_relay_to_fetch_and_is_verified(shell: Shell) -> None:
    content = os.urandom(3_000_000)
    (shell.folder / "model.bin").write_bytes(content)
    origin, at = shell.start("publish", "model.bin", "--port", "0", "--name", "policy", "--version", "step-8")
    assert origin.stdout is not None
    lines = [origin.stdout.readline() for _ in range(3)]
    publisher = re.search(r"--publisher (\S+)", lines[0])
    digest = re.search(r"digest is ([0-9a-f]{64})", lines[2])
    assert publisher is not None and digest is not None
    relay, through = shell.start("relay", "--from", at, "--port", "0", "--keep", "2")
    fetched = shell.run(
        "fetch", "--from", through, "--publisher", publisher[1], "--name", "policy", "--to", "out", "--json"
    )
    assert fetched.returncode == 0, fetched.stderr
    shown = json.loads(fetched.stdout)
    assert (shown["version"], shown["size"], shown["digest"]) == ("step-8", 3_000_000, digest[1])
    assert (shell.folder / "out").read_bytes() == content

    listed = shell.run("list", "--from", through)
    assert re.search(r"policy +step-8 .* raw +by 12D3", listed.stdout)
    assert json.loads(shell.run("list", "--from", at, "--json").stdout)[0]["closed"] is True

    by_digest = ("--digest", digest[1], "--name", "policy")
    assert shell.run("verify", "out", "--from", at, *by_digest).stdout == "out is policy step-8.\n"
    (shell.folder / "out").write_bytes(content[:-1] + b"x")
    wrong = shell.run("verify", "out", "--from", at, *by_digest)
    assert wrong.returncode == 1 and "E-STO-003" in wrong.stderr
    mended = shell.run("fetch", "--from", through, *by_digest, "--to", "out")
    assert mended.returncode == 0 and "verified" in mended.stdout
    assert (shell.folder / "out").read_bytes() == content

    for server in (origin, relay):
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


def test_files_that_appear_in_a_watched_folder_are_published(shell: Shell) -> None:
    folder = shell.folder / "checkpoints"
    folder.mkdir()
    origin, at = shell.start("publish", "--watch", "checkpoints", "--port", "0")
    assert origin.stdout is not None
    publisher = re.search(r"--publisher (\S+)", origin.stdout.readline())
    assert publisher is not None
    for content in (b"one", b"two"):
        (shell.folder / "new").write_bytes(content)
        os.replace(shell.folder / "new", folder / content.decode())
        assert "can be fetched" in origin.stdout.readline()
        assert "is whole" in origin.stdout.readline()
        fetched = shell.run("fetch", "--from", at, "--publisher", publisher[1], "--to", "out")
        assert fetched.returncode == 0, fetched.stderr
        assert (shell.folder / "out").read_bytes() == content


def test_a_model_that_changes_little_is_fetched_as_what_changed(shell: Shell) -> None:
    folder = shell.folder / "checkpoints"
    folder.mkdir()
    origin, at = shell.start("publish", "--watch", "--deltas", "checkpoints", "--port", "0")
    assert origin.stdout is not None
    publisher = re.search(r"--publisher (\S+)", origin.stdout.readline())
    assert publisher is not None
    weights = np.random.default_rng(0).standard_normal(300_000, np.float32)
    for number, forms in ((0, 2), (1, 2)):  # the file and a snapshot, then the file and a delta
        weights[::1000] += np.float32(0.01)
        save_file({"w": weights}, shell.folder / "new")
        os.replace(shell.folder / "new", folder / f"step-{number}")
        for _ in range(forms):
            assert "is whole" in origin.stdout.readline()
        words = ["fetch", "--from", at, "--publisher", publisher[1], "--deltas", "--to", "versions"]
        fetched = shell.run(*words, "--json")
        assert fetched.returncode == 0, fetched.stderr
        shown = json.loads(fetched.stdout)
        assert (shell.folder / shown["file"]).read_bytes() == (folder / f"step-{number}").read_bytes()
        assert [step["delta"] for step in shown["way"]] == [bool(number)]
    assert shown["bytes"] < 5000
    assert "0 bytes fetched, verified" in shell.run(*words).stdout


def test_a_client_follows_versions_and_serves_them(shell: Shell) -> None:
    (shell.folder / "model.bin").write_bytes(b"one")
    origin, at = shell.start("publish", "model.bin", "--port", "0")
    assert origin.stdout is not None
    publisher = re.search(r"--publisher (\S+)", origin.stdout.readline())
    assert publisher is not None
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    words = [
        "fetch",
        "--from",
        at,
        "--publisher",
        publisher[1],
        "--to",
        "out",
        "--follow",
        "--serve",
        str(port),
    ]
    follower = subprocess.Popen(
        [*COMMAND, *words], cwd=shell.folder, env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert follower.stdout is not None
        assert "verified" in follower.stdout.readline()
        again = shell.run(
            "fetch", "--from", f"http://127.0.0.1:{port}", "--publisher", publisher[1], "--to", "two"
        )
        assert again.returncode == 0, again.stderr
        assert (shell.folder / "two").read_bytes() == b"one"
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(30) == 0
    finally:
        follower.kill()
        follower.wait()


def test_a_fetch_that_is_stopped_says_so_by_its_status(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        words = ["fetch", "--from", url, "--publisher", "12D3KooWnobody", "--to", "out", "--json"]
        fetch = subprocess.Popen([*COMMAND, *words], cwd=shell.folder, env=environment())
        try:
            silent.accept()
            fetch.send_signal(signal.SIGINT)
            assert fetch.wait(30) == 130
        finally:
            fetch.kill()
            fetch.wait()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["fetch", "--from", "http://a", "--digest", "ab" * 32, "--deltas", "--to", "x"], "E-CFG-006"),
        (["publish", "x", "--deltas", "--size", "4 MiB"], "E-CFG-006"),
        (["fetch", "--from", "http://127.0.0.1:1", "--to", "x"], "E-CFG-006"),
        (["fetch", "--from", "ftp://127.0.0.1", "--publisher", "p", "--to", "x"], "E-CFG-006"),
        (["fetch", "--from", "http://a", "--digest", "xyz", "--to", "x"], "E-CFG-006"),
        (["fetch", "--from", "http://a", "--digest", "00", "--to", "x"], "E-CFG-006"),
        (
            ["fetch", "--from", "http://a", "--publisher", "p", "--version", "v", "--follow", "--to", "x"],
            "E-CFG-006",
        ),
        (["publish", "x", "--shard-size", "many"], "E-CFG-006"),
        (["publish", "x", "--rate", "fast"], "E-CFG-006"),
        (["publish", "x", "--allow", "here"], "E-CFG-006"),
        (["publish", "x", "--token-file", "absent"], "E-CFG-001"),
        (["publish", "x", "--certificate", "absent", "--port", "0"], "E-CFG-001"),
        (["relay", "--from", "http://a", "--disk", "big"], "E-CFG-006"),
        (["verify", "absent", "--from", "http://a", "--publisher", "p"], "E-CFG-001"),
    ],
)
def test_a_wrong_option_is_an_error_with_its_fix(
    words: list[str],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["shardcast", *words]) == 2
    assert code in (said := capsys.readouterr().err) and "Fix:" in said
