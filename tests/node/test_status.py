import asyncio
import contextlib
import socket
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from node.lifecycle import hold
from node.status import SOCKET_FILE, NodeStatus, StatusServer, ask_status, ask_stop
from node.status_view import render
from protocol.errors import Code, NodeError
from tests.node.processes import program, said
from tests.own import open_files

STATUS = NodeStatus(
    peer="12D3KooWGRUnf6sDzZ3jHwqXEqSBhVYXFYvUVaTBVpCkZLEqbTDx",
    name="ann",
    run_name="demo",
    roles=("trainer",),
    phase="waiting",
    reason="ready",
    sentence="Waiting for 1 of 4 members to get ready.",
    since=1_000.0,
    until=1_020.0,
    next="The round closes with those who are ready.",
    missing=("12D3KooWAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAbcdefghi",),
    round=4,
    rounds=10,
    members=("a", "b"),
    loss=3.25,
    bytes_sent=2048,
    recent=("Round 3 was certified in attempt 0.",),
)

NODE = """
    import asyncio, sys
    from pathlib import Path
    from node.lifecycle import StopSignals, hold, stop_now
    from node.status import NodeStatus, StatusServer

    async def main(folder):
        ended = asyncio.Event()
        def drain(reason):
            print("drain", flush=True)
            ended.set()
        with StopSignals(drain, asyncio.get_running_loop()) as signals:
            server = StatusServer(folder, NodeStatus, lambda now: stop_now(15) if now else signals.request("stop"))
            if sys.argv[2] == "answers":
                assert await server.start()
            print("ready", flush=True)
            await ended.wait()
            await server.stop()

    folder = Path(sys.argv[1])
    with hold(folder):
        asyncio.run(main(folder))
"""


@contextlib.asynccontextmanager
async def serving(folder: Path, stops: list[bool] | None = None) -> AsyncIterator[StatusServer]:
    with hold(folder):
        server = StatusServer(folder, lambda: STATUS, ([] if stops is None else stops).append)
        assert await server.start()
        try:
            yield server
        finally:
            await server.stop()


async def test_the_status_arrives_as_it_was_given(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert await asyncio.to_thread(ask_status, tmp_path) == STATUS


async def test_only_the_owner_can_ask(tmp_path: Path) -> None:
    async with serving(tmp_path):
        mode = (tmp_path / SOCKET_FILE).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.stop()
        assert not (tmp_path / SOCKET_FILE).exists()
    before = open_files()
    async with serving(tmp_path):
        await asyncio.to_thread(ask_status, tmp_path)
    await asyncio.sleep(0)
    assert not open_files() - before


async def test_a_folder_may_be_deeper_than_a_socket_path_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 25) / ("deeper" * 20)
    folder.mkdir(parents=True)
    assert len(str(folder)) > 200
    async with serving(folder):
        assert (await asyncio.to_thread(ask_status, folder)).name == "ann"
        assert (folder / SOCKET_FILE).exists()


async def test_the_socket_of_a_killed_node_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / SOCKET_FILE))
    with pytest.raises(NodeError) as caught:
        ask_status(tmp_path)
    assert caught.value.code == Code.SYS_NOT_RUNNING
    assert caught.value.sentence == f"No node runs in {tmp_path}."
    async with serving(tmp_path):
        assert (await asyncio.to_thread(ask_status, tmp_path)).name == "ann"


async def test_where_there_can_be_no_socket_the_node_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / SOCKET_FILE).mkdir()
    server = StatusServer(tmp_path, lambda: STATUS, print)
    assert not await server.start()
    await server.stop()
    assert "goes on without it" in caplog.text


@pytest.mark.parametrize("folder", [".", "missing", "file"])
def test_no_node_is_said_so(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    for ask in (ask_status, ask_stop):
        with pytest.raises(NodeError) as caught:
            ask(tmp_path / folder)
        assert caught.value.code == Code.SYS_NOT_RUNNING


async def test_a_status_that_fails_is_an_answer_too_and_the_next_question_works(tmp_path: Path) -> None:
    results = [RuntimeError("broken"), STATUS]

    def status() -> NodeStatus:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    server = StatusServer(tmp_path, status, print)
    with hold(tmp_path):
        await server.start()
        with pytest.raises(NodeError, match="could not answer"):
            await asyncio.to_thread(ask_status, tmp_path)
        assert await asyncio.to_thread(ask_status, tmp_path) == STATUS
        await server.stop()


@pytest.mark.parametrize(
    "question", [b"\n", b"[]\n", b"{\n", b'{"ask": "everything"}\n', b'"x"\n', b"[" * 5000 + b"\n"]
)
async def test_a_bad_question_gets_an_answer(tmp_path: Path, question: bytes) -> None:
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_FILE))
        writer.write(question)
        assert b'"ok": false' in await reader.readline()
        writer.close()


async def test_a_question_without_end_is_cut_off(tmp_path: Path) -> None:
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET_FILE))
        writer.write(b"x" * 1_000_000)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert await asyncio.to_thread(ask_status, tmp_path) == STATUS


def test_a_node_that_hangs_is_said_to_hang(tmp_path: Path) -> None:
    with hold(tmp_path), socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / SOCKET_FILE))
        silent.listen(1)
        with pytest.raises(NodeError, match="does not answer"):
            ask_status(tmp_path, timeout=timedelta(milliseconds=20))


async def test_stop_asks_for_a_drain_and_now_for_an_end(tmp_path: Path) -> None:
    stops: list[bool] = []
    async with serving(tmp_path, stops):
        assert not await asyncio.to_thread(ask_stop, tmp_path)
        assert not await asyncio.to_thread(ask_stop, tmp_path, now=True, wait=timedelta(0))
    assert stops == [False, True]


@pytest.mark.parametrize("socket_answers", ["answers", "no socket"])
def test_stop_returns_when_the_node_has_ended(tmp_path: Path, socket_answers: str) -> None:
    with program(NODE, tmp_path, socket_answers) as node:
        assert said(node) == "ready"
        assert ask_stop(tmp_path, wait=timedelta(seconds=60))
        assert said(node) == "drain"
        assert node.wait() == 0


@pytest.mark.parametrize("socket_answers", ["answers", "no socket"])
def test_stop_now_ends_a_node_without_draining(tmp_path: Path, socket_answers: str) -> None:
    with program(NODE, tmp_path, socket_answers) as node:
        assert said(node) == "ready"
        assert ask_stop(tmp_path, now=True, wait=timedelta(seconds=60))
        assert node.wait() != 0
        assert node.stdout is not None
        assert node.stdout.read() == ""


def test_the_view_says_what_why_how_long_and_what_next() -> None:
    text = render(STATUS, now=1_012.0)
    assert "Node ann, run demo, round 4 of 10" in text
    assert "waiting (ready) for 12 s, at most 8 s more" in text
    assert "Waiting for 1 of 4 members to get ready." in text
    assert "next     The round closes with those who are ready." in text
    assert "waits for …bcdefghi" in text
    assert "loss 3.250, 2 KiB sent" in text
    assert "Round 3 was certified in attempt 0." in text


def test_the_view_of_a_node_that_knows_nothing_yet_is_short() -> None:
    assert render(NodeStatus(pid=7), now=1.0) == "Node process 7\n  doing    starting"


def test_a_deadline_that_has_passed_is_not_a_negative_time() -> None:
    assert "about to go on" in render(replace(STATUS, until=900.0), now=1_012.0)
    assert "for 0 s" in render(STATUS, now=999.0)
    assert "for 1:00:00" in render(STATUS, now=4_600.0)
