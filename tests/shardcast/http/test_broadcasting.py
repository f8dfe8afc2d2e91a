"""The three calls that a trainer makes, with the signatures of the reference package."""

import inspect
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardcast
from protocol.errors import Code, NodeError
from protocol.units import PeerId
from shardcast.expect import Expect
from shardcast.http.source import Source


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        free = held.getsockname()[1]
    yield free
    shardcast.shutdown()


async def test_a_trainer_broadcasts_versions_and_stops(tmp_path: Path, port: int) -> None:
    shardcast.initialize(str(tmp_path / "data"), port, 2)
    publisher = PeerId((tmp_path / "data" / "publisher.id").read_text().strip())
    seen = []
    for content in (b"first", b"second", b"third"):
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(tmp_path / "weights")
        seen.append(shardcast.broadcast(str(tmp_path / "weights")))
        source = Source.parse(f"http://127.0.0.1:{port}")
        fetched = await shardcast.fetch_version([source], tmp_path / "out", Expect(publisher=publisher))
        assert fetched.version == seen[-1]
        assert (tmp_path / "out").read_bytes() == content
    assert len(set(seen)) == 3
    shardcast.shutdown()
    shardcast.shutdown()
    with pytest.raises(NodeError) as error:
        shardcast.broadcast(str(tmp_path / "weights"))
    assert error.value.code is Code.CFG_USAGE
    shardcast.initialize(str(tmp_path / "data"), port)
    assert shardcast.broadcast(str(tmp_path / "weights")) not in seen


def test_a_file_that_is_not_there_is_an_error_and_serving_goes_on(tmp_path: Path, port: int) -> None:
    shardcast.initialize(str(tmp_path / "data"), port)
    with pytest.raises(NodeError):
        shardcast.broadcast(str(tmp_path / "absent"))
    (tmp_path / "weights").write_bytes(b"x")
    assert shardcast.broadcast(str(tmp_path / "weights"))


def test_the_signatures_are_the_references() -> None:
    assert list(inspect.signature(shardcast.initialize).parameters) == [
        "data_dir", "port", "max_distribution_folders",
    ]  # fmt: skip
    assert [p.default for p in inspect.signature(shardcast.initialize).parameters.values()] == [
        "./data",
        8000,
        5,
    ]
    broadcast = inspect.signature(shardcast.broadcast)
    assert list(broadcast.parameters) == ["file_path", "shard_size"]
    assert broadcast.parameters["shard_size"].default == 50_000_000
    assert broadcast.return_annotation is str


def test_moving_files_over_http_needs_neither_torch_nor_grpc() -> None:
    code = (
        "import sys, shardcast\n"
        "for name in ('Origin', 'Relay', 'fetch_version', 'initialize', 'Source', 'Expect', 'Manifest'):\n"
        "    getattr(shardcast, name)\n"
        "heavy = {'torch', 'grpc', 'google.protobuf', 'numpy', 'numba', 'hivemind', 'pydantic'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_every_public_name_is_there() -> None:
    for name in shardcast.__all__:
        assert getattr(shardcast, name) is not None
    with pytest.raises(AttributeError):
        shardcast.absent  # noqa: B018
