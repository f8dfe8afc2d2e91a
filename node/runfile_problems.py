"""What is wrong with a run file, in words that name the line, the key and the allowed values."""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from diloco.config import PEER_ID_PATTERN
from protocol.errors import CATALOGUE, Code, NodeError

MULTIADDR_PATTERN = (
    r"^/(ip4|ip6|dns|dns4|dns6)/[^/\s]+/tcp/[0-9]{1,5}(/[^\s]+)?/p2p/[1-9A-HJ-NP-Za-km-z]{40,64}$"
)

_PATTERNS = {
    r"^$|^[a-z0-9][a-z0-9-]{0,62}$": "a name: at most 63 lower-case letters, digits and dashes, or none",
    r"^[a-z0-9][a-z0-9-]{0,62}$": "at most 63 lower-case letters, digits and dashes, a dash not first",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$|^$": (
        "at most 63 letters, digits, dots, dashes and underscores, a letter or digit first"
    ),
}
"""What a pattern means, for those who do not read patterns."""


@dataclass(frozen=True)
class Allowed:
    """Goes into a field's `Annotated` to say in words what it takes, where its type does not."""

    words: str


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a run file.

    Attributes:
        code: CFG_UNKNOWN_KEY or CFG_BAD_VALUE.
        key: Dotted key.
        line: Its line in the file, counted from 1; None where the file does not have it.
        sentence: What is wrong, without the place and without the full stop.
        fix: What to do about it.
    """

    code: Code
    key: str
    line: int | None
    sentence: str
    fix: str

    def text(self, name: str) -> str:
        """The whole sentence, with the place in the file called `name`."""
        return f"{name}, line {self.line}: {self.sentence}." if self.line else f"{name}: {self.sentence}."


class RunFileError(NodeError):
    """A run file with at least one problem; the error's own code and sentence are those of the first."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name = name
        self.problems = tuple(problems)
        first = self.problems[0]
        more = f" ({len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        super().__init__(first.code, first.text(name) + more, fix=first.fix)


def problems_of(
    error: ValidationError, model: type[BaseModel], lines: Mapping[str, int]
) -> tuple[Problem, ...]:
    """All problems, in the order of the file, one per key.

    Args:
        error: What pydantic found.
        model: The model that it checked.
        lines: Line of each dotted key.
    """
    found: dict[str, Problem] = {}
    for each in error.errors(include_url=False):
        problem = _problem(each, model, lines)
        found.setdefault(problem.key or problem.sentence, problem)
    return tuple(sorted(found.values(), key=lambda problem: problem.line or 0))


def _problem(error: Any, model: type[BaseModel], lines: Mapping[str, int]) -> Problem:
    kind, path = error["type"], tuple(error["loc"])
    if kind == "extra_forbidden":
        return _unknown(tuple(str(part) for part in path), model, lines)
    owner, field, used = _resolve(model, path)
    key = ".".join(str(part) for part in path[:used])
    message = str(error.get("ctx", {}).get("error", error["msg"]))
    if field is None or _model_of(field) is not None:
        if kind != "value_error":
            sentence = f"`{key}` must be a section: write [{key}] and its keys below it" if key else message
            return Problem(Code.CFG_BAD_VALUE, key, lines.get(key), sentence, _fix(Code.CFG_BAD_VALUE))
        where, line = _place_in(message, key, owner, lines)
        return Problem(
            Code.CFG_BAD_VALUE,
            where,
            line,
            f"[{key}] {message}" if key else message,
            _fix(Code.CFG_BAD_VALUE),
        )
    shown = _shown(error["input"])
    item = "".join(f"[{part}]" for part in path[used:] if isinstance(part, int))
    sentence = f"`{key}{item}` must be {allowed_item(field) if item else allowed(field)}, not {shown}"
    if kind == "value_error" and not _same_meaning(message, shown):
        sentence += f": {message.rstrip('.')}"
    return Problem(Code.CFG_BAD_VALUE, key, lines.get(key), sentence, _fix(Code.CFG_BAD_VALUE))


def _unknown(path: tuple[str, ...], model: type[BaseModel], lines: Mapping[str, int]) -> Problem:
    key = ".".join(path)
    owner, _, used = _resolve(model, path[:-1])
    inside = ".".join(path[:used])
    near = _nearest(path[-1], inside, owner, model)
    hint = f"did you mean `{near}`?" if near else ""
    place = f"[{inside}] has" if inside else "a run file has"
    sentence = f"`{key}` is not a known key" + (f" - {hint}" if hint else "")
    known = f"{place} {', '.join(owner.model_fields)}"
    sentence = f"{sentence} ({known})" if hint else f"{sentence}: {known}"
    return Problem(Code.CFG_UNKNOWN_KEY, key, lines.get(key), sentence, _fix(Code.CFG_UNKNOWN_KEY))


def _nearest(name: str, inside: str, owner: type[BaseModel], model: type[BaseModel]) -> str | None:
    """The known key that was most likely meant: one of the same section, else one of another."""
    elsewhere = {
        key: f"{other}.{key}"
        for other, field in reversed(model.model_fields.items())
        if (section := _model_of(field)) is not None
        for key in section.model_fields
    }
    if name not in elsewhere:
        own = difflib.get_close_matches(name, owner.model_fields, n=1, cutoff=0.6)
        if own:
            return f"{inside}.{own[0]}" if inside else own[0]
    other = difflib.get_close_matches(name, elsewhere, n=1, cutoff=0.8)
    return elsewhere[other[0]] if other else None


def _resolve(model: type[BaseModel], path: Sequence[object]) -> tuple[type[BaseModel], FieldInfo | None, int]:
    """The model and field that a path leads to, and how many of its parts are keys."""
    field: FieldInfo | None = None
    used = 0
    for part in path:
        inner = _model_of(field) if field is not None else model
        if inner is None or part not in inner.model_fields:
            break
        model, field, used = inner, inner.model_fields[str(part)], used + 1
    if field is not None and (inner := _model_of(field)) is not None:
        model = inner
    return model, field, used


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _place_in(
    message: str, section: str, model: type[BaseModel], lines: Mapping[str, int]
) -> tuple[str, int | None]:
    """The first key that a sentence about several keys names and that the file gives; else the section."""
    for word in re.findall(r"[a-z_]+(?:\.[a-z_]+)?", message):
        key = f"{section}.{word}" if section and word in model.model_fields else word
        if "." in key and key in lines:
            return key, lines[key]
    return section, lines.get(section)


def _same_meaning(message: str, shown: str) -> bool:
    """Whether a parser's message only repeats that the value is not of the allowed form."""
    return message.startswith((shown, shown.replace('"', "'"))) or "such as" in message


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fix(code: Code) -> str:
    return CATALOGUE[code].fix


def allowed(field: FieldInfo) -> str:
    """What a field takes, in words, such as "a whole number from 1 to 31"."""
    return _words(field.annotation, tuple(field.metadata))


def allowed_item(field: FieldInfo) -> str:
    """What one item of a list field takes."""
    return _words(*_unwrap(get_args(field.annotation)[0]))


def _unwrap(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(kind) is Annotated:
        inner, *metadata = get_args(kind)
        kind, more = _unwrap(inner)
        return kind, (*more, *metadata)
    return kind, ()


def _words(kind: Any, metadata: tuple[Any, ...]) -> str:
    kind, inner = _unwrap(kind)
    metadata = (*inner, *metadata)
    for each in metadata:
        if isinstance(each, Allowed):
            return each.words
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_words(arg, metadata) for arg in args if arg is not NoneType)
    if origin is Literal:
        *most, last = (_shown(arg) for arg in args)
        return f"{', '.join(most)} or {last}" if most else last
    if origin is tuple:
        if args[-1] is Ellipsis:
            return f"a list, each item {_words(args[0], ())}"
        return f"a list of {len(args)}, each {_words(args[0], ())}"
    if origin is dict:
        return "a table"
    if kind is bool:
        return "true or false"
    if kind is timedelta:
        return 'a duration such as "5 s", "250 ms" or "2 min"'
    if kind in (int, float):
        return ("a whole number" if kind is int else "a number") + _bounds(metadata)
    pattern = next((each.pattern for each in _flattened(metadata) if getattr(each, "pattern", None)), None)
    if pattern == PEER_ID_PATTERN:
        return "a peer id that begins with 12D3KooW"
    if pattern == MULTIADDR_PATTERN:
        return 'an address such as "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooW..."'
    return "text" + (
        f" of {_PATTERNS.get(str(pattern), f'the form {pattern}')}" if pattern is not None else ""
    )


def _flattened(metadata: tuple[Any, ...]) -> list[Any]:
    flat: list[Any] = []
    for each in metadata:
        flat += each.metadata if isinstance(each, FieldInfo) else [each]
    return flat


def _bounds(metadata: tuple[Any, ...]) -> str:
    low = high = step = ""
    ends = {each.ge for each in _flattened(metadata) if isinstance(each, annotated_types.Ge)} & {
        each.le for each in _flattened(metadata) if isinstance(each, annotated_types.Le)
    }
    if ends:
        return f", {_number(ends.pop())}"
    for each in _flattened(metadata):
        match each:
            case annotated_types.Ge(ge):
                low = f" from {_number(ge)}"
            case annotated_types.Gt(gt):
                low = f" above {_number(gt)}"
            case annotated_types.Le(le):
                high = (
                    f" to {_number(le)}"
                    if low.startswith(" from")
                    else f" and at most {_number(le)}"
                    if low
                    else f" of at most {_number(le)}"
                )
            case annotated_types.Lt(lt):
                high = f" and below {_number(lt)}" if low else f" below {_number(lt)}"
            case annotated_types.MultipleOf(multiple):
                step = f", a multiple of {_number(multiple)}"
    return low + high + step


def _number(value: Any) -> str:
    if isinstance(value, int) and value > 10**12 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:,}".removesuffix(".0")
