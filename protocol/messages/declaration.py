"""The decorators that turn a plain class into a message: ``@message``, ``@request``, ``@topic``, ``@part``; ``field``.

A declared class is a frozen dataclass whose values are checked on construction. All limits are mandatory arguments,
so a message without a size, a rate or a time-out does not import.
"""

import dataclasses
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from protocol import limits
from protocol.messages.fields import (
    METADATA,
    SPEC,
    Wanted,
    check_groups,
    checked,
    declaration_error,
    is_plain_view,
    ordinary,
    read_field,
    whole,
)
from protocol.messages.registry import REGISTRY, Plane, Role, Spec, spec_of
from protocol.units import Bytes, Rate, duration

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*(\.[a-z][a-z0-9]*(-[a-z0-9]+)*)+")
_AUDIENCE = re.compile(r"anyone|member|operator|role:[a-z0-9-]+")
_UNDERSCORE = re.compile(r"_+(.?)")  # protobuf's name of a field in JSON
_GROUP = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


class Asks(Generic[R_co]):
    """Optional base of a request class that tells a type checker what the reply is: ``class AskX(Asks[X])``.

    Without it ``endpoint.request`` answers ``Any``. The decorator checks that it agrees with ``replies``.
    """


def field(
    number: int,
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    kind: str | None = None,
    max_items: int | None = None,
    max_bytes: str | int | None = None,
    oneof: str | None = None,
) -> Any:
    """One field of a message.

    Args:
        number: The protobuf field number; it never changes and is never used for anything else.
        default: What the field is when neither the caller nor the wire names it. A field that is added to a message
            in use needs one, or means zero (empty text, no items, false) when an older peer leaves it out.
        default_factory: Makes the default, for tests that need a fresh one.
        kind: The wire's number type where it is not the usual one: ``sint64``, ``fixed64``, ``uint32`` or ``sint32``
            instead of ``uint64`` for int, ``float`` instead of ``double`` for float.
        max_items: The most items of a tuple or map.
        max_bytes: The most bytes of one text or bytes value (``"4 KiB"``).
        oneof: Name of a group of fields of which at most one has a value; each is ``X | None`` with default None.

    Raises:
        NodeError: ``E-WIRE-001`` if ``max_bytes`` is no size.
    """
    if isinstance(default, list | dict):
        default_factory, default = (lambda value=default: value), dataclasses.MISSING
    try:
        bound = None if max_bytes is None else int(Bytes.parse(max_bytes))
    except ValueError as error:
        raise declaration_error(f"field({number}): {error}.") from error
    metadata = {METADATA: Wanted(number, kind, max_items, bound, oneof)}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(
    name: str,
    *,
    version: int,
    max_bytes: str | int,
    rate: str | Rate,
    audience: str,
    plane: str = "control",
    concurrency: int = limits.MAX_CALLS_PER_MESSAGE,
    reserved: tuple[int, ...] = (),
) -> Callable[[type[T]], type[T]]:
    """Declares a message: something told to a peer, or the reply to a request.

    Args:
        name: ``area.kebab-case``, unique in the process.
        version: Whole number from 1; see :class:`protocol.messages.registry.Spec`.
        max_bytes: The largest encoding, ``"4 KiB"``.
        rate: How often one peer may send it, ``"10/s"``.
        audience: Who may send it: ``anyone``, ``member``, ``operator`` or ``role:…``.
        plane: ``"control"`` (sealed in an envelope) or ``"bulk"`` (authenticated by its connection only).
        concurrency: How many calls of it a node handles at the same time, over all peers.
        reserved: Numbers of fields that were removed.

    Raises:
        NodeError: ``E-WIRE-001`` at import, naming what is wrong.
    """
    caller = _caller_names()

    def declare(cls: type[T]) -> type[T]:
        spec = _declare(cls, caller, Role.MESSAGE, name, version, max_bytes, rate, audience, plane, reserved)
        return _enter(spec, concurrency=concurrency)

    return declare


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def topic(
    name: str,
    *,
    version: int,
    max_bytes: str | int,
    rate: str | Rate,
    audience: str,
    concurrency: int = limits.MAX_CALLS_PER_MESSAGE,
    reserved: tuple[int, ...] = (),
) -> Callable[[type[T]], type[T]]:
    """Declares a topic: what is published once and reaches every node that subscribes, over any number of hops.

    Args:
        name: As in :func:`message`.
        version: As in :func:`message`.
        max_bytes: As in :func:`message`; at most 64 KiB, since every node passes it on.
        rate: How often one publisher may publish.
        audience: Who may publish.
        concurrency: As in :func:`message`.
        reserved: As in :func:`message`.

    Raises:
        NodeError: ``E-WIRE-001`` at import, naming what is wrong.
    """
    caller = _caller_names()

    def declare(cls: type[T]) -> type[T]:
        spec = _declare(
            cls, caller, Role.TOPIC, name, version, max_bytes, rate, audience, "control", reserved
        )
        return _enter(spec, concurrency=concurrency)

    return declare


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def request(
    name: str,
    *,
    version: int,
    max_bytes: str | int,
    rate: str | Rate,
    timeout: str | timedelta,
    replies: type[Any],
    audience: str | None = None,
    stream: bool | Literal["replies", "requests", "both"] = False,
    plane: str = "control",
    concurrency: int = limits.MAX_CALLS_PER_MESSAGE,
    reserved: tuple[int, ...] = (),
) -> Callable[[type[T]], type[T]]:
    """Declares a request: something asked of a peer, answered by ``replies`` or a stream of them.

    Args:
        name: As in :func:`message`.
        version: As in :func:`message`.
        max_bytes: As in :func:`message`.
        rate: As in :func:`message`; a stream of requests counts each, and those beyond the rate are read later.
        timeout: How long the whole answer may take; of a stream, how long one reply may, unless the caller says more.
        replies: The message class of the reply.
        audience: Who may ask; the audience of the reply's class unless given.
        stream: What is a stream: ``"replies"`` (or True), ``"requests"``, ``"both"``, or nothing.
        plane: As in :func:`message`; it decides for the replies too.
        concurrency: As in :func:`message`.
        reserved: As in :func:`message`.

    Raises:
        NodeError: ``E-WIRE-001`` at import, naming what is wrong.
    """
    caller = _caller_names()

    def declare(cls: type[T]) -> type[T]:
        if not isinstance(replies, type):
            raise declaration_error(f"{name}: replies is the class of the answer, not {replies!r}.")
        answer = spec_of(replies)
        if answer.role is not Role.MESSAGE:
            raise declaration_error(f"{name}: the reply {answer.name} has to be declared with @message.")
        asked = audience if audience is not None else answer.audience
        spec = _declare(cls, caller, Role.REQUEST, name, version, max_bytes, rate, asked, plane, reserved)
        if spec.plane is Plane.CONTROL and answer.max_bytes > limits.MAX_CONTROL:
            raise declaration_error(f'{name}: replies of {answer.max_bytes} need plane="bulk".')
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Asks and get_args(base) != (replies,):
                raise declaration_error(f"{name}: its base is {base}, but it replies {replies.__name__}.")
        try:
            limit = duration(timeout)
        except ValueError as error:
            raise declaration_error(f"{name}: {error}.") from error
        if limit <= timedelta():
            raise declaration_error(f"{name}: the time-out has to be longer than nothing.")
        if stream not in (False, True, "replies", "requests", "both"):
            raise declaration_error(f"{name}: stream is replies, requests or both, not {stream!r}.")
        return _enter(
            spec,
            timeout=limit,
            replies=replies,
            stream=stream in (True, "replies", "both"),
            asks_stream=stream in ("requests", "both"),
            concurrency=concurrency,
        )

    return declare


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def part(cls: type[T]) -> type[T]:
    """Declares a class that only occurs inside messages; their limits hold for it.

    Raises:
        NodeError: ``E-WIRE-001`` at import, naming what is wrong.
    """
    _declare(cls, _caller_names(), Role.PART, cls.__name__, 1, limits.MAX_BULK, None, "anyone", "control", ())
    return cls


def _caller_names() -> dict[str, Any]:
    """The names visible where the decorator is written, for classes inside functions with annotations as text."""
    return dict(sys._getframe(2).f_locals)


def _enter(spec: Spec, **more: Any) -> type[Any]:
    """Completes a contract and registers its class."""
    concurrency = more["concurrency"]
    if not whole(concurrency) or not 0 < concurrency <= limits.MAX_CALLS:
        raise declaration_error(
            f"{spec.name}: concurrency is a whole number from 1 to {limits.MAX_CALLS}, not {concurrency!r}."
        )
    spec = dataclasses.replace(spec, **more)
    setattr(spec.cls, SPEC, spec)
    REGISTRY.add(spec)
    return spec.cls


def _declare(
    cls: type[Any],
    caller: dict[str, Any],
    role: Role,
    name: str,
    version: int,
    max_bytes: str | int,
    rate: str | Rate | None,
    audience: str,
    plane: str,
    reserved: tuple[int, ...],
) -> Spec:
    if role is not Role.PART and (not _NAME.fullmatch(name) or len(name) > limits.MAX_NAME):
        raise declaration_error(
            f"{name!r} is no name: write area.kebab-case, at most {limits.MAX_NAME} letters."
        )
    if not whole(version) or version < 1:
        raise declaration_error(f"{name}: the version is a whole number from 1 on, not {version!r}.")
    if not _AUDIENCE.fullmatch(audience):
        raise declaration_error(
            f"{name}: the audience {audience!r} is none of anyone, member, operator, role:…."
        )
    if plane not in tuple(Plane):
        raise declaration_error(f"{name}: the plane {plane!r} is neither control nor bulk.")
    try:
        size = Bytes.parse(max_bytes)
        how_often = None if role is Role.PART else Rate.parse(rate)  # type: ignore[arg-type]
    except ValueError as error:
        raise declaration_error(f"{name}: {error}.") from error
    most = limits.MAX_CONTROL if plane == "control" and role is not Role.PART else limits.MAX_BULK
    if role is Role.TOPIC:
        most = limits.MAX_TOPIC
    if not 0 < size <= most:
        raise declaration_error(
            f"{name}: max_bytes is {size}; a {role} of the {plane} plane has 1 B to {most}."
        )
    if not cls.__name__.isascii():
        raise declaration_error(f"{name}: the class {cls.__name__} has a name that protobuf does not allow.")
    if not isinstance(reserved, tuple) or not all(whole(each) and each >= 1 for each in reserved):
        raise declaration_error(f"{name}: reserved is a tuple of the numbers of fields, not {reserved!r}.")
    _make_dataclass(cls, name)
    hints = _hints(cls, caller)
    fields = [read_field(cls.__name__, each.name, hints[each.name], each) for each in dataclasses.fields(cls)]
    numbers = [each.number for each in fields]
    keys = [_UNDERSCORE.sub(lambda found: found[1].upper(), each.name) for each in fields]
    if len(set(keys)) < len(keys):
        raise declaration_error(
            f"{name}: two fields differ in underscores only, which protobuf does not allow."
        )
    if len(fields) > limits.MAX_FIELDS:
        raise declaration_error(f"{name} has {len(fields)} fields, {limits.MAX_FIELDS} are allowed.")
    for each in fields:
        if numbers.count(each.number) > 1:
            raise declaration_error(f"{name}: two fields have the number {each.number}.")
        if each.number in reserved:
            raise declaration_error(f"{name}: the number {each.number} is reserved.")
        if each.oneof is not None and (not _GROUP.fullmatch(each.oneof) or each.oneof in hints):
            raise declaration_error(f"{name}: {each.oneof!r} cannot be the name of a group of fields.")
    spec = Spec(
        cls=cls,
        role=role,
        name=name,
        version=version,
        fields=tuple(sorted(fields, key=lambda each: each.number)),
        max_bytes=size,
        rate=how_often,
        audience=audience,
        plane=Plane(plane),
        timeout=None,
        replies=None,
        stream=False,
        asks_stream=False,
        concurrency=limits.MAX_CALLS_PER_MESSAGE,
        reserved=frozenset(reserved),
        doc=(cls.__doc__ or "").strip(),
    )
    setattr(cls, SPEC, spec)
    return spec


def _hints(cls: type[Any], caller: dict[str, Any]) -> dict[str, Any]:
    try:
        return get_type_hints(cls, localns=caller)
    except NameError as error:
        raise declaration_error(f"{cls.__name__}: {error}; a part is declared before its message.") from error


def _make_dataclass(cls: type[Any], name: str) -> None:
    """Makes the class a frozen dataclass whose values are checked on construction, before its own ``__post_init__``."""
    own: Callable[[Any], None] | None = vars(cls).get("__post_init__")

    quick: list[tuple[str, type[Any], Any, Any]] | None = None

    def check_values(self: Any) -> None:
        nonlocal quick
        held = self.__dict__
        if quick is None:
            quick = [(each.name, *ordinary(each)) for each in spec_of(type(self)).fields]
        for name, kind, low, high in quick:
            value = held[name]
            if kind is memoryview:
                if type(value) is bytes:
                    held[name] = memoryview(value)
                elif type(value) is not memoryview or not is_plain_view(value):
                    break
            elif type(value) is not kind or (low is not None and not low <= value <= high):
                break
        else:
            if own is not None:
                own(self)
            return
        spec = spec_of(type(self))
        for each in spec.fields:
            value = held[each.name]
            clean = checked(cls.__name__, each, value)
            if clean is not value:
                held[each.name] = clean
        if spec.groups:
            check_groups(cls.__name__, spec.groups, held)
        if own is not None:
            own(self)

    doc = cls.__doc__
    cls.__post_init__ = check_values
    cls.__own_check__ = own  # decoded values have the right types already; only this remains to be asked
    try:
        dataclasses.dataclass(frozen=True)(cls)
    except (TypeError, ValueError) as error:
        raise declaration_error(f"{name}: {error}.") from error
    cls.__doc__ = doc  # dataclass invents one from the signature, which says nothing on the wire
