"""A message's contract as plain values, for people and for tools."""

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from protocol.messages.fields import FieldSpec, Shape
from protocol.messages.registry import Role, Spec, spec_of


def describe(cls: type[Any]) -> dict[str, Any]:
    """The contract of a message class as values that JSON can hold.

    Returns:
        ``name``, ``role``, ``version``, ``max_bytes``, ``rate``, ``audience``, ``plane``, ``timeout`` (seconds),
        ``replies``, ``stream``, ``asks_stream``, ``concurrency``, ``reserved``, ``doc``, ``parts`` (each described
        likewise) and ``fields``, each with ``number``, ``name``, ``type``, whether it is ``required``, and what bounds
        it: ``max_items``, ``max_bytes``, ``exact_bytes``, ``oneof``, ``values`` (of an enum). A part has only
        ``name``, ``role``, ``doc`` and ``fields``.
    """
    spec = spec_of(cls)
    described: dict[str, Any] = {"name": spec.name, "role": str(spec.role), "doc": spec.doc}
    if spec.role is not Role.PART:
        described |= {
            "version": spec.version,
            "max_bytes": int(spec.max_bytes),
            "rate": str(spec.rate),
            "audience": spec.audience,
            "plane": str(spec.plane),
            "concurrency": spec.concurrency,
            "reserved": sorted(spec.reserved),
            "parts": [describe(part) for part in _parts(spec)],
        }
    if spec.role is Role.REQUEST and spec.timeout is not None and spec.replies is not None:
        described |= {
            "timeout": spec.timeout.total_seconds(),
            "replies": spec_of(spec.replies).name,
            "stream": spec.stream,
            "asks_stream": spec.asks_stream,
        }
    described["fields"] = [_described(field) for field in spec.fields]
    return described


def bounds(field: Mapping[str, Any]) -> str:
    """What bounds a field of a description, in words; empty if nothing does."""
    words = {
        "max_items": "{} items", "exact_bytes": "{} bytes exactly", "max_bytes": "{} bytes", "oneof": "one of {}"
    }  # fmt: skip
    found = [text.format(field[key]) for key, text in words.items() if key in field]
    return ", ".join(found + [f"{name} = {value}" for name, value in field.get("values", {}).items()])


def _described(field: FieldSpec) -> dict[str, Any]:
    given = {
        "max_items": field.max_items,
        "max_bytes": field.max_bytes,
        "exact_bytes": field.exact_bytes,
        "oneof": field.oneof,
        "values": {each.name: each.value for each in field.python} if field.kind == "enum" else None,
    }
    return {
        "number": field.number,
        "name": field.name,
        "type": _type(field),
        "required": field.default is MISSING,
        **{name: value for name, value in given.items() if value is not None},
    }


def _parts(spec: Spec) -> list[type[Any]]:
    """The parts that a class holds, and those that these hold, each once, in order of appearance."""
    found: dict[type[Any], None] = {}
    for field in spec.fields:
        if field.kind == "message":
            found |= dict.fromkeys((field.python, *_parts(spec_of(field.python))))
    return list(found)


def _type(field: FieldSpec) -> str:
    item = field.python.__name__ if field.kind in ("enum", "message") else field.kind
    if field.shape is Shape.MAP:
        return f"map<{field.key}, {item}>"
    return {Shape.MANY: f"repeated {item}", Shape.OPTIONAL: f"optional {item}"}.get(field.shape, item)
