"""A message's contract as plain values, for people and for tools."""

from dataclasses import MISSING
from typing import Any

from protocol.messages.fields import FieldSpec, Shape
from protocol.messages.registry import Role, spec_of


def describe(cls: type[Any]) -> dict[str, Any]:
    """The contract of a message class as values that JSON can hold.

    Returns:
        ``name``, ``role``, ``version``, ``max_bytes``, ``rate``, ``audience``, ``plane``, ``timeout`` (seconds),
        ``replies``, ``stream``, ``reserved``, ``doc`` and ``fields``, each with ``number``, ``name``, ``type`` and
        whether it is ``required``; a part has only ``name``, ``role``, ``doc`` and ``fields``.
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
            "reserved": sorted(spec.reserved),
        }
    if spec.role is Role.REQUEST and spec.timeout is not None and spec.replies is not None:
        described |= {
            "timeout": spec.timeout.total_seconds(),
            "replies": spec_of(spec.replies).name,
            "stream": spec.stream,
        }
    described["fields"] = [
        {
            "number": field.number,
            "name": field.name,
            "type": _type(field),
            "required": field.default is MISSING,
        }
        for field in spec.fields
    ]
    return described


def _type(field: FieldSpec) -> str:
    item = field.python.__name__ if field.kind in ("enum", "message") else field.kind
    if field.shape is Shape.MAP:
        return f"map<{field.key}, {item}>"
    return {Shape.MANY: f"repeated {item}", Shape.OPTIONAL: f"optional {item}"}.get(field.shape, item)
