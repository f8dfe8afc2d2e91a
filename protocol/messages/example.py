"""One instance of any message class, always the same: for golden bytes, documentation and tests."""

import dataclasses
from typing import Any, TypeVar

from protocol.errors import NodeError
from protocol.messages.fields import FieldSpec, FrozenMap, Shape, declaration_error
from protocol.messages.registry import spec_of
from protocol.units import Bytes

T = TypeVar("T")

_FEW = 4
"""Bytes of an example's bytes value, where the field allows so many."""


def example(cls: type[T]) -> T:
    """An instance in which every field has a value that tells it from the others; of a group, the first field.

    A class whose own checks refuse such values has a classmethod ``example`` that makes one.

    Raises:
        NodeError: ``E-WIRE-001`` if the class refuses the values and has no ``example``.
    """
    own = getattr(cls, "example", None)
    if callable(own):
        made: T = own()
        return made
    spec = spec_of(cls)
    first = {names[0] for names in spec.groups.values()}
    values = {
        field.name: _value(field) if field.oneof is None or field.name in first else None
        for field in spec.fields
    }
    try:
        return cls(**values)
    except (NodeError, ValueError) as error:
        raise declaration_error(
            f"{spec.name} refuses example values ({error}); give the class a classmethod `example`."
        ) from error


def _value(field: FieldSpec) -> Any:
    if field.shape is Shape.MANY:
        return () if field.max_items == 0 else (_item(field),)
    if field.shape is Shape.MAP:
        if field.max_items == 0:
            return FrozenMap()
        return FrozenMap({("key" if field.key == "string" else field.number): _item(field)})
    return _item(field)


def _item(field: FieldSpec) -> Any:
    number = field.number
    if field.kind == "message":
        return example(field.python)
    if field.kind == "enum":
        members = list(field.python.__members__.values())
        return max(members, key=lambda member: member.value)
    if field.kind == "bool":
        return True
    if field.kind in ("double", "float"):
        return number + 0.5
    if field.kind == "string":
        return f"text {number}"[: _FEW + 4 if field.max_bytes is None else field.max_bytes]
    if field.kind == "bytes":
        size = _FEW if field.max_bytes is None else min(_FEW, field.max_bytes)
        return bytes((number & 0xFF,)) * (field.exact_bytes or size)
    if field.python is Bytes:
        return Bytes(1000 + number)
    return -number if field.kind in ("sint64", "sint32") else 1000 + number


def plain(message: Any) -> Any:
    """A message's values as JSON can hold them: bytes as hexadecimal text, enums by name, parts as objects."""
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        return {field.name: plain(getattr(message, field.name)) for field in dataclasses.fields(message)}
    if isinstance(message, tuple | list):
        return [plain(each) for each in message]
    if isinstance(message, dict):
        return {str(key): plain(value) for key, value in message.items()}
    if isinstance(message, bytes | memoryview):
        return bytes(message).hex()
    return message.name if hasattr(message, "name") and hasattr(message, "value") else message
