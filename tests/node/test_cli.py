import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from node import cli
from node.cli import main
from node.lifecycle import hold
from node.machine import software_version
from node.start_cli import INVITATION
from protocol.errors import Code, NodeError
from tests.node.processes import ROOT, program, said
from tests.node.test_lifecycle import HOLD
from tests.node.test_status import NODE

PEER = "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWGRUnf6sDzZ3jHwqXEqSBhVYXFYvUVaTBVpCkZLEqbTDx"
HEAVY = ("torch", "numpy", "grpc", "hivemind", "libp2p", "numba", "transformers", "tokenizers")

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runfile(tmp_path: Path) -> Path:
    path = tmp_path / "RUN.toml"
    path.write_text('[run]\nname = "mine"\n')
    return path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """What the command line called in the modules behind it, which are not loaded."""
    seen: list[tuple[str, tuple[Any, ...]]] = []

    def record(name: str) -> Callable[..., int]:
        def call(*arguments: Any, **named: Any) -> int:
            seen.append((name, (*arguments, named) if named else arguments))
            return 7

        return call

    for module, names in (
        ("daemon", ("init_node", "run_node")),
        ("exporting", ("export_node",)),
        ("demo", ("run_demo",)),
    ):
        stand_in = ModuleType(f"node.{module}")
        for name in names:
            setattr(stand_in, name, record(name))
        monkeypatch.setitem(sys.modules, f"node.{module}", stand_in)
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    return seen


def test_the_command_line_imports_nothing_heavy(tmp_path: Path) -> None:
    commands = [["--help"], [], ["--version"], ["run", "--help"], ["run", "x.toml"], ["status"], ["doctor"]]
    source = f"""
        import sys
        from node.cli import main
        for command in {commands}:
            main(command)
            print("loaded", [name for name in {HEAVY} if name in sys.modules])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert [line for line in done.stdout.split("\n") if line.startswith("loaded")] == ["loaded []"] * len(
        commands
    )


def test_without_arguments_it_says_what_to_type_next(capsys: Capture) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for command in ("demo", "run RUN.toml --join", "init RUN.toml", "status", "stop", "doctor", "--help"):
        assert f"intellect-node {command}" in text
    assert '[run]\n  name = "my-run"' in text


def test_the_run_file_that_the_guide_shows_works() -> None:
    from node.runfile import parse

    shown = [
        line.strip()
        for line in cli.GUIDE.split("\n")
        if line.startswith("  ") and ("[" in line or " = " in line)
    ]
    assert len(shown) == 3
    assert parse("\n".join(shown)).run.rounds == 100


def test_every_command_is_there(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("init", "run", "status", "stop", "export", "doctor", "demo"):
        assert f" {command} " in text


def test_the_version_names_package_and_protocol(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"intellect-node {software_version()}, protocol 1\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["dance"],
        ["run"],
        ["run", "x.toml", "--foo"],
        ["demo", "--nodes", "1"],
        ["export", "x"],
        ["stop", "--wait", "3"],
    ],
)
def test_a_wrong_command_line_is_one_sentence_with_a_code_and_a_fix(
    arguments: list[str], capsys: Capture
) -> None:
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    sentence, fix = output.err.rstrip("\n").split("\n")
    assert sentence.startswith("E-CFG-006: ")
    assert fix.startswith("  Fix: ")


def test_a_command_that_was_misspelt_is_guessed(capsys: Capture) -> None:
    assert main(["statu"]) == 2
    assert "status" in capsys.readouterr().err


def test_everything_wrong_with_a_run_file_is_printed(runfile: Path, capsys: Capture) -> None:
    runfile.write_text("[run]\nnam = 1\nrounds = 0\n")
    assert main(["run", str(runfile)]) == 2
    lines = capsys.readouterr().err.split("\n")
    assert lines[0].startswith("E-CFG-002: RUN.toml, line 2: ")
    assert lines[1].startswith("E-CFG-003: RUN.toml, line 3: ")
    assert lines[2].startswith("  Fix: ")


def test_init_is_called_with_the_run_file_and_the_folder_of_its_name(runfile: Path, calls: list[Any]) -> None:
    assert main(["init", str(runfile)]) == 7
    ((name, (given, path, folder, site)),) = calls
    assert (name, given.run.name, path, folder, site) == (
        "init_node",
        "mine",
        runfile,
        Path("runs/mine"),
        None,
    )


def test_run_is_called_with_the_addresses(runfile: Path, tmp_path: Path, calls: list[Any]) -> None:
    assert main(["run", str(runfile), "--join", PEER, "--join", PEER, "--dir", str(tmp_path / "d")]) == 7
    ((name, (_, path, folder, join, site, invite)),) = calls
    assert (name, path, folder, join) == ("run_node", runfile, tmp_path / "d", (PEER, PEER))
    assert (site, invite) == (None, "")


@pytest.mark.parametrize("role", ["trainer", "rollout"])
def test_an_invitation_is_for_the_node_and_nothing_for_its_children(
    runfile: Path, monkeypatch: pytest.MonkeyPatch, calls: list[Any], role: str
) -> None:
    monkeypatch.setenv(INVITATION, "a token")
    assert main(["run", str(runfile), "--role", role, "--join", PEER]) == 7
    assert calls[0][1][-1] == "a token" and INVITATION not in os.environ
    assert main(["join", PEER, "--invite", "another"]) == 7
    assert calls[1][1][-1] == "another"


def test_a_dashboard_is_served_where_the_command_line_says(runfile: Path, calls: list[Any]) -> None:
    database = "postgresql://me@db/run"
    assert main(["init", str(runfile), "--dashboard", ":8080", "--database", database, "--private"]) == 7
    site = calls[0][1][3]
    assert not site.public
    assert (site.listen.host, site.listen.port, site.database) == ("127.0.0.1", 8080, database)


def test_the_run_files_own_addresses_serve_when_none_is_given(runfile: Path, calls: list[Any]) -> None:
    runfile.write_text(f'[network]\njoin = ["{PEER}"]\n')
    main(["run", str(runfile)])
    assert calls[0][1][3] == (PEER,)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:4001", "/ip4/127.0.0.1/tcp/4001", PEER + "/", PEER[:-30], "/ip4//tcp/1/p2p/x"]
)
def test_what_is_no_address_is_refused_with_an_example(
    runfile: Path, address: str, calls: list[Any], capsys: Capture
) -> None:
    assert main(["run", str(runfile), "--join", address]) == 2
    assert "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooW" in capsys.readouterr().err
    assert calls == []


def test_the_node_runs_with_its_directory_held_and_its_threads_bounded(
    runfile: Path, monkeypatch: pytest.MonkeyPatch, calls: list[Any]
) -> None:
    from node.lifecycle import holder

    seen: list[Any] = []
    monkeypatch.delenv("OMP_NUM_THREADS")
    runfile.write_text("[node]\nthreads = 3\n")

    def run_node(*arguments: Any) -> int:
        seen.append((holder(arguments[2]), os.environ["OMP_NUM_THREADS"], os.environ["RAYON_NUM_THREADS"]))
        with hold(arguments[2]):
            return 0

    monkeypatch.setattr(sys.modules["node.daemon"], "run_node", run_node)
    assert main(["run", str(runfile), "--dir", "d"]) == 0
    ((held_by, own, given),) = seen
    assert held_by is not None
    assert held_by.pid == os.getpid()
    assert own == "3"
    assert given == "1", "what whoever started it has set stays"
    assert holder(Path("d")) is None


def test_a_second_node_on_one_directory_is_refused(
    runfile: Path, tmp_path: Path, calls: list[Any], capsys: Capture
) -> None:
    with program(HOLD, tmp_path / "d") as first:
        assert said(first) == "held"
        assert main(["run", str(runfile), "--dir", str(tmp_path / "d")]) == 1
        assert capsys.readouterr().err.startswith(
            f"E-STO-001: The data directory {tmp_path / 'd'} is in use by process {first.pid}."
        )
    assert calls == []


@pytest.mark.failure_mode(18)
def test_a_directory_where_not_even_root_may_write_is_one_sentence(
    runfile: Path, calls: list[Any], capsys: Capture
) -> None:
    for command in ("init", "run"):
        assert main([command, str(runfile), "--dir", "/proc/node"]) == 1
        assert capsys.readouterr().err.startswith("E-STO-002: The data directory /proc/node cannot be used: ")
    assert calls == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_cannot_be_read_are_said_by_their_own_code(
    runfile: Path, tmp_path: Path, capsys: Capture
) -> None:
    runfile.chmod(0)
    assert main(["run", str(runfile)]) == 2
    assert capsys.readouterr().err.startswith("E-CFG-001: ")
    (tmp_path / "d").mkdir(0o000)
    for command in ("status", "stop"):
        assert main([command, "--dir", str(tmp_path / "d")]) == 1
        assert "belongs to another user" in capsys.readouterr().err


@pytest.mark.failure_mode(18)
def test_a_machine_that_is_not_fit_is_told_before_anything_is_loaded(
    runfile: Path, calls: list[Any], capsys: Capture
) -> None:
    runfile.write_text(
        "[model]\nhidden = 16384\nlayers = 200\nintermediate = 65536\nheads = 128\nkv_heads = 8\n"
    )
    assert main(["init", str(runfile)]) == 1
    assert capsys.readouterr().err.startswith("E-SYS-001: A model of ")
    assert calls == []


@pytest.mark.parametrize(("code", "status"), [(Code.NET_UNREACHABLE, 1), (Code.CFG_GENESIS_MISMATCH, 2)])
def test_an_error_of_the_node_is_printed_as_sentence_fix_and_code(
    runfile: Path, monkeypatch: pytest.MonkeyPatch, calls: list[Any], capsys: Capture, code: Code, status: int
) -> None:
    def init_node(*arguments: Any) -> int:
        raise NodeError(code, "It went wrong.", fix="Mend it.", peer="12D3")

    monkeypatch.setattr(sys.modules["node.daemon"], "init_node", init_node)
    assert main(["init", str(runfile)]) == status
    assert capsys.readouterr().err == f"{code}: It went wrong. (peer 12D3)\n  Fix: Mend it.\n"


def test_a_fault_of_our_own_keeps_its_traceback(
    runfile: Path, monkeypatch: pytest.MonkeyPatch, calls: list[Any]
) -> None:
    def init_node(*arguments: Any) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(sys.modules["node.daemon"], "init_node", init_node)
    with pytest.raises(ZeroDivisionError):
        main(["init", str(runfile)])


def test_export_and_demo_are_called_with_their_options(calls: list[Any]) -> None:
    assert main(["export", "runs/x", "--to", "model"]) == 7
    words = ["--nodes", "3", "--inner-steps", "5", "--json", "--compare", "--open", "--dir", "there"]
    assert main(["demo", *words]) == 7
    assert calls[0] == ("export_node", (Path("runs/x"), Path("model")))
    assert calls[1][1][-1] == {
        "nodes": 3, "rounds": 10, "inner_steps": 5, "workers_per_node": 1, "seed": 1,
        "folder": Path("there"), "as_json": True, "compare": True, "browse": True,
    }  # fmt: skip


def test_doctor_prints_each_check_and_fails_where_one_fails(runfile: Path, capsys: Capture) -> None:
    assert main(["doctor", "--dir", "new", "--json"]) == 0
    assert {finding["level"] for finding in json.loads(capsys.readouterr().out)} <= {"ok", "warning"}
    runfile.write_text('[limits]\nmemory = "1 MB"\n')
    assert main(["doctor", str(runfile)]) == 1
    text = capsys.readouterr().out
    assert "ERROR    memory" in text
    assert "E-SYS-001 Not enough memory." in text
    assert "1 of " in text


def test_status_and_stop_say_when_no_node_runs(capsys: Capture) -> None:
    for command in (["status"], ["stop"], ["status", "--dir", "d"], ["stop", "--dir", "d"]):
        assert main(command) == 1
        assert capsys.readouterr().err.startswith("E-SYS-004: No node runs ")


def test_status_finds_the_nodes_below_runs_and_stop_asks_which(tmp_path: Path, capsys: Capture) -> None:
    folders = [tmp_path / "runs" / "one", tmp_path / "runs" / "demo" / "two"]
    with program(NODE, folders[0], "answers") as one, program(NODE, folders[1], "answers") as two:
        assert (said(one), said(two)) == ("ready", "ready")
        assert main(["status"]) == 0
        text = capsys.readouterr().out
        assert "runs/one" in text and "runs/demo/two" in text
        assert main(["status", "--json", "--dir", str(folders[0])]) == 0
        (answer,) = json.loads(capsys.readouterr().out)
        assert answer["pid"] == one.pid
        assert main(["stop"]) == 2
        assert "--all" in capsys.readouterr().err
        assert main(["stop", "--dir", str(folders[0])]) == 0
        assert one.wait() == 0
        assert main(["stop"]) == 0
        assert two.wait() == 0


def test_the_module_runs_like_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "node", "dance"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("E-CFG-006: ")
