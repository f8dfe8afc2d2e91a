"""The committed schema of the system's own messages: complete, current, readable by protoc, and kept."""

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from node.extensions import SYSTEM, system_messages, system_schema
from protocol.messages import Spec, decode, encode, spec_of
from protocol.messages.example import example, plain
from protocol.messages.exporting import FOLDER, compare, export, golden_of, read_golden
from protocol.messages.schema import area_of, describe_area

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("protocol", "shardcast", "toploc", "diloco", "rl", "node")
DECORATORS = {"message", "request", "topic"}
SPECS = system_schema()


def declares_messages(path: Path) -> bool:
    decorators = [
        decorator.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name)
    ]
    return bool(DECORATORS & set(decorators))


def test_every_module_that_declares_messages_is_known() -> None:
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if declares_messages(path)
    }
    assert found == set(SYSTEM)


def test_the_schema_is_current(tmp_path: Path) -> None:
    for path in FOLDER.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    export(tmp_path, SPECS)
    ours = {path.name: path.read_text() for path in FOLDER.iterdir() if path.suffix in (".proto", ".json")}
    fresh = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {name for name in fresh if fresh[name] != ours.get(name)} == set(), "run `make docs`"
    assert set(ours) == set(fresh)


def test_no_message_breaks_its_promise() -> None:
    assert compare(FOLDER, SPECS).breaking == ()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_bytes_of_a_version_never_change(spec: Spec) -> None:
    kept = read_golden(FOLDER)[spec.name][str(spec.version)]
    if set(kept["value"]) == set(
        golden_of(spec)["value"]
    ):  # else it gained fields, which older bytes do not have
        assert kept == golden_of(spec)
        assert encode(decode(spec.cls, bytes.fromhex(kept["bytes"]))).hex() == kept["bytes"]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_what_the_version_before_sends_is_read(spec: Spec) -> None:
    for version, kept in read_golden(FOLDER)[spec.name].items():
        if spec.understands(int(version)):
            read = plain(decode(spec.cls, bytes.fromhex(kept["bytes"])))
            assert _common(read, kept["value"]) == _common(kept["value"], read)


def _common(value: Any, other: Any) -> Any:
    """A value without those fields, also of its parts, that the other has not: versions gain and lose some."""
    if isinstance(value, dict) and isinstance(other, dict):
        return {name: _common(each, other[name]) for name, each in value.items() if name in other}
    if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        return [_common(each, theirs) for each, theirs in zip(value, other, strict=True)]
    return value


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_example_uses_every_field(spec: Spec) -> None:
    made = example(spec.cls)
    assert made == example(spec.cls)
    grouped = {name for names in spec.groups.values() for name in names}
    for each in dataclasses.fields(spec.cls):
        assert each.name in grouped or getattr(made, each.name) not in (None, ()), each.name


def test_protoc_reads_the_files_as_we_mean_them(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    files = sorted(FOLDER.glob("*.proto"))
    out = tmp_path / "all.bin"
    names = [path.name for path in files]
    assert protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", *names]) == 0
    read = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    areas: dict[str, list[Spec]] = {}
    for spec in SPECS:
        areas.setdefault(area_of(spec), []).append(spec)
    for file in read.file:
        ours, _ = describe_area(areas[file.name.removesuffix(".proto")])
        assert [_bare(each) for each in file.message_type] == [_bare(each) for each in ours.message_type]
        assert file.package == ours.package


def _bare(message: Any) -> Any:
    """A message's descriptor without what carries no meaning: JSON names, and the order of its fields."""
    copy = descriptor_pb2.DescriptorProto.FromString(message.SerializeToString())
    for each in [*copy.field, *(inner for nested in copy.nested_type for inner in nested.field)]:
        each.ClearField("json_name")
    fields = sorted(copy.field, key=lambda each: each.number)
    del copy.field[:]
    copy.field.extend(fields)
    return copy


def test_the_system_has_messages_of_every_kind_it_needs() -> None:
    assert {spec_of(spec.cls).name for spec in system_messages()} >= {"run.heartbeat", "shardcast.frame"}
