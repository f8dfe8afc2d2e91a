import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import protocol
from protocol.directory.p2pd import default_program
from protocol.errors import Code, NodeError
from protocol.units import Address
from tests.protocol.directory.conftest import Swarm
from tests.protocol.directory.scene import record

Ends = Callable[[list[int]], bool]

NODE = """
import asyncio, sys
from pathlib import Path
from protocol.directory import Directory
from protocol.identity import Identity

async def main():
    program = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    directory = await Directory.start(
        Identity.ephemeral(), namespace="tests", folder=Path(sys.argv[1]), program=program,
        progress=lambda sentence: print(sentence, flush=True),
    )
    print("pids", *directory.pids, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def started_node(*arguments: object) -> asyncio.subprocess.Process:
    root = str(Path(protocol.__file__).parent.parent)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", NODE, *map(str, arguments),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip


async def said(node: asyncio.subprocess.Process, beginning: str) -> list[str]:
    assert node.stdout is not None
    async with asyncio.timeout(60):
        while line := (await node.stdout.readline()).decode():
            if line.startswith(beginning):
                return line.split()
    raise AssertionError(f"the node ended without saying {beginning!r}")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def died(swarm: Swarm, which: int, ends: Ends) -> NodeError:
    """Kills one of the directory's two processes, and sees that the node can start another in its place."""
    folder = swarm._folder / "node-0"
    directory = await swarm.start(folder=folder)
    pidfds = [os.pidfd_open(pid) for pid in directory.pids]
    os.kill(directory.pids[which], signal.SIGKILL)
    async with asyncio.timeout(30):
        await directory.died.wait()
    assert ends(pidfds)
    assert not directory.alive
    assert os.listdir(folder) == []
    with pytest.raises(NodeError) as caught:
        await directory.records("members")
    assert caught.value is directory.failure
    port = int(directory.multiaddrs[0].split("/")[4])
    identity = swarm.identities[directory]
    again = await swarm.start(identity=identity, folder=folder, listen=Address("127.0.0.1", port))
    await again.publish(record(identity), shelf="newcomers")
    assert again.multiaddrs == directory.multiaddrs
    return caught.value


async def test_a_killed_directory_process_is_noticed(swarm: Swarm, ends: Ends) -> None:
    error = await died(swarm, 0, ends)
    assert error.code is Code.DIR_DIED and "signal 9" in error.sentence and error.retriable


async def test_a_killed_helper_is_noticed(swarm: Swarm, ends: Ends) -> None:
    error = await died(swarm, 1, ends)
    assert error.code is Code.DIR_DIED and "helper" in error.sentence


async def test_a_call_that_waits_is_told_of_the_death(swarm: Swarm) -> None:
    directory = await swarm.start()
    os.kill(directory.pids[0], signal.SIGSTOP)
    waiting = asyncio.create_task(directory.records("members"))
    await asyncio.sleep(0)
    os.kill(directory.pids[0], signal.SIGKILL)
    with pytest.raises(NodeError) as caught:
        await waiting
    assert caught.value.code is Code.DIR_DIED


async def test_stop_leaves_nothing_and_is_no_death(swarm: Swarm, tmp_path: Path, ends: Ends) -> None:
    directory = await swarm.start(folder=tmp_path / "node")
    pidfds = [os.pidfd_open(pid) for pid in directory.pids]
    await directory.stop()
    assert ends(pidfds)
    assert os.listdir(tmp_path / "node") == []
    assert not directory.died.is_set() and not directory.alive


async def test_a_killed_node_leaves_no_process_and_no_socket(tmp_path: Path, ends: Ends) -> None:
    node = await started_node(tmp_path)
    pidfds = [os.pidfd_open(int(pid)) for pid in (await said(node, "pids"))[1:]]
    assert len(pidfds) == 2
    node.kill()
    assert ends(pidfds)
    assert os.listdir(tmp_path) == []
    await node.wait()


async def test_even_stopped_processes_end_with_their_node(tmp_path: Path, ends: Ends) -> None:
    node = await started_node(tmp_path)
    pids = [int(pid) for pid in (await said(node, "pids"))[1:]]
    pidfds = [os.pidfd_open(pid) for pid in pids]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    node.kill()
    assert ends(pidfds)
    await node.wait()


async def test_a_node_killed_while_it_starts_leaves_no_process(
    tmp_path: Path, helper_that: Callable[[str], Path], ends: Ends
) -> None:
    node = await started_node(tmp_path / "node", helper_that(f'sleep 600; exec {default_program()} "$@"'))
    await said(node, "still waiting")
    (directory,) = children(node.pid)
    (helper,) = children(directory)
    pidfds = [os.pidfd_open(pid) for pid in (directory, helper)]
    sleeper = children(helper)
    node.kill()
    assert ends(pidfds)
    for pid in sleeper:  # the shell's own child is not of our making
        os.kill(pid, signal.SIGKILL)
    await node.wait()
