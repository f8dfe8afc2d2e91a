"""Messages as bytes: standard protobuf, with descriptors built from the classes by the official runtime.

Every message class gets a descriptor pool of its own with one file that holds it and all of its parts, so that no
name can collide with anything else in the process.
"""

from collections.abc import Callable
from dataclasses import MISSING
from operator import attrgetter
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protocol.errors import Code, NodeError
from protocol.messages.fields import FieldSpec, FrozenMap, Shape, check_groups, check_items, check_length
from protocol.messages.large import LARGE, PlainFrame, cut_large, varint
from protocol.messages.registry import Spec, spec_of
from protocol.messages.schema import describe_file
from protocol.units import Bytes

T = TypeVar("T")

_UNKNOWN = "__unknown_fields__"
_SHAPE = "__protocol_shape__"
_ALL_FIELDS = 2**29


def encode(message: Any) -> bytes:
    """The message as protobuf bytes, the same for the same message always; fields of a newer version are kept.

    Raises:
        NodeError: ``E-WIRE-002`` if it is larger than its class allows.
    """
    return _shape_of(type(message)).encode(message)


def decode(cls: type[T], data: bytes) -> T:
    """The message that ``data`` encodes. Its size is checked first, its bounds before the message exists.

    Raises:
        NodeError: ``E-WIRE-002`` too large, ``E-WIRE-003`` not protobuf, ``E-WIRE-004`` a value breaks a bound.
    """
    return decoder(cls)(data)


def encoder(cls: type[Any]) -> Callable[[Any], bytes]:
    """:func:`encode` for one class, for a loop."""
    return _shape_of(cls).encode


def decoder(cls: type[T]) -> Callable[[bytes], T]:
    """:func:`decode` for one class, for a loop."""
    return _shape_of(cls).decode


def _too_large(spec: Spec, size: int) -> NodeError:
    return NodeError(
        Code.WIRE_TOO_LARGE, f"A {spec.name} has {size} bytes, {int(spec.max_bytes)} are allowed."
    )


def runtime_class(cls: type[Any]) -> type[Message]:
    """The runtime's own class for a message class: for what is built and read too often to be checked twice."""
    return _shape_of(cls).factory


def descriptor_of(cls: type[Any]) -> descriptor_pb2.FileDescriptorProto:
    """The protobuf file that a message class stands for."""
    return describe_file(spec_of(cls))[0]


class _WireShape:
    """How one class maps to its protobuf class, both ways."""

    def __init__(self, spec: Spec, factory: type[Message], parts: "dict[type[Any], _WireShape]") -> None:
        self.spec = spec
        self.cls = spec.cls
        self.factory = factory
        self.max_bytes = int(spec.max_bytes)
        self.plain = PlainFrame(spec) if PlainFrame.fits(spec) else None
        self.groups = spec.groups
        self.writers: list[tuple[str, int, bool, Callable[[Any], Any] | None]] = []
        self.message_maps: list[tuple[str, int, _WireShape]] = []
        self.bytes_by_number: dict[int, str] = {}
        self.by_name = {field.name: field for field in spec.fields}
        self.readers: list[tuple[str, Callable[[Any], Any]]] = []
        self.own_check: Callable[[Any], None] | None = getattr(spec.cls, "__own_check__", None)
        self._asks = bool(spec.groups) or self.own_check is not None
        for field in spec.fields:
            inner = parts[field.python] if field.kind == "message" else None
            if field.shape is Shape.MAP and inner is not None:
                self.message_maps.append((field.name, field.number, inner))
            else:
                optional = field.shape is Shape.OPTIONAL
                self.writers.append((field.name, field.number, optional, _writer(field, inner)))
            if field.kind == "bytes" and field.shape in (Shape.ONE, Shape.OPTIONAL) and field.oneof is None:
                self.bytes_by_number[field.number] = field.name
            self.readers.append((field.name, _reader(spec.cls.__name__, field, inner)))

    def encode(self, message: Any) -> bytes:
        """See :func:`encode`."""
        data = self._serialize(message)
        if len(data) > self.max_bytes:
            raise _too_large(self.spec, len(data))
        return data

    def decode(self, data: bytes) -> Any:
        """See :func:`decode`."""
        size = len(data)
        if size > self.max_bytes:
            raise _too_large(self.spec, size)
        large = None
        if size >= LARGE:
            if self.plain is not None:
                held = self.plain.read(data)
                if held is not None:
                    return self._made(held)
            large = cut_large(data, self.bytes_by_number)
        try:
            wire = self.factory.FromString(data if large is None else large.rest)
        except (DecodeError, UnicodeDecodeError) as error:
            raise NodeError(
                Code.WIRE_MALFORMED, f"A {self.spec.name} of {size} bytes is not valid protobuf."
            ) from error
        return self.from_wire(wire, None if large is None else large.values)

    def _serialize(self, message: Any) -> bytes:
        """The message's bytes.

        The runtime copies a large value several times while its buffer grows, at a tenth of the speed of memory. So
        the head of a large bytes field is written here, its value is joined to what the runtime writes of the
        fields before and after it, and the bytes are the same as the runtime's own.
        """
        if not self.bytes_by_number:
            return self.to_wire(message).SerializeToString(deterministic=True)
        held = message.__dict__
        large = []
        for number, name in self.bytes_by_number.items():
            value = held[name]
            if value is not None and len(value) >= LARGE:
                large.append((name, number))
        if not large:
            return self.to_wire(message).SerializeToString(deterministic=True)
        if self.plain is not None:
            return self.plain.write(held, held.get(_UNKNOWN))
        pieces: list[bytes] = []
        low = 0
        for name, number in large:
            value = held[name]
            pieces.append(self.to_wire(message, low, number).SerializeToString(deterministic=True))
            pieces += (varint(number << 3 | 2), varint(len(value)), value)
            low = number + 1
        pieces.append(self.to_wire(message, low).SerializeToString(deterministic=True))
        pieces.append(held.get(_UNKNOWN, b""))
        return b"".join(pieces)

    def to_wire(self, message: Any, low: int = 0, high: int = _ALL_FIELDS) -> Message:
        """The runtime's object for the message, or for its fields with numbers from ``low`` to below ``high``."""
        values = {}
        held = message.__dict__
        for name, number, optional, convert in self.writers:
            value = held[name]
            if (optional and value is None) or not low <= number < high:
                continue
            values[name] = value if convert is None else convert(value)
        wire = self.factory(**values)
        for name, number, inner in self.message_maps:
            if low <= number < high:
                target = getattr(wire, name)
                for key, value in held[name].items():
                    target[key].CopyFrom(inner.to_wire(value))
        unknown = held.get(_UNKNOWN)
        if unknown and low == 0 and high == _ALL_FIELDS:
            wire.MergeFromString(unknown)
        return wire

    def from_wire(self, wire: Message, large: dict[str, bytes] | None = None) -> Any:
        """The message that the runtime's object holds, with the values that were cut out before."""
        message = object.__new__(self.spec.cls)
        held = message.__dict__
        for name, read in self.readers:
            held[name] = read(wire)
        for name, value in (large or {}).items():
            field = self.by_name[name]
            check_length(self.spec.cls.__name__, field, value)
            held[name] = memoryview(value) if field.python is memoryview else value
        unknown = UnknownFieldSet(wire)  # type: ignore[no-untyped-call]
        if len(unknown):
            held[_UNKNOWN] = _unknown_bytes(unknown)
        return self._asked(message)

    def _made(self, held: dict[str, Any]) -> Any:
        """The message with these values, which have been read and bounded."""
        message = object.__new__(self.cls)
        object.__setattr__(message, "__dict__", held)
        return self._asked(message) if self._asks else message

    def _asked(self, message: Any) -> Any:
        if self.groups:
            check_groups(self.spec.cls.__name__, self.groups, message.__dict__)
        if self.own_check is not None:
            try:
                self.own_check(message)
            except ValueError as error:
                raise NodeError(Code.WIRE_INVALID, f"A {self.spec.name} is not valid: {error}.") from error
        return message


def _writer(field: FieldSpec, inner: _WireShape | None) -> Callable[[Any], Any] | None:
    item: Callable[[Any], Any] | None = None
    if field.kind == "enum":
        item = _value_of
    elif inner is not None:
        item = inner.to_wire
    elif field.python is memoryview:
        item = bytes
    if item is None:
        return None
    convert = item
    if field.shape is Shape.MANY:
        return lambda value: [convert(each) for each in value]
    if field.shape is Shape.MAP:
        return lambda value: {key: convert(each) for key, each in value.items()}
    return convert


def _value_of(member: Any) -> int:
    return int(member.value)


def _reader(owner: str, field: FieldSpec, inner: _WireShape | None) -> Callable[[Any], Any]:
    """A function from a protobuf object to the value of one field, checked against the field's bounds."""
    name, item = field.name, _item_reader(owner, field, inner)
    if field.shape is Shape.MANY:

        def read_many(wire: Any) -> Any:
            values = getattr(wire, name)
            check_items(owner, field, len(values))
            return tuple(values) if item is None else tuple([item(each) for each in values])

        return read_many
    if field.shape is Shape.MAP:

        def read_map(wire: Any) -> Any:
            values = getattr(wire, name)
            check_items(owner, field, len(values))
            if item is None:
                return FrozenMap(values)
            return FrozenMap({key: item(values[key]) for key in values})

        return read_map
    if field.shape is Shape.OPTIONAL or field.presence or inner is not None:
        missing = None if field.shape is Shape.OPTIONAL else field.default

        def read_present(wire: Any) -> Any:
            if not wire.HasField(name):
                if inner is not None and field.shape is Shape.ONE and missing is MISSING:
                    raise NodeError(Code.WIRE_INVALID, f"{owner}.{name} is missing.")
                return missing
            value = getattr(wire, name)
            return value if item is None else item(value)

        return read_present
    if item is None:
        return attrgetter(name)
    return lambda wire: item(getattr(wire, name))


def _item_reader(owner: str, field: FieldSpec, inner: _WireShape | None) -> Callable[[Any], Any] | None:
    if inner is not None:
        return inner.from_wire
    if field.kind == "enum":
        members = {member.value: member for member in field.python}

        def read_enum(value: int) -> Any:
            member = members.get(value)
            if member is None:
                raise NodeError(
                    Code.WIRE_INVALID, f"{owner}.{field.name} is {value}, no {field.python.__name__}."
                )
            return member

        return read_enum
    if field.python is Bytes:
        return Bytes
    if field.max_bytes is not None or field.exact_bytes is not None or field.python is memoryview:
        view = field.python is memoryview

        def read_bounded(value: Any) -> Any:
            check_length(owner, field, value)
            return memoryview(value) if view else value

        return read_bounded
    return None


def _unknown_bytes(fields: Any) -> bytes:
    """Fields that this version does not know, as the bytes they came in."""
    parts = []
    for field in fields:
        tag = field.field_number << 3
        if field.wire_type == 0:
            parts.append(varint(tag) + varint(field.data))
        elif field.wire_type == 1:
            parts.append(varint(tag | 1) + int(field.data).to_bytes(8, "little"))
        elif field.wire_type == 2:
            parts.append(varint(tag | 2) + varint(len(field.data)) + bytes(field.data))
        elif field.wire_type == 3:
            parts.append(varint(tag | 3) + _unknown_bytes(field.data) + varint(tag | 4))
        else:
            parts.append(varint(tag | 5) + int(field.data).to_bytes(4, "little"))
    return b"".join(parts)


def _shape_of(cls: type[Any]) -> _WireShape:
    """A class's shape, built at its first use, so that importing many messages stays quick."""
    shape: _WireShape | None = cls.__dict__.get(_SHAPE)
    if shape is None:
        shape = _build_shape(cls)
        setattr(cls, _SHAPE, shape)
    return shape


def _build_shape(cls: type[Any]) -> _WireShape:
    file, names = describe_file(spec_of(cls))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    shapes: dict[type[Any], _WireShape] = {}
    for each, name in names.items():  # parts come before what holds them
        factory = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))  # type: ignore[no-untyped-call]
        shapes[each] = _WireShape(spec_of(each), factory, shapes)
    return shapes[cls]
