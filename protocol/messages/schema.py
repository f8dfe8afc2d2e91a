"""The protobuf schema of a message class, built with the official runtime's own descriptors."""

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2

from protocol.messages.fields import FieldSpec, Shape, zero_of
from protocol.messages.registry import Spec, spec_of

_Proto = descriptor_pb2.FieldDescriptorProto
_TYPES: dict[str, "descriptor_pb2.FieldDescriptorProto.Type.ValueType"] = {
    "bool": _Proto.TYPE_BOOL,
    "string": _Proto.TYPE_STRING,
    "bytes": _Proto.TYPE_BYTES,
    "double": _Proto.TYPE_DOUBLE,
    "float": _Proto.TYPE_FLOAT,
    "uint64": _Proto.TYPE_UINT64,
    "sint64": _Proto.TYPE_SINT64,
    "fixed64": _Proto.TYPE_FIXED64,
    "uint32": _Proto.TYPE_UINT32,
    "sint32": _Proto.TYPE_SINT32,
    "enum": _Proto.TYPE_ENUM,
    "message": _Proto.TYPE_MESSAGE,
}


def describe_file(spec: Spec) -> tuple[descriptor_pb2.FileDescriptorProto, dict[type[Any], str]]:
    """One proto3 file with a message class and every part it holds, parts first; and the name of each class in it."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{spec.name}.proto", package=area_of(spec).replace("-", "_"), syntax="proto3"
    )
    names: dict[type[Any], str] = {}
    _describe_class(spec, file, names)
    return file, names


def describe_area(
    specs: Iterable[Spec],
) -> tuple[descriptor_pb2.FileDescriptorProto, dict[type[Any], str]]:
    """One proto3 file with all messages of an area, in order of their names, and every part once."""
    ordered = sorted(specs, key=lambda spec: spec.name)
    area = area_of(ordered[0])
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{area}.proto", package=area.replace("-", "_"), syntax="proto3"
    )
    names: dict[type[Any], str] = {}
    for spec in ordered:
        if spec.cls not in names:
            _describe_class(spec, file, names)
    return file, names


def area_of(spec: Spec) -> str:
    """What stands before the last dot of a message's name; a part by itself is the envelope's header."""
    return spec.name.rpartition(".")[0] or "envelope"


def _describe_class(
    spec: Spec, file: descriptor_pb2.FileDescriptorProto, names: dict[type[Any], str]
) -> None:
    for field in spec.fields:
        if field.kind == "message" and field.python not in names:
            _describe_class(spec_of(field.python), file, names)
    name = spec.cls.__name__
    while name in names.values():
        name += "_"
    names[spec.cls] = name
    target = file.message_type.add(name=name)
    for field in spec.fields:
        _describe_field(field, target, file.package, names)
    for number in sorted(spec.reserved):
        target.reserved_range.add(start=number, end=number + 1)
    _order_oneofs(target)


def _order_oneofs(target: descriptor_pb2.DescriptorProto) -> None:
    """Declared groups first, then the one-field groups that stand for presence, as protobuf asks."""
    names = [each.name for each in target.oneof_decl]
    ordered = sorted(range(len(names)), key=lambda index: names[index].startswith("_"))
    place = {old: new for new, old in enumerate(ordered)}
    del target.oneof_decl[:]
    for old in ordered:
        target.oneof_decl.add(name=names[old])
    for each in target.field:
        if each.HasField("oneof_index"):
            each.oneof_index = place[each.oneof_index]


def _describe_field(
    field: FieldSpec, target: descriptor_pb2.DescriptorProto, package: str, names: dict[type[Any], str]
) -> None:
    path = f".{package}.{target.name}"
    made = target.field.add(name=field.name, number=field.number, label=_Proto.LABEL_OPTIONAL)
    if field.shape is Shape.MAP:
        entry_name = "".join(word.capitalize() for word in field.name.split("_")) + "Entry"
        entry = target.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Proto.LABEL_OPTIONAL, type=_TYPES[field.key or "string"])
        value = entry.field.add(name="value", number=2, label=_Proto.LABEL_OPTIONAL)
        made.label, made.type, made.type_name = (
            _Proto.LABEL_REPEATED,
            _Proto.TYPE_MESSAGE,
            f"{path}.{entry_name}",
        )
        made = value
    made.type = _TYPES[field.kind]
    if field.kind == "message":
        made.type_name = f".{package}.{names[field.python]}"
    elif field.kind == "enum":
        made.type_name = f"{path}.{_describe_enum(field, target)}"
    if field.shape is Shape.MANY:
        made.label = _Proto.LABEL_REPEATED
    elif field.oneof is not None:
        groups = [each.name for each in target.oneof_decl]
        if field.oneof not in groups:
            target.oneof_decl.add(name=field.oneof)
            groups.append(field.oneof)
        made.oneof_index = groups.index(field.oneof)
    elif field.presence and field.kind != "message":
        made.proto3_optional = True
        made.oneof_index = len(target.oneof_decl)
        target.oneof_decl.add(name=f"_{field.name}")


def _describe_enum(field: FieldSpec, target: descriptor_pb2.DescriptorProto) -> str:
    name = field.python.__name__
    if any(each.name == name for each in target.enum_type):
        return name
    prefix = "".join(f"_{letter}" if letter.isupper() else letter for letter in name).strip("_").upper()
    described = target.enum_type.add(name=name)
    if zero_of("enum", field.python) is None:
        described.value.add(name=f"{prefix}_UNSPECIFIED", number=0)
    members = {member.value: member.name for member in field.python}
    for number in sorted(members):
        described.value.add(name=f"{prefix}_{members[number]}", number=number)
    return name
