"""``intellect-node messages``: list, describe, export, check, new."""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from node.cli import main
from node.extensions import messages_of, system_messages
from protocol.messages import REGISTRY

ROOT = Path(__file__).parent.parent.parent


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["messages", *words]) == 0
    return capsys.readouterr().out


def test_list_shows_every_message_with_its_direction(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "list").splitlines()
    (asked,) = (line for line in lines if line.startswith("run.ask-ledger "))
    assert "asked -> round.decided (stream)" in asked
    (published,) = (line for line in lines if line.startswith("run.decision "))
    assert "published" in published
    assert len(json.loads(said(capsys, "list", "--json"))) == len(lines)


def test_describe_shows_limits_fields_and_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "describe", "shardcast.frame")
    for word in ("version 1", "bulk", "member", "1 MiB", "bytes data", "its bytes"):
        assert word in text
    described = json.loads(said(capsys, "describe", "shardcast.frame", "--json"))
    assert described["example"]["bytes"]
    assert described["name"] == "shardcast.frame"


def test_describe_shows_bounds_and_the_fields_of_parts(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "describe", "gossip.recent")
    for line in (
        "repeated Kept kept  (1024 items, may be left out)",
        "fields of a Kept",
        "string topic  (64 bytes)",
    ):
        assert line in text


def test_describe_knows_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["messages", "describe", "shardcast.fram"]) == 2
    assert "Did you mean shardcast.frame?" in capsys.readouterr().err


def test_the_systems_messages_are_what_their_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert "The messages are what the schema says." in said(capsys, "check")


MESSAGES = '''
from protocol import field, message

@message("{area}.state", version=1, max_bytes="1 KiB", rate="1/s", audience="member")
class State:
    """A state."""
    {fields}
'''


MADE = count()
"""Numbers of modules: one name is imported once."""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command, where a new module declares a message of these fields."""
    monkeypatch.syspath_prepend(str(tmp_path))
    system_messages()

    def run(command: str, fields: str) -> int:
        module = f"declared_{next(MADE)}"
        (tmp_path / f"{module}.py").write_text(MESSAGES.format(area="acme", fields=fields))
        with REGISTRY.isolated():
            return main(["messages", command, "--module", module, "--schema", str(tmp_path / "schema")])

    return run


def test_check_passes_on_an_added_field_and_fails_on_a_renumbered_one(
    declare: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "theirs.proto").write_text('syntax = "proto3";\n')
    assert declare("check", "count: int = field(1)") == 2, "nothing was promised yet"
    assert "There is no schema in" in capsys.readouterr().err
    assert declare("export", "count: int = field(1)") == 0
    assert (folder / "theirs.proto").exists(), "what export did not write it does not remove"
    (folder / "theirs.proto").unlink()
    assert {path.name for path in (tmp_path / "schema").iterdir()} == {
        "acme.proto",
        "lock.json",
        "golden.json",
    }
    assert declare("check", "count: int = field(1); more: int = field(2, default=0)") == 0
    assert "State.more = 2 is new" in capsys.readouterr().out
    assert declare("check", "count: int = field(2)") == 1
    shown = capsys.readouterr()
    assert "renumbered from 1 to 2" in shown.out
    assert "E-WIRE-011" in shown.err


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"schema": 1}', '{"schema": 1, "messages": [], "retired": []}']
)
def test_a_damaged_lock_is_one_clear_error(
    declare: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert declare("export", "count: int = field(1)") == 0
    (tmp_path / "schema" / "lock.json").write_text(text)
    assert declare("check", "count: int = field(1)") == 1
    assert "E-STO-003" in (shown := capsys.readouterr().err) and "version control" in shown


def test_a_module_that_cannot_be_imported_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    for module in ("no_such_module", "json"):
        assert main(["messages", "check", "--module", module]) == 2
        assert "E-CFG-008" in capsys.readouterr().err


def test_new_makes_a_package_whose_test_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "pip install -e ." in said(capsys, "new", "acme-report", "--dir", str(tmp_path))
    folder = tmp_path / "acme-report"
    monkeypatch.syspath_prepend(str(folder))
    with REGISTRY.isolated():
        tests = runpy.run_path(str(folder / "tests" / "test_report.py"))
        ran = [test() for name, test in tests.items() if name.startswith("test_")]
    assert len(ran) == 2


def test_two_packages_of_one_owner_have_messages_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acme-disk", "acme-fan-speed"):
        said(capsys, "new", name, "--dir", str(tmp_path))
        monkeypatch.syspath_prepend(str(tmp_path / name))
    with REGISTRY.isolated():
        messages = [spec.name for spec in messages_of(["acme_disk", "acme_fan_speed"])]
    assert messages == [
        "acme.ask-disk", "acme.ask-fan-speed", "acme.disk", "acme.disk-news", "acme.fan-speed", "acme.fan-speed-news",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["report", "Acme-Report", "acme_report", "-x", "acme/report", "acme-1", "run-report", "acme-" + "x" * 60],
)
def test_new_wants_a_name_of_two_words(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["messages", "new", "--dir", str(tmp_path), "--", name]) == 2
    assert list(tmp_path.iterdir()) == []


def test_new_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "acme-report").mkdir()
    assert main(["messages", "new", "acme-report", "--dir", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_the_command_line_loads_no_protobuf_for_other_commands() -> None:
    program = "import sys, node.cli; sys.exit('google.protobuf' in sys.modules or 'grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_messages_of_installed_extensions_are_listed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    system_messages()
    fields = "count: int = field(1)\n\ndef attach(endpoint): ..."
    (tmp_path / "listed_ext.py").write_text(MESSAGES.format(area="listed", fields=fields))
    record = tmp_path / "listed_ext-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: listed-ext\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text("[intellect_node.messages]\nlisted = listed_ext:attach\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with REGISTRY.isolated():
        assert "listed.state" in said(capsys, "list")
        assert "uint64 count" in said(capsys, "describe", "listed.state")
