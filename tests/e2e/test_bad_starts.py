"""Starts that cannot succeed: each gets one sentence with a code and a fix, and leaves nothing behind."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.network import NAMESPACE, PROTOCOL
from protocol.directory import Directory, PeerRecord
from protocol.directory.p2pd import default_program
from protocol.envelope import seal
from protocol.identity import Identity
from protocol.units import RunId
from tests.e2e.cluster import RUN, Cluster, cluster, command, settings

ANOTHER_HELPER = """\
import sys
from pathlib import Path
import protocol.directory.client
protocol.directory.client.default_program = lambda: Path({helper!r})
from node.cli import main
sys.exit(main())
"""
"""A node whose directory starts another network helper than hivemind's."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as made:
        yield made


@pytest.fixture
def run_file(place: Cluster) -> Callable[..., Path]:
    def write(more: str = "") -> Path:
        path = place.folder / "run.toml"
        path.write_text(RUN + more)
        return path

    return write


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def nobody(port: int) -> str:
    return f"/ip4/127.0.0.1/tcp/{port}/p2p/{Identity.ephemeral().peer_id}"


@pytest.mark.failure_mode(18)
@pytest.mark.parametrize("key", ["port", "directory_port"])
def test_a_port_in_use(place: Cluster, run_file: Callable[..., Path], taken: int, key: str) -> None:
    file = run_file(f"[network]\n{key} = {taken}\n")
    words = command("init", file, "--dir", place.folder / "node").refused("E-NET-001")
    assert str(taken) in words and f"network.{key}" in words
    assert not (place.folder / "node" / "genesis.json").exists()


@pytest.mark.failure_mode(18)
def test_a_data_directory_that_cannot_be_written_or_read(
    place: Cluster, run_file: Callable[..., Path]
) -> None:
    file, folder = run_file(), place.folder / "node"
    for mode in (0o500, 0o300, 0o000):
        folder.mkdir(mode=mode)
        words = command("init", file, "--dir", folder, privileged=False).refused("E-STO-002")
        assert str(folder) in words
        folder.rmdir()
    words = command("init", file, "--dir", file / "below").refused("E-STO-002")
    assert str(file / "below") in words


@pytest.mark.failure_mode(18)
def test_a_read_only_home_when_nothing_says_where_else(place: Cluster, run_file: Callable[..., Path]) -> None:
    home = place.folder / "home"
    home.mkdir(mode=0o500)
    ended = command("init", run_file(), "--dir", home / "node", privileged=False, HOME=home)
    assert str(home) in ended.refused("E-STO-002")


def test_an_identity_that_others_can_read(place: Cluster, run_file: Callable[..., Path]) -> None:
    folder = place.folder / "node"
    folder.mkdir()
    Identity.create(folder / "identity.key")
    (folder / "identity.key").chmod(0o644)
    words = command("init", run_file(), "--dir", folder).refused("E-ID-001")
    assert f"chmod 600 {folder / 'identity.key'}" in words


def test_a_damaged_identity(place: Cluster, run_file: Callable[..., Path]) -> None:
    folder = place.folder / "node"
    folder.mkdir()
    (folder / "identity.key").touch(mode=0o600)
    (folder / "identity.key").write_text("nothing of the kind")
    assert "identity.key" in command("init", run_file(), "--dir", folder).refused("E-ID-002")


@pytest.mark.parametrize(("mode", "code"), [(0o600, "E-CFG-005"), (0o000, "E-STO-002")])
def test_a_genesis_that_is_damaged_or_not_readable(
    place: Cluster, run_file: Callable[..., Path], mode: int, code: str
) -> None:
    genesis = place.folder / "node" / "genesis.json"
    genesis.parent.mkdir()
    genesis.write_text("{")
    genesis.chmod(mode)
    ended = command("run", run_file(), "--dir", genesis.parent, privileged=False)
    assert str(genesis) in ended.refused(code)


@pytest.mark.parametrize(
    ("key", "size", "code"), [("memory", "100 MB", "E-SYS-001"), ("disk", "1 MB", "E-SYS-002")]
)
def test_too_little_memory_or_disk(
    place: Cluster, run_file: Callable[..., Path], key: str, size: str, code: str
) -> None:
    file = run_file(f'[limits]\n{key} = "{size}"\n')
    words = command("init", file, "--dir", place.folder / "node").refused(code)
    assert f"limits.{key} is" in words


def test_a_run_file_with_several_mistakes_gets_them_all_at_once(
    place: Cluster, run_file: Callable[..., Path]
) -> None:
    file = run_file("[limits]\nuplaod = 3\n")
    file.write_text(settings(file.read_text(), {"heads = 2\nkv": 'heads = "two"\nkv'}))
    ended = command("init", file, "--dir", place.folder / "node")
    assert ended.status == 2 and "Traceback" not in ended.err
    assert "E-CFG-002" in ended.err and "uplaod" in ended.err and "upload" in ended.err
    assert "E-CFG-003" in ended.err and "heads" in ended.err and "line" in ended.err


def test_a_start_without_a_run_and_without_an_address(place: Cluster, run_file: Callable[..., Path]) -> None:
    words = command("run", run_file(), "--dir", place.folder / "node").refused("E-CFG-006")
    assert "--join" in words


@pytest.mark.failure_mode(18)
def test_an_address_at_which_nobody_answers(place: Cluster, run_file: Callable[..., Path]) -> None:
    with socket.socket() as bound:  # and not listening: nobody else gets the port
        bound.bind(("127.0.0.1", 0))
        address = nobody(bound.getsockname()[1])
        ended = command("run", run_file(), "--join", address, "--dir", place.folder / "node")
    assert address in ended.refused("E-DIR-002")


def test_an_address_that_is_none(place: Cluster, run_file: Callable[..., Path]) -> None:
    ended = command("run", run_file(), "--join", "127.0.0.1:4001", "--dir", place.folder / "node")
    assert ended.refused("E-CFG-006")


async def test_a_run_of_another_protocol_version(place: Cluster, run_file: Callable[..., Path]) -> None:
    peer = Identity.ephemeral()
    directory = await Directory.start(peer, namespace=NAMESPACE, folder=place.folder / "directory")
    try:
        now, run = time.time(), RunId("ab" * 32)
        said = PeerRecord(
            peer=peer.peer_id, run=run, host="127.0.0.1", port=4000, software="77.0", protocol=PROTOCOL + 1,
            issued_at=now, expires_at=now + 60,
        )  # fmt: skip
        await directory.publish(seal(peer, run, said), shelf="members")
        words = ("run", run_file(), "--join", directory.multiaddrs[0], "--dir", place.folder / "node")
        ended = await asyncio.to_thread(command, *words)
    finally:
        await directory.stop()
    text = ended.refused("E-NET-009")
    assert f"protocol {PROTOCOL + 1}" in text and "77.0" in text


@pytest.mark.failure_mode(18)
def test_a_network_helper_that_fails_is_quoted(place: Cluster, run_file: Callable[..., Path]) -> None:
    node = place.add("node")
    node.start("init", program=helper(place.folder, "echo the disk is on fire >&2; exit 3"))
    assert node.ended() == 1
    assert "E-DIR-001: " in node.said() and "the disk is on fire" in node.said()
    assert "Traceback" not in node.said()
    assert node.of("node.failed")[0]["code"] == "E-DIR-001"


@pytest.mark.failure_mode(18)
def test_a_slow_network_helper_is_waited_for_and_shown(place: Cluster) -> None:
    node = place.add("node")
    node.start("init", program=helper(place.folder, f'sleep 2.5; exec {default_program()} "$@"'))
    node.wait("directory.starting", lambda event: "still waiting" in event["sentence"])
    status = node.status()
    assert (status["phase"], status["reason"]) == ("starting", "directory")
    node.wait("directory.ready")


def helper(folder: Path, script: str) -> str:
    """The program of a node with a network helper made of lines of shell."""
    path = folder / "helper"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return ANOTHER_HELPER.format(helper=os.fspath(path))
