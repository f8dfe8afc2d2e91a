"""Extensions: found by entry point, served by a running node, harmless when they are broken."""

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.extensions import Extensions, load_extensions, serve_extensions, system_messages
from node.scaffold import scaffold
from protocol.errors import Code
from protocol.messages import REGISTRY
from protocol.testing import local_endpoints

ROOT = Path(__file__).parent.parent.parent

GOOD = """
from protocol import field, message, request
from protocol.rpc import Context, Endpoint

@message("{area}.pong", version=1, max_bytes="1 KiB", rate="9/s", audience="member")
class Pong:
    text: str = field(1)

@request("{area}.ping", version=1, max_bytes="1 KiB", rate="9/s", timeout="5 s", replies=Pong)
class Ping: ...

async def on_ping(message: Ping, context: Context) -> Pong:
    return Pong("pong")

def attach(endpoint: Endpoint) -> None:
    endpoint.handle(on_ping)
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where packages can be installed; what they declare is forgotten at the end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    system_messages()
    with REGISTRY.isolated():
        yield tmp_path


def install(folder: Path, name: str, source: str, *, target: str = "attach") -> None:
    """A package as pip leaves it behind."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(source.format(area=name.partition("-")[0]))
    record = folder / f"{module}-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(f"[intellect_node.messages]\n{name} = {module}:{target}\n")


async def test_an_installed_extension_is_served_and_one_that_comes_later_too(packages: Path) -> None:
    install(packages, "alpha-ext", GOOD)
    events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
    async with local_endpoints(2) as (caller, server):
        extensions = Extensions(server)
        found, failures = extensions.find()
        assert ([each.name for each in found], failures) == (["alpha-ext"], ())
        assert found[0].package == "alpha-ext 1.0"
        assert set(found[0].messages) == {"alpha.ping", "alpha.pong"}
        extensions.attach(found[0])
        module = importlib.import_module("alpha_ext")
        assert await caller.request(server.peer_id, module.Ping()) == module.Pong("pong")
        install(packages, "beta-ext", GOOD)
        assert [each.name for each in extensions.find()[0]] == ["beta-ext"]
        assert extensions.find() == ((), ())

        def emit(kind: str, /, **fields: object) -> None:
            events.put_nowait((kind, fields))

        serving = asyncio.ensure_future(serve_extensions(caller, emit))
        kinds = [await events.get(), await events.get()]
        serving.cancel()
        assert {kind for kind, _ in kinds} == {"extension.served"}
        assert {fields["name"] for _, fields in kinds} == {"alpha-ext", "beta-ext"}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("raise RuntimeError('broken')", "attach"),
        ("attach = 3", "attach"),
        ("", "attach"),
        (GOOD.replace("{area}.pong", "run.heartbeat"), "attach"),
        (GOOD.replace('rate="9/s", ', ""), "attach"),
        ("import no_such_module_anywhere", "attach"),
    ],
)
def test_a_broken_extension_is_named_and_harms_no_other(packages: Path, source: str, target: str) -> None:
    install(packages, "aaa-broken", source, target=target)
    install(packages, "gamma-ext", GOOD)
    found, failures = load_extensions()
    assert [each.name for each in found] == ["gamma-ext"]
    (failure,) = failures
    assert failure.code is Code.CFG_EXTENSION
    assert "aaa-broken" in failure.sentence


async def test_an_extension_that_cannot_be_attached_is_an_event(packages: Path) -> None:
    install(packages, "delta-ext", GOOD + "\n    raise RuntimeError('no room')\n")
    events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    def emit(kind: str, /, **fields: object) -> None:
        events.put_nowait((kind, fields))

    async with local_endpoints(1) as (server,):
        serving = asyncio.ensure_future(serve_extensions(server, emit))
        kind, fields = await events.get()
        serving.cancel()
    assert kind == "extension.failed"
    assert "no room" in fields["reason"]


async def test_a_package_in_editable_mode_is_found_by_a_process_that_runs(
    packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = tmp_path_factory.mktemp("source")
    async with local_endpoints(1) as (server,):
        extensions = Extensions(server)
        assert extensions.find() == ((), ())
        install(packages, "epsilon-ext", GOOD)
        (packages / "epsilon_ext.py").rename(source / "epsilon_ext.py")
        (packages / "__editable__.epsilon_ext-1.0.pth").write_text(f"{source}\n")
        ((found,), failures) = extensions.find()
        assert (found.name, failures) == ("epsilon-ext", ())


PROGRAM = """
import asyncio, site, sys
from node.extensions import Extensions
from protocol.testing import local_endpoints

async def main():
    async with local_endpoints(2) as (caller, server):
        extensions = Extensions(server)
        assert not [each for each in extensions.find()[0] if each.name == "acme-report"]
        print("running", flush=True)
        sys.stdin.readline()
        (found,) = (each for each in extensions.find()[0] if each.name == "acme-report")
        extensions.attach(found)
        from acme_report import AskReport
        print(await caller.request(server.peer_id, AskReport()))

site.addsitedir(sys.argv[1])
asyncio.run(main())
"""


@pytest.mark.soak
def test_what_pip_installs_in_editable_mode_is_served_by_a_process_that_runs(tmp_path: Path) -> None:
    folder, prefix = scaffold("acme-report", tmp_path), tmp_path / "prefix"
    site = prefix / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(site)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    try:
        assert running.stdout.readline() == "running\n"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
        ]
        pip += ["--disable-pip-version-check", "--prefix", str(prefix), "-e", str(folder)]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said, _ = running.communicate("\n", timeout=60)
        assert said == "Report(celsius=(61.5, 60.0), driver='example')\n"
    finally:
        running.kill()
        running.wait()
