"""Hypothesis strategies for messages, built from their declarations.

Every value that a strategy gives is a valid message of its class: within the bounds of each field and of the whole.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import reject
from hypothesis import strategies as st

from protocol.errors import NodeError
from protocol.messages.fields import FieldSpec, Shape
from protocol.messages.registry import REGISTRY, Role, Spec, spec_of
from protocol.messages.wire import encode

T = TypeVar("T")

_LONGEST = 64
"""Bytes of a text or bytes value where the field allows more: long ones cost time and find little."""
_MOST_ITEMS = 5
_RANGES = {
    "uint64": (0, 2**64 - 1),
    "fixed64": (0, 2**64 - 1),
    "sint64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "sint32": (-(2**31), 2**31 - 1),
}


def messages(cls: type[T], **fixed: Any) -> st.SearchStrategy[T]:
    """Any message of a class.

    Args:
        cls: A class declared with ``@message``, ``@request``, ``@topic`` or ``@part``.
        fixed: Strategies or values of fields that are to be something in particular.
    """
    spec = spec_of(cls)
    strategies = {field.name: _values(field) for field in spec.fields if field.name not in fixed}
    for name, value in fixed.items():
        strategies[name] = value if isinstance(value, st.SearchStrategy) else st.just(value)
    made = st.fixed_dictionaries(strategies).flatmap(lambda values: _one_of_each_group(spec, values))
    return made.map(_maker(cls))


def any_message(*, within: Callable[[Spec], bool] = lambda spec: True) -> st.SearchStrategy[Any]:
    """Any message of any registered class.

    Args:
        within: Which classes; all unless given.
    """
    classes = [spec.cls for spec in REGISTRY.all() if spec.role is not Role.PART and within(spec)]
    return st.sampled_from(classes).flatmap(messages)


def _one_of_each_group(spec: Spec, values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Of the fields of which at most one may have a value, drops all but one."""
    if not spec.groups:
        return st.just(values)

    def keep(chosen: tuple[str, ...]) -> dict[str, Any]:
        grouped = {name for names in spec.groups.values() for name in names}
        return {
            name: None if name in grouped and name not in chosen else value for name, value in values.items()
        }

    return st.tuples(*(st.sampled_from(names) for names in spec.groups.values())).map(keep)


def _maker(cls: type[T]) -> Callable[[dict[str, Any]], T]:
    part = spec_of(cls).role is Role.PART

    def make(values: dict[str, Any]) -> T:
        try:
            message = cls(**values)
            if not part:
                encode(message)
        except (NodeError, ValueError):  # a rule of the class's own, or too much for the whole
            reject()
        return message

    return make


def _values(field: FieldSpec) -> st.SearchStrategy[Any]:
    item = _items(field)
    most = _MOST_ITEMS if field.max_items is None else min(_MOST_ITEMS, field.max_items)
    if field.shape is Shape.OPTIONAL:
        return st.none() | item
    if field.shape is Shape.MANY:
        return st.lists(item, max_size=most).map(tuple)
    if field.shape is Shape.MAP:
        keys = st.text(_LETTERS, max_size=8) if field.key == "string" else st.integers(0, 2**64 - 1)
        return st.dictionaries(keys, item, max_size=most)
    if field.default is not dataclasses.MISSING:
        return st.just(field.default) | item
    return item


_LETTERS = st.characters(codec="utf-8")


def _items(field: FieldSpec) -> st.SearchStrategy[Any]:
    longest = _LONGEST if field.max_bytes is None else min(_LONGEST, field.max_bytes)
    if field.kind in _RANGES:
        return st.integers(*_RANGES[field.kind]).map(field.python)
    match field.kind:
        case "double":
            return st.floats(allow_nan=False)
        case "float":
            return st.floats(allow_nan=False, width=32)
        case "bool":
            return st.booleans()
        case "enum":
            return st.sampled_from(tuple(field.python.__members__.values()))
        case "message":
            return messages(field.python)
        case "string":
            return st.text(_LETTERS, max_size=longest).filter(lambda text: len(text.encode()) <= longest)
        case "bytes" if field.exact_bytes is not None:
            return st.binary(min_size=field.exact_bytes, max_size=field.exact_bytes)
        case "bytes":
            return st.binary(max_size=longest)
        case other:
            raise AssertionError(f"no strategy for a field of kind {other}")
