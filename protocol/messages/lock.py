"""What the wire promises, as a file that is committed; and which changes break the promise.

A node has to read what the version before its own sends, and to be read by it. So between two versions a message may
gain fields that can be left out, and nothing else: a number never changes its meaning, a bound never becomes narrower.
"""

from collections.abc import Iterable
from dataclasses import MISSING
from typing import Any

from protocol.messages.fields import FieldSpec, Shape
from protocol.messages.registry import Spec, spec_of

SCHEMA = 1

Lock = dict[str, Any]


def lock_of(specs: Iterable[Spec], retired: Iterable[str] = ()) -> Lock:
    """The promise that these messages make.

    Args:
        specs: All messages.
        retired: Names that were used once and may never be used again.
    """
    return {
        "schema": SCHEMA,
        "messages": {spec.name: _message(spec) for spec in sorted(specs, key=lambda spec: spec.name)},
        "retired": sorted(retired),
    }


def breaking(old: Lock, new: Lock) -> list[str]:
    """What changed in a way that an older node cannot live with, one sentence each; empty if nothing did."""
    found = []
    for name, was in old["messages"].items():
        now = new["messages"].get(name)
        if now is not None:
            found += _compare(name, was, now)
        elif name not in new["retired"]:
            found.append(
                f"{name} was removed. Keep it, or retire it with `intellect-node messages export --retire`."
            )
    found += [
        f"{name} is the name of a retired message."
        for name in new["messages"]
        if name in old["retired"] or name in new["retired"]
    ]
    return found


def additions(old: Lock, new: Lock) -> list[str]:
    """What is new and breaks nothing, one sentence each."""
    found = []
    for name, now in new["messages"].items():
        was = old["messages"].get(name)
        if was is None:
            found.append(f"{name} is new.")
            continue
        if now["version"] != was["version"]:
            found.append(f"{name} has version {now['version']} now.")
        for part, fields in now["fields"].items():
            before = was["fields"].get(part, {})
            found += [
                f"{name}: {part}.{field['name']} = {number} is new."
                for number, field in fields.items()
                if number not in before
            ]
    return found


def _message(spec: Spec) -> dict[str, Any]:
    parts: dict[str, Spec] = {}
    _collect(spec, parts)
    return {
        "role": str(spec.role),
        "version": spec.version,
        "plane": str(spec.plane),
        "max_bytes": int(spec.max_bytes),
        "replies": spec.reply_name,
        "stream": spec.stream,
        "asks_stream": spec.asks_stream,
        "class": spec.cls.__name__,
        "fields": {
            name: {str(field.number): _field(field) for field in part.fields} for name, part in parts.items()
        },
        "reserved": {name: sorted(part.reserved) for name, part in parts.items() if part.reserved},
    }


def _collect(spec: Spec, into: dict[str, Spec]) -> None:
    into[spec.cls.__name__] = spec
    for field in spec.fields:
        if field.kind == "message" and field.python.__name__ not in into:
            _collect(spec_of(field.python), into)


def _field(field: FieldSpec) -> dict[str, Any]:
    described: dict[str, Any] = {"name": field.name, "kind": field.kind, "shape": str(field.shape)}
    if field.kind == "message":
        described["part"] = field.python.__name__
        described["needed"] = field.shape is Shape.ONE and not _can_be_absent(field)
    elif field.exact_bytes is not None:
        described["needed"] = field.shape is Shape.ONE and not _can_be_absent(field)
    if field.kind == "enum":
        described["values"] = {member.name: member.value for member in field.python}
        described["needed"] = (
            field.shape is Shape.ONE
            and not _can_be_absent(field)
            and all(member.value != 0 for member in field.python)
        )
    for key in ("key", "max_items", "max_bytes", "exact_bytes", "oneof"):
        value = getattr(field, key)
        if value is not None:
            described[key] = value
    return described


def _can_be_absent(field: FieldSpec) -> bool:
    return field.default is not MISSING


def _compare(name: str, was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    found = []
    for key, what in (
        ("role", "its role"),
        ("plane", "its plane"),
        ("replies", "its reply"),
        ("stream", "whether its replies are a stream"),
        ("asks_stream", "whether its questions are a stream"),
    ):
        if was[key] != now[key]:
            found.append(f"{name} changed {what}: {was[key]!r} became {now[key]!r}.")
    if not was["version"] <= now["version"] <= was["version"] + 1:
        found.append(
            f"{name} went from version {was['version']} to {now['version']}; the next is {was['version'] + 1}."
        )
    if now["max_bytes"] < was["max_bytes"]:
        found.append(
            f"{name} allows {now['max_bytes']} bytes, fewer than the {was['max_bytes']} that may be sent."
        )
    renamed = {was["class"]: now["class"]}
    for part, fields in was["fields"].items():
        here = now["fields"].get(renamed.get(part, part))
        if here is None:
            found.append(f"{name}: the part {part} was removed or renamed.")
            continue
        reserved = now["reserved"].get(renamed.get(part, part), [])
        found += _compare_fields(f"{name}: {part}", fields, here, reserved)
        for number in was["reserved"].get(part, []):
            if str(number) in here or number not in reserved:
                found.append(f"{name}: {part} has to keep the number {number} reserved.")
    return found


def _compare_fields(where: str, was: dict[str, Any], now: dict[str, Any], reserved: list[int]) -> list[str]:
    found = []
    names = {field["name"]: number for number, field in now.items()}
    for number, field in was.items():
        after = now.get(number)
        if after is None:
            moved = names.get(field["name"])
            if moved is not None:
                found.append(f"{where}.{field['name']} was renumbered from {number} to {moved}.")
            elif int(number) not in reserved:
                found.append(f"{where}.{field['name']} was removed; name {number} in `reserved`.")
            continue
        found += _compare_field(f"{where}.{field['name']} = {number}", field, after)
    for number, field in now.items():
        if number not in was and field.get("needed"):
            found.append(
                f"{where}.{field['name']} = {number} is new and cannot be left out: give it a default."
            )
    return found


def _compare_field(where: str, was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    found = []
    if was["kind"] != now["kind"] or was.get("key") != now.get("key"):
        found.append(f"{where} was retyped from {was['kind']} to {now['kind']}.")
    single = ("one", "optional")
    if was["shape"] != now["shape"] and not (was["shape"] in single and now["shape"] in single):
        found.append(f"{where} was retyped: {was['shape']} became {now['shape']}.")
    if was.get("part") != now.get("part"):
        found.append(f"{where} was retyped from {was.get('part')} to {now.get('part')}.")
    if was.get("oneof") != now.get("oneof"):
        found.append(f"{where} went into another group of fields.")
    if now.get("needed") and not was.get("needed"):
        found.append(f"{where} may no longer be left out.")
    for bound in ("max_items", "max_bytes"):
        if bound in now and now[bound] < was.get(bound, float("inf")):
            found.append(f"{where} has a narrower {bound}: {was.get(bound, 'none')} became {now[bound]}.")
    if was.get("exact_bytes") != now.get("exact_bytes"):
        found.append(f"{where} has another length: {was.get('exact_bytes')} became {now.get('exact_bytes')}.")
    values = now.get("values", {})
    for name, value in was.get("values", {}).items():
        if value not in values.values():
            found.append(f"{where} lost the value {name} = {value}.")
        elif values.get(name, value) != value:
            found.append(f"{where}: the value {name} was renumbered from {value} to {values[name]}.")
    return found
