import os
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from protocol.directory import Directory
from protocol.directory.p2pd import default_program
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.units import Address
from tests.protocol.directory.conftest import Swarm
from tests.protocol.directory.scene import NAMESPACE


async def refused(folder: Path, **options: object) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await Directory.start(Identity.ephemeral(), namespace=NAMESPACE, folder=folder, **options)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.failure_mode(18)
async def test_a_bootstrap_peer_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        nobody = f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}/p2p/{Identity.ephemeral().peer_id}"
        error = await refused(tmp_path, bootstrap=(nobody,))
    assert error.code is Code.DIR_BOOTSTRAP
    assert nobody in error.sentence and "refused" in error.sentence
    assert os.listdir(tmp_path) == []


async def test_one_bootstrap_peer_that_answers_is_enough(swarm: Swarm) -> None:
    founder = await swarm.start()
    dead = f"/ip4/127.0.0.1/tcp/1/p2p/{Identity.ephemeral().peer_id}"
    nowhere = f"/dns4/nowhere.invalid/tcp/1/p2p/{Identity.ephemeral().peer_id}"
    node = await swarm.start(bootstrap=(dead, nowhere, *founder.multiaddrs))
    assert node.alive


async def test_another_peer_at_the_bootstrap_address_is_told(swarm: Swarm, tmp_path: Path) -> None:
    founder = await swarm.start()
    address, _, real = founder.multiaddrs[0].rpartition("/")
    error = await refused(tmp_path, bootstrap=(f"{address}/{Identity.ephemeral().peer_id}",))
    assert error.code is Code.DIR_BOOTSTRAP
    assert real in error.sentence


async def test_a_malformed_address_is_refused_before_anything_starts(tmp_path: Path) -> None:
    error = await refused(tmp_path / "folder", bootstrap=("127.0.0.1:4000",))
    assert error.code is Code.CFG_BAD_VALUE


@pytest.mark.failure_mode(18)
async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = await refused(tmp_path, listen=Address("127.0.0.1", port))
    assert error.code is Code.NET_PORT_IN_USE
    assert str(port) in error.sentence


async def test_the_port_of_another_directory_is_in_use_too(swarm: Swarm, tmp_path: Path) -> None:
    founder = await swarm.start()
    error = await refused(tmp_path, listen=Address("127.0.0.1", int(founder.multiaddrs[0].split("/")[4])))
    assert error.code is Code.NET_PORT_IN_USE


@pytest.mark.failure_mode(18)
async def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = await refused(tmp_path / "file" / "folder")
    assert error.code is Code.STO_UNWRITABLE
    assert str(tmp_path / "file" / "folder") in error.sentence


@pytest.mark.failure_mode(18)
async def test_a_helper_that_fails_is_quoted(tmp_path: Path, helper_that: Callable[[str], Path]) -> None:
    error = await refused(tmp_path / "folder", program=helper_that("echo the disk is on fire >&2; exit 3"))
    assert error.code is Code.DIR_START
    assert "the disk is on fire" in error.sentence and "status 3" in error.sentence


@pytest.mark.failure_mode(18)
async def test_a_slow_helper_is_waited_for_and_said_so(
    swarm: Swarm, helper_that: Callable[[str], Path]
) -> None:
    said: list[str] = []
    slow = helper_that(f'sleep 2.5; exec {default_program()} "$@"')
    directory = await swarm.start(program=slow, progress=said.append)
    assert directory.alive
    assert any("still waiting for the network helper" in sentence for sentence in said)


@pytest.mark.soak
@pytest.mark.failure_mode(18)
async def test_even_a_helper_that_takes_a_minute_is_waited_for(
    swarm: Swarm, helper_that: Callable[[str], Path]
) -> None:
    said: list[str] = []
    slow = helper_that(f'sleep 60; exec {default_program()} "$@"')
    directory = await swarm.start(program=slow, progress=said.append)
    assert directory.alive
    waiting = [sentence for sentence in said if "still waiting for the network helper" in sentence]
    assert len(waiting) >= 20, "it says so every few seconds"


async def test_another_helper_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTELLECT_NODE_HELPER", "/opt/p2pd")
    assert default_program() == Path("/opt/p2pd")


@pytest.mark.failure_mode(18)
async def test_a_helper_that_never_starts_is_given_up(
    tmp_path: Path, helper_that: Callable[[str], Path]
) -> None:
    never = helper_that("echo looking for the disk; exec sleep 60")
    error = await refused(tmp_path / "folder", program=never, startup=timedelta(seconds=0.5))
    assert error.code is Code.DIR_START
    assert "looking for the disk" in error.sentence
    assert os.listdir(tmp_path / "folder") == []


async def test_a_missing_helper_is_named(tmp_path: Path) -> None:
    error = await refused(tmp_path, program=tmp_path / "missing")
    assert error.code is Code.DIR_START
    assert str(tmp_path / "missing") in error.sentence


async def test_a_folder_with_a_path_longer_than_a_socket_address_will_do(
    swarm: Swarm, tmp_path: Path
) -> None:
    folder = tmp_path / ("long" * 30) / ("longer" * 20)
    stale = folder / "p2pd-1.sock"
    folder.mkdir(parents=True)
    stale.touch()  # of a start that was killed
    directory = await swarm.start(folder=folder)
    assert directory.alive
    assert os.listdir(folder) == []
