import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from node.lifecycle import LOCK_FILE, SAME_SIGNAL, Holder, StopSignals, hold, holder, prepare_folder
from protocol.errors import Code, NodeError
from tests.node.processes import program, said, wait_until_gone

HOLD = """
    import signal, sys
    from pathlib import Path
    from node.lifecycle import hold
    with hold(Path(sys.argv[1])):
        print("held", flush=True)
        signal.pause()
"""

DRAIN = """
    import asyncio
    from node.lifecycle import StopSignals

    async def main():
        drained = asyncio.Event()
        def drain(reason):
            print("drain", reason, flush=True)
            drained.set()
        with StopSignals(drain, asyncio.get_running_loop()):
            print("ready", flush=True)
            await drained.wait()
        print("drained", flush=True)

    asyncio.run(main())
"""


def test_a_second_process_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    with program(HOLD, tmp_path) as first:
        assert said(first) == "held"
        with pytest.raises(NodeError) as caught, hold(tmp_path):
            pass
        assert caught.value.code == Code.STO_LOCKED
        assert f"process {first.pid}" in caught.value.sentence
        held_by = holder(tmp_path)
        assert held_by is not None
        process = held_by.process()
        assert process is not None
        assert process.pid == first.pid


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    with program(HOLD, tmp_path) as first:
        assert said(first) == "held"
        first.kill()
        first.wait()
    assert (tmp_path / LOCK_FILE).exists()
    assert holder(tmp_path) is None
    with hold(tmp_path):
        held_by = holder(tmp_path)
        assert held_by is not None
        assert held_by.pid == os.getpid()
    assert holder(tmp_path) is None


def test_a_child_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    source = """
        import signal, subprocess, sys
        from pathlib import Path
        from node.lifecycle import hold
        with hold(Path(sys.argv[1])):
            child = subprocess.Popen(["sleep", "60"])
            print(child.pid, flush=True)
            signal.pause()
    """
    with program(source, tmp_path) as parent:
        child = int(said(parent))
        try:
            parent.kill()
            parent.wait()
            assert holder(tmp_path) is None
        finally:
            os.kill(child, signal.SIGKILL)


def test_one_process_may_hold_a_directory_within_itself(tmp_path: Path) -> None:
    with hold(tmp_path):
        with hold(tmp_path / "."):
            pass
        assert holder(tmp_path) is not None
    assert holder(tmp_path) is None


def test_a_lock_file_with_garbage_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_bytes(b"\xff garbage" * 100)
    assert holder(tmp_path) is None
    with hold(tmp_path):
        pass


def test_a_number_that_another_process_has_now_is_not_taken_for_the_holder(tmp_path: Path) -> None:
    mine = psutil.Process()
    assert Holder(mine.pid, mine.create_time()).process() == mine
    assert Holder(mine.pid, mine.create_time() - 60).process() is None
    assert Holder(0, 0.0).process() is None


def test_the_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.failure_mode(18)
def test_a_directory_that_cannot_be_written_is_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(self: Path, data: bytes) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", read_only)
    with pytest.raises(NodeError) as caught:
        prepare_folder(tmp_path)
    assert caught.value.code == Code.STO_UNWRITABLE
    assert str(tmp_path) in caught.value.sentence
    assert "Permission denied" in caught.value.sentence


def test_a_file_in_the_place_of_the_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NodeError, match="is not a directory"):
            prepare_folder(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_drains(number: signal.Signals) -> None:
    with program(DRAIN) as node:
        assert said(node) == "ready"
        node.send_signal(number)
        assert said(node) == f"drain {number.name}"
        assert said(node) == "drained"
        assert node.wait() == 0


def test_the_second_signal_stops_now_with_all_children() -> None:
    source = """
        import asyncio, subprocess
        import node.lifecycle as l
        from datetime import timedelta
        l.SAME_SIGNAL = timedelta(0)

        async def main():
            with l.StopSignals(lambda reason: print("drain", reason, flush=True), asyncio.get_running_loop()):
                print(subprocess.Popen(["sleep", "60"], process_group=0).pid, flush=True)
                await asyncio.Event().wait()

        asyncio.run(main())
    """
    with program(source) as node:
        child = int(said(node))
        node.send_signal(signal.SIGTERM)
        assert said(node) == "drain SIGTERM"
        node.send_signal(signal.SIGINT)
        assert node.wait() == 128 + signal.SIGINT
        wait_until_gone(child)


def test_the_second_signal_works_while_the_loop_is_busy() -> None:
    source = """
        import asyncio, time
        import node.lifecycle as l
        from datetime import timedelta
        l.SAME_SIGNAL = timedelta(0)

        async def main():
            with l.StopSignals(lambda reason: None, asyncio.get_running_loop()) as signals:
                print("busy", flush=True)
                while not signals.requested:
                    pass
                print("asked", flush=True)
                while True:
                    time.sleep(0.01)

        asyncio.run(main())
    """
    with program(source) as node:
        assert said(node) == "busy"
        node.send_signal(signal.SIGINT)
        assert said(node) == "asked"
        node.send_signal(signal.SIGINT)
        assert node.wait() == 128 + signal.SIGINT


class Stop:
    """StopSignals with a clock and an end that tests can see."""

    def __init__(self) -> None:
        self.now = 100.0
        self.drains: list[str] = []
        self.ends: list[int] = []
        self.signals = StopSignals(self.drains.append, on_now=self.ends.append, clock=lambda: self.now)


def test_one_wish_that_arrives_twice_is_one_wish() -> None:
    stop = Stop()
    with stop.signals:
        signal.raise_signal(signal.SIGINT)
        stop.now += SAME_SIGNAL.total_seconds() / 2
        signal.raise_signal(signal.SIGTERM)
        assert (stop.drains, stop.ends) == (["SIGINT"], [])
        stop.now += SAME_SIGNAL.total_seconds()
        signal.raise_signal(signal.SIGTERM)
    assert (stop.drains, stop.ends) == (["SIGINT"], [signal.SIGTERM])


def test_a_stop_by_the_status_socket_counts_as_the_first() -> None:
    stop = Stop()
    with stop.signals:
        stop.signals.request("stop command")
        stop.signals.request("stop command")
        stop.now += 10
        signal.raise_signal(signal.SIGINT)
    assert (stop.drains, stop.ends) == (["stop command"], [signal.SIGINT])


def test_the_handlers_before_are_back_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    with Stop().signals:
        pass
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before


def test_a_node_that_is_to_outlive_its_terminal_ignores_its_end() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop()
        with stop.signals:
            signal.raise_signal(signal.SIGHUP)
        assert not stop.signals.requested
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_the_drain_is_begun_in_the_loop() -> None:
    drained = asyncio.Event()
    with StopSignals(lambda reason: drained.set(), asyncio.get_running_loop()):
        signal.raise_signal(signal.SIGTERM)
        await drained.wait()
