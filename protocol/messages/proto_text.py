"""Message classes as ``.proto`` files, one per area, for implementations in other languages."""

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2

from protocol.messages.registry import Role, Spec, spec_of
from protocol.messages.schema import area_of, describe_area

WRITTEN = (
    "// Written by `intellect-node messages export` from the message classes. Not to be changed by hand."
)
"""The first line of each file."""

_Proto = descriptor_pb2.FieldDescriptorProto
_NAMES = {
    _Proto.TYPE_BOOL: "bool",
    _Proto.TYPE_STRING: "string",
    _Proto.TYPE_BYTES: "bytes",
    _Proto.TYPE_DOUBLE: "double",
    _Proto.TYPE_FLOAT: "float",
    _Proto.TYPE_UINT64: "uint64",
    _Proto.TYPE_SINT64: "sint64",
    _Proto.TYPE_FIXED64: "fixed64",
    _Proto.TYPE_UINT32: "uint32",
    _Proto.TYPE_SINT32: "sint32",
}


def proto_files(specs: Iterable[Spec]) -> dict[str, str]:
    """The text of each ``.proto`` file by its name; a file holds the messages of one area and the parts they use."""
    areas: dict[str, list[Spec]] = {}
    for spec in specs:
        areas.setdefault(area_of(spec), []).append(spec)
    return {f"{area}.proto": _file(members) for area, members in sorted(areas.items())}


def _file(specs: list[Spec]) -> str:
    file, names = describe_area(specs)
    by_name: dict[str, type[Any]] = {name: cls for cls, name in names.items()}
    lines = [
        WRITTEN,
        'syntax = "proto3";',
        f"package {file.package};",
    ]
    for message in file.message_type:
        spec = spec_of(by_name[message.name])
        lines.append("")
        lines += [f"// {line}".rstrip() for line in _head(spec)]
        lines += _message(message, file.package)
    return "\n".join(lines) + "\n"


def _head(spec: Spec) -> list[str]:
    """What stands above a message: its contract in a line, and what its class says."""
    head = []
    if spec.role is not Role.PART:
        contract = f"{spec.name} version {spec.version}, {spec.role} of the {spec.plane} plane"
        contract += f", at most {spec.max_bytes}, {spec.rate}, from {spec.audience}"
        if spec.replies is not None and spec.timeout is not None:
            stream = "a stream of " if spec.stream else ""
            asked = ", a stream of questions" if spec.asks_stream else ""
            contract += (
                f"{asked}, answered by {stream}{spec.reply_name} within {spec.timeout.total_seconds():g} s"
            )
        head.append(contract + ".")
    doc = [line.strip() for line in spec.doc.splitlines()]
    return head + doc


def _message(message: descriptor_pb2.DescriptorProto, package: str) -> list[str]:
    lines = [f"message {message.name} {{"]
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    for enum in message.enum_type:
        lines.append(f"  enum {enum.name} {{")
        lines += [f"    {value.name} = {value.number};" for value in enum.value]
        lines.append("  }")
    if message.reserved_range:
        lines.append(f"  reserved {', '.join(str(each.start) for each in message.reserved_range)};")
    groups: dict[int, list[str]] = {}
    for field in message.field:
        text = _field(field, entries, f".{package}.{message.name}", package)
        if field.HasField("oneof_index") and not field.proto3_optional:
            groups.setdefault(field.oneof_index, []).append(f"    {text}")
        else:
            lines.append(f"  {text}")
    for index, texts in groups.items():
        lines += [f"  oneof {message.oneof_decl[index].name} {{", *texts, "  }"]
    lines.append("}")
    return lines


def _field(
    field: descriptor_pb2.FieldDescriptorProto,
    entries: dict[str, descriptor_pb2.DescriptorProto],
    path: str,
    package: str,
) -> str:
    entry = (
        entries.get(field.type_name.rpartition(".")[2]) if field.type_name.startswith(path + ".") else None
    )
    if entry is not None:
        key, value = entry.field
        kind = f"map<{_NAMES[key.type]}, {_kind(value, path, package)}>"
        return f"{kind} {field.name} = {field.number};"
    label = ""
    if field.label == _Proto.LABEL_REPEATED:
        label = "repeated "
    elif field.proto3_optional:
        label = "optional "
    return f"{label}{_kind(field, path, package)} {field.name} = {field.number};"


def _kind(field: descriptor_pb2.FieldDescriptorProto, path: str, package: str) -> str:
    if field.type_name.startswith(path + "."):
        return field.type_name[len(path) + 1 :]
    if field.type_name:
        return field.type_name.removeprefix(f".{package}.")
    return _NAMES[field.type]
