"""Messages as bytes: what goes out comes back, and what comes in is bounded before it is believed."""

import string
from enum import Enum
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from protocol import field, message, part
from protocol.errors import Code, NodeError
from protocol.messages import decode, encode
from protocol.messages.wire import descriptor_of
from protocol.units import Bytes, Digest

LIMITS: dict[str, Any] = {"version": 1, "max_bytes": "4 MiB", "rate": "1/s", "audience": "member"}


class Color(Enum):
    RED = 1
    BLUE = 2


class Level(Enum):
    LOW = 0
    HIGH = 7


@part
class Point:
    x: int = field(1, kind="sint64")
    label: str = field(2, default="here")


@message("wire-test.everything", **LIMITS)
class Everything:
    flag: bool = field(1)
    count: int = field(2)
    offset: int = field(3, kind="sint64")
    ratio: float = field(4)
    text: str = field(5)
    data: bytes = field(6)
    color: Color = field(7)
    level: Level = field(8)
    point: Point = field(9)
    points: tuple[Point, ...] = field(10)
    numbers: tuple[int, ...] = field(11)
    colors: tuple[Color, ...] = field(12)
    by_name: dict[str, int] = field(13)
    by_number: dict[int, Point] = field(14)
    maybe: int | None = field(15)
    perhaps: Point | None = field(16)
    tail: bytes = field(17, default=b"")
    size: Bytes = field(18, default=Bytes(7))
    tone: Color = field(19, default=Color.BLUE)
    fast: int = field(20, kind="fixed64", default=0)
    small: float = field(21, kind="float", default=0.5)
    digest: Digest | None = field(22, default=None)


def everything() -> st.SearchStrategy[Everything]:
    whole = st.integers(0, 2**64 - 1)
    signed = st.integers(-(2**63), 2**63 - 1)
    text = st.text(st.characters(codec="utf-8"), max_size=20)
    point = st.builds(Point, x=signed, label=text)
    # lengths around the one where a value is joined instead of passed through the runtime
    data = st.sampled_from([b"", b"x", bytes(16_383), bytes(16_384), bytes(range(256)) * 80])
    return st.builds(
        Everything,
        flag=st.booleans(),
        count=whole,
        offset=signed,
        ratio=st.floats(allow_nan=False),
        text=text,
        data=data,
        color=st.sampled_from(Color),
        level=st.sampled_from(Level),
        point=point,
        points=st.lists(point, max_size=3),
        numbers=st.lists(whole, max_size=3),
        colors=st.lists(st.sampled_from(Color), max_size=3),
        by_name=st.dictionaries(text, whole, max_size=3),
        by_number=st.dictionaries(whole, point, max_size=3),
        maybe=st.none() | whole,
        perhaps=st.none() | point,
        tail=data,
        size=whole.map(Bytes),
        tone=st.sampled_from(Color),
        fast=whole,
        digest=st.none() | st.binary(min_size=32, max_size=32).map(Digest),
    )


@given(everything())
def test_what_is_encoded_is_decoded(one: Everything) -> None:
    data = encode(one)
    back = decode(Everything, data)
    assert back == one
    assert hash(back) == hash(one)
    assert encode(back) == data
    assert type(back.size) is Bytes


@given(everything())
def test_the_bytes_are_those_of_the_official_runtime(one: Everything) -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_of(Everything))  # type: ignore[no-untyped-call]
    official = message_factory.GetMessageClass(pool.FindMessageTypeByName("wire_test.Everything"))  # type: ignore[no-untyped-call]
    parsed: Any = official.FromString(encode(one))
    assert parsed.data == one.data
    assert parsed.tail == one.tail
    assert parsed.SerializeToString(deterministic=True) == encode(one)


def test_the_bytes_of_a_known_message_never_change() -> None:
    @part
    class Golden:
        number: int = field(1)
        signed: int = field(2, kind="sint64")
        text: str = field(3)
        points: tuple[Point, ...] = field(4)
        names: dict[str, int] = field(5)

    golden = Golden(300, -2, "é", (Point(-1, ""),), {"b": 2, "a": 1})
    assert encode(golden).hex() == "08ac0210031a02c3a92204080112002a050a016110012a050a01621002"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_reasoned_refusal(data: bytes) -> None:
    try:
        decode(Everything, data)
    except NodeError as error:
        assert error.code in (Code.WIRE_MALFORMED, Code.WIRE_INVALID)


@given(everything(), st.data())
def test_a_cut_message_is_a_message_or_a_reasoned_refusal(one: Everything, draw: st.DataObject) -> None:
    data = encode(one)
    cut = draw.draw(st.integers(0, len(data)))
    try:
        decode(Everything, data[:cut])
    except NodeError as error:
        assert error.code in (Code.WIRE_MALFORMED, Code.WIRE_INVALID)


@message("wire-test.small", version=1, max_bytes=10, rate="1/s", audience="anyone")
class Small:
    data: bytes = field(1, default=b"")


def test_a_message_beyond_its_size_is_neither_sent_nor_read() -> None:
    assert len(encode(Small(bytes(8)))) == 10
    with pytest.raises(NodeError) as sending:
        encode(Small(bytes(9)))
    with pytest.raises(NodeError) as reading:
        decode(Small, bytes(11))
    assert sending.value.code is reading.value.code is Code.WIRE_TOO_LARGE


@part
class Bounded:
    many: tuple[int, ...] = field(1, max_items=2)
    text: str = field(2, max_bytes=3)
    digest: Digest = field(3)
    names: dict[str, int] = field(4, max_items=1)


@part
class Unbounded:
    many: tuple[int, ...] = field(1, default=())
    text: str = field(2, default="")
    digest: bytes = field(3, default=bytes(32))
    names: dict[str, int] = field(4, default={})


@pytest.mark.parametrize(
    "sent",
    [
        Unbounded(many=(1, 2, 3)),
        Unbounded(text="long"),
        Unbounded(text="éé"),
        Unbounded(digest=bytes(31)),
        Unbounded(names={"a": 1, "b": 2}),
    ],
)
def test_a_received_value_beyond_a_bound_is_refused(sent: Unbounded) -> None:
    with pytest.raises(NodeError) as caught:
        decode(Bounded, encode(sent))
    assert caught.value.code is Code.WIRE_INVALID


def test_a_missing_digest_or_part_is_refused() -> None:
    with pytest.raises(NodeError) as caught:
        decode(Bounded, b"")
    assert caught.value.code is Code.WIRE_INVALID

    @part
    class Holder:
        point: Point = field(1)

    with pytest.raises(NodeError, match="missing"):
        decode(Holder, b"")


def test_an_enum_value_that_nobody_declared_is_refused() -> None:
    @part
    class Colored:
        color: Color = field(1)

    assert decode(Colored, b"\x08\x02").color is Color.BLUE
    for data in (b"\x08\x09", b""):
        with pytest.raises(NodeError) as caught:
            decode(Colored, data)
        assert caught.value.code is Code.WIRE_INVALID


def _field(number: int, value: bytes) -> bytes:
    length = len(value)
    return bytes((number << 3 | 2, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14)) + value


@message("wire-test.large", version=1, max_bytes="1 MiB", rate="1/s", audience="anyone")
class Large:
    first: bytes = field(1, default=b"none")
    number: int = field(2, default=0)
    second: bytes | None = field(3, default=None)
    short: bytes = field(4, max_bytes=20_000, default=b"")


@given(
    st.permutations(
        [_field(1, bytes(17_000)), b"\x10\x05", _field(3, b"x" * 40_000), _field(9, bytes(30_000))]
    )
)
def test_large_values_are_found_wherever_they_stand(pieces: list[bytes]) -> None:
    large = decode(Large, b"".join(pieces))
    assert large == Large(bytes(17_000), 5, b"x" * 40_000)
    assert decode(Large, encode(large)) == large
    assert encode(large).endswith(_field(9, bytes(30_000)))


def test_of_a_large_value_that_comes_twice_the_last_counts_as_always_in_protobuf() -> None:
    data = _field(1, bytes(17_000)) + _field(1, b"x" * 20_000) + b"\x0a\x01y"
    assert decode(Large, data).first == b"y"


def test_a_large_value_beyond_its_bound_is_refused() -> None:
    with pytest.raises(NodeError) as caught:
        decode(Large, _field(4, bytes(20_001)))
    assert caught.value.code is Code.WIRE_INVALID


@pytest.mark.parametrize(
    "tail",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x10",
        b"\x10" + b"\xff" * 11,
        b"\x09abc",
        b"\x0c",
        b"\x00",
        b"\x07",
        b"\xff" * 9,
    ],
)
def test_damage_behind_a_large_value_is_found(tail: bytes) -> None:
    with pytest.raises(NodeError) as caught:
        decode(Large, _field(3, bytes(17_000)) + tail)
    assert caught.value.code is Code.WIRE_MALFORMED


def test_invalid_utf8_is_malformed() -> None:
    with pytest.raises(NodeError) as caught:
        decode(Unbounded, b"\x12\x02\xff\xfe")
    assert caught.value.code is Code.WIRE_MALFORMED


def test_a_received_message_is_asked_its_own_questions() -> None:
    @part
    class Even:
        number: int = field(1)

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    assert decode(Even, b"\x08\x02").number == 2
    with pytest.raises(NodeError, match="odd"):
        decode(Even, b"\x08\x03")


@message("wire-test.old", **LIMITS)
class Old:
    number: int = field(1)


@message("wire-test.new", **{**LIMITS, "version": 2})
class New:
    number: int = field(1)
    text: str = field(2, default="new")
    point: Point | None = field(3, default=None)
    fixed: int = field(4, kind="fixed64", default=0)
    real: float = field(5, kind="float", default=0.0)
    data: bytes = field(6, default=b"")


def test_an_older_node_passes_on_what_it_does_not_know() -> None:
    new = New(
        5, text="kept", point=Point(-3, string.ascii_letters), fixed=2**40, real=0.25, data=bytes(20_000)
    )
    old = decode(Old, encode(new))
    assert old.number == 5
    assert decode(New, encode(old)) == new


def test_a_newer_node_reads_what_an_older_one_left_out_as_the_default() -> None:
    assert decode(New, encode(Old(5))) == New(5)
    assert decode(New, encode(Old(5))).text == "new"


def test_an_unknown_group_survives() -> None:
    group = bytes([9 << 3 | 3, 1 << 3, 5, 9 << 3 | 4])
    assert encode(decode(Old, b"\x08\x05" + group)) == b"\x08\x05" + group


def test_deep_nesting_is_refused_and_harms_nobody() -> None:
    with pytest.raises(NodeError) as caught:
        decode(Old, bytes([9 << 3 | 3]) * 100_000)
    assert caught.value.code is Code.WIRE_MALFORMED


def test_names_of_parts_never_collide() -> None:
    def make(kind: Any) -> type[Any]:
        @part
        class Same:
            value: kind = field(1)

        return Same

    first, second = make(int), make(str)

    @part
    class Both:
        one: first = field(1)  # type: ignore[valid-type]
        two: second = field(2)  # type: ignore[valid-type]

    assert decode(Both, encode(Both(first(3), second("x")))) == Both(first(3), second("x"))


@message("wire-test.view", version=1, max_bytes="1 MiB", rate="1/s", audience="anyone", plane="bulk")
class View:
    index: int = field(1, kind="uint32")
    data: memoryview = field(2, max_bytes=40_000)
    last: bool = field(3, default=False)
    label: str = field(4, default="none")
    maybe: bytes | None = field(5, default=None)


def plain_frames() -> st.SearchStrategy[View]:
    sizes = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 40_000])
    return st.builds(
        View,
        index=st.integers(0, 2**32 - 1),
        data=st.binary(min_size=1, max_size=1).flatmap(lambda one: sizes.map(lambda size: one * size)),
        last=st.booleans(),
        label=st.text(st.characters(codec="utf-8"), max_size=200),
        maybe=st.none() | sizes.map(bytes),
    )


@given(plain_frames())
def test_frames_of_plain_fields_have_the_runtimes_bytes_too(one: View) -> None:
    data = encode(one)
    back = decode(View, data)
    assert back == one
    assert hash(back) == hash(one)
    assert isinstance(back.data, memoryview)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_of(View))  # type: ignore[no-untyped-call]
    official = message_factory.GetMessageClass(pool.FindMessageTypeByName("wire_test.View"))  # type: ignore[no-untyped-call]
    parsed: Any = official.FromString(data)
    assert parsed.SerializeToString(deterministic=True) == data
    assert (parsed.label, parsed.last, parsed.HasField("maybe")) == (
        one.label,
        one.last,
        one.maybe is not None,
    )


def test_a_view_cannot_change_under_its_message() -> None:
    source = bytearray(b"abc")
    view = View(1, source)  # type: ignore[arg-type]
    source[0] = 0
    assert view.data == b"abc"
    assert View(1, memoryview(bytearray(b"abc"))).data.readonly


@given(st.data())
def test_damage_in_a_plain_frame_is_judged_as_the_runtime_does(draw: st.DataObject) -> None:
    data = bytearray(encode(View(draw.draw(st.integers(0, 2**32 - 1)), bytes(17_000), maybe=bytes(17_000))))  # type: ignore[arg-type]
    place = draw.draw(st.sampled_from([0, 1, 2, 5, 6, 7, 8, 9, 17_007, 17_008, 17_009, 17_010, 17_011]))
    data[place] ^= 1 << draw.draw(st.integers(0, 7))
    shape = View.__dict__["__protocol_shape__"]
    fast, plain = _outcome(bytes(data)), shape.plain
    shape.plain = None
    try:
        assert _outcome(bytes(data)) == fast
    finally:
        shape.plain = plain


def _outcome(data: bytes) -> object:
    try:
        one = decode(View, data)
        return one, encode(one)
    except NodeError as error:
        return error.code


def test_of_a_group_of_fields_at_most_one_has_a_value() -> None:
    @part
    class Choice:
        number: int | None = field(1, default=None, oneof="answer")
        text: str | None = field(2, default=None, oneof="answer")
        point: Point | None = field(3, default=None, oneof="answer")
        other: int | None = field(4, default=None)

    for one in (Choice(), Choice(number=0), Choice(text="x", other=1), Choice(point=Point(1))):
        assert decode(Choice, encode(one)) == one
    with pytest.raises(NodeError, match="number and text at once"):
        Choice(number=1, text="x")
    both = encode(Choice(number=1)) + encode(Choice(text="x"))
    assert decode(Choice, both) == Choice(text="x")  # the last one counts, as always in protobuf
