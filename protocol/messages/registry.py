"""Which message classes exist, by name."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from protocol.errors import Code, NodeError
from protocol.messages.fields import SPEC, FieldSpec, declaration_error
from protocol.units import Bytes, Rate


class Role(StrEnum):
    """What a message class is for."""

    MESSAGE = "message"
    REQUEST = "request"
    TOPIC = "topic"
    PART = "part"


class Plane(StrEnum):
    """Which connection carries a message: small signed ones never queue behind bulk bytes."""

    CONTROL = "control"
    BULK = "bulk"


@dataclass(frozen=True)
class Spec:
    """The contract of one message class.

    A part has no limits of its own: name, version and the rest have neutral values there.

    Attributes:
        cls: The class.
        role: Message, request, or a part of others.
        name: The name on the wire, ``area.kebab-case``; a part has its class name.
        version: The version that this node speaks. It also understands the one before and the one after, so a
            version may only add fields to the one before.
        fields: The fields in order of their numbers.
        max_bytes: The largest encoding.
        rate: How often one peer may send it.
        audience: Who may send it: ``anyone``, ``member``, ``operator`` or ``role:…``.
        plane: The connection that carries it.
        timeout: How long a request waits for its reply.
        replies: The class of a request's reply, or of each reply of a stream; None where a request has none.
        stream: Whether the reply is a stream.
        asks_stream: Whether the question is one: instances of the class, one after the other, in one call.
        concurrency: How many calls of it a node handles at the same time, over all peers.
        reserved: Field numbers that are never to be used again.
        doc: The class's docstring.
    """

    cls: type[Any]
    role: Role
    name: str
    version: int
    fields: tuple[FieldSpec, ...]
    max_bytes: Bytes
    rate: Rate | None
    audience: str
    plane: Plane
    timeout: timedelta | None
    replies: type[Any] | None
    stream: bool
    asks_stream: bool
    concurrency: int
    reserved: frozenset[int]
    doc: str

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The fields of each group of which at most one has a value."""
        names = dict.fromkeys(field.oneof for field in self.fields if field.oneof is not None)
        return {name: tuple(field.name for field in self.fields if field.oneof == name) for name in names}

    @cached_property
    def reply_name(self) -> str:
        """The name of a request's reply; empty where there is none."""
        return "" if self.replies is None else spec_of(self.replies).name

    def understands(self, version: int) -> bool:
        """Whether a message of that version can be read: this one, the one before, the one after."""
        return version >= 1 and abs(version - self.version) <= 1


def spec_of(cls: type[Any]) -> Spec:
    """The contract of a message class.

    Raises:
        NodeError: ``E-WIRE-001`` for a class that was not declared with this package's decorators.
    """
    spec = vars(cls).get(SPEC)
    if not isinstance(spec, Spec):
        raise declaration_error(
            f"{cls.__name__} is no message class: decorate it with @message, @request, @topic or @part."
        )
    return spec


class Registry:
    """Message classes by name. Each name is given once."""

    def __init__(self) -> None:
        self._specs: dict[str, Spec] = {}

    def add(self, spec: Spec) -> None:
        """Enters a class.

        Raises:
            NodeError: ``E-WIRE-001`` if the name is taken.
        """
        taken = self._specs.get(spec.name)
        if taken is not None:
            first = f"{taken.cls.__module__}.{taken.cls.__qualname__}"
            raise declaration_error(
                f"Two classes are named {spec.name!r}: {first} and {spec.cls.__qualname__}."
            )
        self._specs[spec.name] = spec

    def find(self, name: str) -> Spec:
        """The class of a name.

        Raises:
            NodeError: ``E-NET-006`` if this node has none.
        """
        spec = self._specs.get(name)
        if spec is None:
            raise NodeError(Code.NET_UNKNOWN_MESSAGE, f"This node knows no message {name[:64]!r}.")
        return spec

    def all(self) -> tuple[Spec, ...]:
        """Every class in order of its name."""
        return tuple(self._specs[name] for name in sorted(self._specs))

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Forgets at the end what was entered inside: for tests that declare messages of their own."""
        before = dict(self._specs)
        try:
            yield
        finally:
            self._specs = before


REGISTRY = Registry()
"""The process's registry, filled by the decorators at import."""
