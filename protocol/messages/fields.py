"""One field of a message: its number, kind and bounds, read from a class annotation; and the check of a value."""

import dataclasses
import re
import struct
import types
from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any, NewType, NoReturn, Union, get_args, get_origin

from protocol.errors import Code, NodeError
from protocol.units import DIGEST_BYTES, Bytes, Digest

METADATA = "protocol"
SPEC = "__protocol_spec__"
_RESERVED_BY_PROTOBUF = range(19_000, 20_000)
_INTEGER_RANGES = {
    "uint64": (0, 2**64 - 1),
    "sint64": (-(2**63), 2**63 - 1),
    "fixed64": (0, 2**64 - 1),
    "uint32": (0, 2**32 - 1),
    "sint32": (-(2**31), 2**31 - 1),
}
_ON_WIRE = re.compile(r"[a-z][A-Za-z0-9_]*")  # the runtime's own names begin with a capital
_FLOAT_KINDS = ("double", "float")


class Shape(StrEnum):
    """How many values a field holds."""

    ONE = "one"
    OPTIONAL = "optional"
    MANY = "many"
    MAP = "map"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What ``field(…)`` was given, before its annotation is known."""

    number: int
    kind: str | None
    max_items: int | None
    max_bytes: int | None
    oneof: str | None = None


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """A field as the wire sees it.

    Attributes:
        name: The attribute's name, also on the wire's schema.
        number: Its protobuf number.
        shape: One value, an optional one, a tuple, or a map.
        kind: ``bool``, ``string``, ``bytes``, ``enum``, ``message``, or one of protobuf's number types.
        python: The class of a value (of an item, of a map's value).
        key: Kind of a map's keys, ``string`` or ``uint64``; None otherwise.
        presence: Whether the wire tells "absent" from zero, which a default other than zero needs.
        default: What an absent field becomes; ``dataclasses.MISSING`` if the class has no default.
        max_items: The most items of a tuple or map.
        max_bytes: The most bytes of one text (UTF-8) or bytes value.
        exact_bytes: The only length that is allowed, for digests.
        oneof: The group of fields of which at most one has a value; None for a field by itself.
    """

    name: str
    number: int
    shape: Shape
    kind: str
    python: type[Any]
    key: str | None
    presence: bool
    default: Any
    max_items: int | None
    max_bytes: int | None
    exact_bytes: int | None
    oneof: str | None = None


class FrozenMap(dict[Any, Any]):
    """A dictionary that cannot change and can be hashed: what a message's map field holds."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a message's map cannot be changed; make a new message with dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        """Equal maps have equal hashes, whatever their order."""
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied like the plain dictionary it is made from."""
        return (FrozenMap, (dict(self),))


def declaration_error(sentence: str) -> NodeError:
    """The error of a message class that is not a valid contract."""
    return NodeError(Code.WIRE_DECLARATION, sentence)


def read_field(owner: str, name: str, annotation: Any, declared: dataclasses.Field[Any]) -> FieldSpec:
    """The specification of one attribute of a message class.

    Raises:
        NodeError: ``E-WIRE-001`` naming the class, the field and what is wrong with it.
    """
    where = f"{owner}.{name}"
    wanted = declared.metadata.get(METADATA)
    if not isinstance(wanted, Wanted):
        raise declaration_error(f"{where} has no number: write `{name}: … = field(1)`.")
    if not whole(wanted.number) or not 1 <= wanted.number < 2**29 or wanted.number in _RESERVED_BY_PROTOBUF:
        raise declaration_error(f"{where} has the number {wanted.number!r}, which protobuf does not allow.")
    if not _ON_WIRE.fullmatch(name):
        raise declaration_error(
            f"{where}: a field's name is a small letter from a to z, then letters, digits and underscores."
        )
    shape, item, key = _shape(where, annotation)
    while isinstance(item, NewType):
        if item is Digest:
            break
        item = item.__supertype__
    exact = DIGEST_BYTES if item is Digest else None
    python = bytes if item is Digest else item
    kind = _kind(where, python, wanted.kind)
    default = _default(declared)
    if shape in (Shape.MANY, Shape.MAP) and default is not dataclasses.MISSING and len(default) > 0:
        raise declaration_error(
            f"{where}: an absent tuple or map is empty on the wire, so the default is empty."
        )
    if wanted.max_items is not None and shape not in (Shape.MANY, Shape.MAP):
        raise declaration_error(f"{where} has max_items but is neither a tuple nor a map.")
    if wanted.max_items is not None and not (whole(wanted.max_items) and wanted.max_items >= 1):
        raise declaration_error(f"{where}: max_items is a whole number from 1 on, not {wanted.max_items!r}.")
    if wanted.max_bytes is not None and kind not in ("string", "bytes"):
        raise declaration_error(f"{where} has max_bytes but is neither text nor bytes.")
    if wanted.oneof is not None and (shape is not Shape.OPTIONAL or default is not None):
        raise declaration_error(
            f"{where} is one of {wanted.oneof!r}, so it is written `X | None`, default=None."
        )
    presence = shape is Shape.OPTIONAL
    if shape is Shape.ONE and kind != "message" and default is not dataclasses.MISSING:
        presence = bool(default != zero_of(kind, python))
    spec = FieldSpec(
        name,
        wanted.number,
        shape,
        kind,
        python,
        key,
        presence,
        default,
        wanted.max_items,
        wanted.max_bytes,
        exact,
        wanted.oneof,
    )
    if default is not dataclasses.MISSING:
        try:
            spec = dataclasses.replace(spec, default=checked(owner, spec, default))
        except NodeError as error:
            raise declaration_error(f"The default of {error.sentence}") from error
    return spec


def zero_of(kind: str, python: type[Any]) -> Any:
    """What an absent value of a kind means on the wire."""
    if kind == "enum":
        return next((member for member in python if member.value == 0), None)
    return {"bool": False, "string": "", "bytes": b"", "double": 0.0, "float": 0.0}.get(kind, 0)


def _default(declared: dataclasses.Field[Any]) -> Any:
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory()
    return declared.default


def _shape(where: str, annotation: Any) -> tuple[Shape, Any, str | None]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        rest = [each for each in arguments if each is not type(None)]
        if len(rest) != 1 or len(arguments) != 2 or get_origin(rest[0]) is not None:
            raise declaration_error(
                f"{where}: of unions only `X | None` with a single value X can be a field."
            )
        return Shape.OPTIONAL, rest[0], None
    if origin is tuple:
        if len(arguments) != 2 or arguments[1] is not ... or get_origin(arguments[0]) is not None:
            raise declaration_error(f"{where}: a repeated field is written `tuple[X, ...]` with a plain X.")
        return Shape.MANY, arguments[0], None
    if origin in (dict, Mapping):
        key = arguments[0]
        while isinstance(key, NewType):
            key = key.__supertype__
        if key not in (str, int) or get_origin(arguments[1]) is not None:
            raise declaration_error(
                f"{where}: a map is written `dict[str, X]` or `dict[int, X]` with a plain X."
            )
        return Shape.MAP, arguments[1], "string" if key is str else "uint64"
    return Shape.ONE, annotation, None


def _kind(where: str, python: Any, wanted: str | None) -> str:
    if not isinstance(python, type):
        raise declaration_error(f"{where} has the type {python!r}, which no message can carry.")
    if issubclass(python, bool):
        natural: tuple[str, ...] = ("bool",)
    elif issubclass(python, Enum):
        _check_enum(where, python)
        natural = ("enum",)
    elif python is int or python is Bytes:
        natural = tuple(_INTEGER_RANGES)
    elif python is float:
        natural = _FLOAT_KINDS
    elif python is str:
        natural = ("string",)
    elif python is bytes or python is memoryview:
        natural = ("bytes",)
    elif SPEC in vars(python):
        natural = ("message",)
    else:
        raise declaration_error(
            f"{where} has the type {python.__name__}: not a scalar, an Enum, or a @part class."
        )
    if wanted is not None and wanted not in natural:
        raise declaration_error(f"{where} cannot have the kind {wanted!r}; allowed: {', '.join(natural)}.")
    return wanted or natural[0]


def _check_enum(where: str, python: type[Enum]) -> None:
    values = [member.value for member in python]
    if not values or not all(isinstance(value, int) and 0 <= value < 2**31 for value in values):
        raise declaration_error(
            f"{where}: the values of {python.__name__} have to be whole numbers from 0 on."
        )
    if not all(name.isascii() for name in (python.__name__, *python.__members__)):
        raise declaration_error(f"{where}: the names of {python.__name__} have to be ASCII.")


# --- values -------------------------------------------------------------------------------------------------------


def checked(owner: str, spec: FieldSpec, value: Any) -> Any:
    """The value in its immutable form: tuples for lists, frozen maps for dictionaries, floats for whole numbers.

    Raises:
        NodeError: ``E-WIRE-004`` if the value has another type or breaks a bound.
    """
    if spec.shape is Shape.ONE:
        return _checked_item(owner, spec, value)
    if spec.shape is Shape.OPTIONAL:
        return None if value is None else _checked_item(owner, spec, value)
    if spec.shape is Shape.MANY:
        if not isinstance(value, list | tuple):
            raise _invalid(owner, spec, f"is a {type(value).__name__}, not a tuple")
        check_items(owner, spec, len(value))
        return tuple(_checked_item(owner, spec, item) for item in value)
    if not isinstance(value, Mapping):
        raise _invalid(owner, spec, f"is a {type(value).__name__}, not a mapping")
    check_items(owner, spec, len(value))
    for key in value:
        if not isinstance(key, str) if spec.key == "string" else not (whole(key) and 0 <= key < 2**64):
            raise _invalid(owner, spec, f"has the key {key!r:.40}")
    return FrozenMap({key: _checked_item(owner, spec, item) for key, item in value.items()})


def ordinary(spec: FieldSpec) -> tuple[type[Any], Any, Any]:
    """The class of a value that needs no further look, and its least and greatest value, None if any will do.

    Most values are of this kind, and telling so costs less than :func:`checked`. A class of no value where each
    has to be looked at.
    """
    if spec.shape is Shape.ONE:
        if spec.kind in _INTEGER_RANGES and spec.python is int:
            return int, *_INTEGER_RANGES[spec.kind]
        if spec.kind in ("bool", "double") or (
            spec.python is bytes and spec.max_bytes is spec.exact_bytes is None
        ):
            return spec.python, None, None
    return _NeverSeen, None, None


def is_plain_view(value: memoryview) -> bool:
    """Whether a view is of plain bytes that nobody can change."""
    return value.readonly and value.format == "B" and value.ndim == 1


class _NeverSeen:
    """The class of no value."""


def check_items(owner: str, spec: FieldSpec, count: int) -> None:
    """Refuses more items than the field allows."""
    if spec.max_items is not None and count > spec.max_items:
        raise _invalid(owner, spec, f"has {count} items, {spec.max_items} are allowed")


def check_length(owner: str, spec: FieldSpec, value: Any) -> None:
    """Refuses a text or bytes value of a length that the field does not allow."""
    if spec.exact_bytes is not None and len(value) != spec.exact_bytes:
        raise _invalid(owner, spec, f"has {len(value)} bytes instead of {spec.exact_bytes}")
    if spec.max_bytes is not None:
        size = len(value.encode()) if isinstance(value, str) else len(value)
        if size > spec.max_bytes:
            raise _invalid(owner, spec, f"has {size} bytes, {spec.max_bytes} are allowed")


def check_groups(owner: str, groups: Mapping[str, tuple[str, ...]], held: Mapping[str, Any]) -> None:
    """Refuses two values in one group of fields of which at most one has a value."""
    for group, names in groups.items():
        given = [name for name in names if held[name] is not None]
        if len(given) > 1:
            raise NodeError(Code.WIRE_INVALID, f"{owner}.{group} is {' and '.join(given)} at once.")


def whole(value: Any) -> bool:
    """Whether it is a whole number, which True is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _checked_item(owner: str, spec: FieldSpec, value: Any) -> Any:
    kind, python = spec.kind, spec.python
    if kind in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[kind]
        if not whole(value):
            raise _invalid(owner, spec, f"is a {type(value).__name__}, not an int")
        if not low <= value <= high:
            raise _invalid(owner, spec, f"is {value}, outside {kind}")
        return python(value)
    if kind in _FLOAT_KINDS and (isinstance(value, float) or whole(value)):
        try:
            number = float(value)
            struct.pack("<f" if kind == "float" else "<d", number)
            return number
        except OverflowError:
            raise _invalid(owner, spec, f"is outside {kind}") from None
    if kind == "bytes" and not isinstance(value, python):
        value = _as_bytes(python, value)
    if not isinstance(value, python):
        raise _invalid(owner, spec, f"is a {type(value).__name__}, not a {python.__name__}")
    if kind == "string":
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _invalid(owner, spec, "is not valid Unicode text") from None
    if python is memoryview and not is_plain_view(value):
        value = memoryview(bytes(value))
    if kind in ("string", "bytes"):
        check_length(owner, spec, value)
    return value


def _as_bytes(python: type[Any], value: Any) -> Any:
    """A bytes-like value in the class that the field has, which cannot change under it; others as they are."""
    if python is memoryview:
        if isinstance(value, bytearray):
            value = bytes(value)
        return memoryview(value) if isinstance(value, bytes) else value
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _invalid(owner: str, spec: FieldSpec, what: str) -> NodeError:
    return NodeError(Code.WIRE_INVALID, f"{owner}.{spec.name} {what}.")
