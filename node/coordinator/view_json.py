"""A view as JSON, and back; what a client of the API does with a delta."""

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import orjson

from node.coordinator.view import KEYED, RECENT, SINGLE, View


def plain(value: object) -> Any:
    """A part of a view in the types that JSON has."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}  # type: ignore[arg-type]


def encoded(value: object) -> bytes:
    """A part of a view, or what JSON has of itself, as JSON without spaces."""
    try:
        return orjson.dumps(value)
    except TypeError:  # half a character, or a number of more than 64 bits, that somebody sent
        return json.dumps(plain(value), separators=(",", ":")).encode()


def snapshot(view: View) -> dict[str, Any]:
    """The whole view in the types that JSON has."""
    found: dict[str, Any] = plain(view)
    return found


def restored(content: Mapping[str, Any]) -> View:
    """The reverse of ``snapshot``.

    Raises:
        ValueError: It is no view, or one of another version.
    """
    try:
        view: View = _made(View, content)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no view: {error}") from error
    return view


def _made(kind: Any, content: Any) -> Any:
    """A value of a view's types from its JSON."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _made(hints[name], value) for name, value in content.items() if name in hints})
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_made(inner[0], item) for item in content)
        return tuple(_made(each, item) for each, item in zip(inner, content, strict=True))
    if origin is Mapping:
        return {key: _made(inner[1], item) for key, item in content.items()}
    if origin is UnionType:
        return None if content is None else _made(inner[0], content)
    return content


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def applied(content: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Change a view's JSON in place by a delta's JSON: what a client of the API does.

    Args:
        content: As ``snapshot`` gives it.
        delta: ``topic``, ``key`` and ``value``.
    """
    topic, key, value = delta["topic"], delta["key"], delta["value"]
    if topic in SINGLE:
        content[topic] = value
    elif topic in KEYED:
        if value is None:
            content[topic].pop(key, None)
        else:
            content[topic][key] = value
    elif key:
        entries = content[topic]
        content[topic] = [value if str(entry["number"]) == key else entry for entry in entries]
    else:
        content[topic] = [*content[topic], value][-RECENT:]
