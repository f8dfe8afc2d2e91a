import asyncio
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from protocol.units import Bytes
from rl.environments.sandbox import Limits, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

SHORT = Limits(wall=timedelta(seconds=5), cpu=timedelta(seconds=1))


async def test_a_program_reads_its_input_and_prints() -> None:
    outcome = await run("import sys, json; print(json.load(sys.stdin)['a'] + 1)", b'{"a": 41}')
    assert outcome.end == "done" and outcome.output == b"42\n"


async def test_an_exception_is_a_failure_with_its_text() -> None:
    outcome = await run("1 / 0")
    assert outcome.end == "failed" and b"ZeroDivisionError" in outcome.output


async def test_an_endless_loop_ends_at_its_cpu_time() -> None:
    assert (await run("while True: pass", limits=SHORT)).end == "time"


async def test_a_program_that_ignores_the_signal_for_cpu_time_ends_too() -> None:
    source = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert (await run(source, limits=SHORT)).end == "time"


async def test_a_program_that_sleeps_ends_at_its_wall_time() -> None:
    limits = Limits(wall=timedelta(milliseconds=300))
    assert (await run("import time; time.sleep(1e6)", limits=limits)).end == "time"


async def test_a_memory_eater_fails() -> None:
    outcome = await run("x = []\nwhile True: x.append(bytearray(1 << 20))", limits=SHORT)
    assert outcome.end == "failed" and b"MemoryError" in outcome.output


async def test_output_is_bounded() -> None:
    outcome = await run("while True: print('x' * 1000)", limits=Limits(output=Bytes(5000)))
    assert outcome.end == "output" and len(outcome.output) == 5000


async def test_a_fork_bomb_does_not_get_its_first_fork() -> None:
    source = "import os\nfor _ in range(1000):\n    os.fork()\nprint('forked')"
    outcome = await run(source, limits=SHORT)
    assert outcome.end == "failed" and b"BlockingIOError" in outcome.output
    thread = await run("import threading\nthreading.Thread(target=print).start()", limits=SHORT)
    assert thread.end == "failed"


async def test_many_at_once_do_not_count_against_one_another() -> None:
    outcomes = await asyncio.gather(*(run(f"print({n})") for n in range(6)))
    assert [outcome.output for outcome in outcomes] == [b"%d\n" % n for n in range(6)]


@pytest.fixture
def listening() -> int:
    """The port of a server that accepts everybody, if it is reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept(), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        socket.create_connection(server.getsockname()).close()  # it was reachable all the time
        thread.join()


async def test_a_socket_is_refused(listening: int) -> None:
    source = f"import socket; socket.create_connection(('127.0.0.1', {listening})); print('through')"
    outcome = await run(source)
    assert outcome.end == "failed" and b"through" not in outcome.output and b"Error" in outcome.output
    named = await run(
        "import socket; print(socket.getaddrinfo('localhost', 80)); s = socket.socket()\n"
        "s.settimeout(1); s.connect(('1.1.1.1', 53)); print('through')"
    )
    assert named.end == "failed" and b"through" not in named.output


async def test_nothing_can_be_written_and_files_of_the_node_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "identity.key"
    secret.write_text("secret")
    secret.chmod(0o600)
    for place in (tmp_path, Path("/tmp"), Path("/dev/shm")):
        outcome = await run(f"open('{place}/made', 'w').write('x' * 10)")
        assert outcome.end == "failed"
        assert not (place / "made").exists() or (place / "made").stat().st_size == 0
    outcome = await run(f"print(open('{secret}').read())")
    assert outcome.end == "failed" and b"secret\n" not in outcome.output


async def test_the_surroundings_of_the_node_are_not_seen() -> None:
    os.environ["ACME_TOKEN"] = "hush"
    outcome = await run("import os; print(sorted(os.environ), os.getcwd())")
    assert outcome.end == "done" and b"ACME" not in outcome.output


async def test_a_program_that_claims_there_are_no_walls_is_only_a_failure() -> None:
    assert (await run("raise SystemExit(125)")).end == "failed"


def test_it_dies_with_the_process_that_runs_it() -> None:
    source = (
        "import asyncio, sys\n"
        "from rl.environments.sandbox import run\n"
        "asyncio.run(run('import os, time; os.write(1, b\"up\"); time.sleep(1e6)'))\n"
    )
    with subprocess.Popen([sys.executable, "-c", source]) as parent:
        child = psutil.Process(parent.pid)
        inside = None
        while inside is None and parent.poll() is None:
            inside = next((one for one in child.children() if "-c" in one.cmdline()), None)
        parent.kill()
        parent.wait()
        inside.wait(timeout=60)
