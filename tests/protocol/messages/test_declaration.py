"""The class is the contract: what does not state its limits does not import."""

import copy
import dataclasses
import json
import pickle
import types
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from protocol import Asks, field, message, part, request, topic
from protocol.errors import Code, NodeError
from protocol.messages import REGISTRY, Plane, Role, describe, spec_of
from protocol.messages.describe import bounds
from protocol.messages.registry import Spec
from protocol.units import Bytes, Digest, PeerId, Rate

LIMITS: dict[str, Any] = {"version": 1, "max_bytes": "4 KiB", "rate": "1/s", "audience": "member"}


def report(**changes: Any) -> type[Any]:
    @message(**{"name": "acme.report", **LIMITS, **changes})
    class Report:
        """Temperatures of one node's accelerators."""

        celsius: tuple[float, ...] = field(1)
        driver: str = field(2, default="")

    return Report


def refused(declare: Callable[[], object]) -> str:
    with pytest.raises(NodeError) as caught:
        declare()
    assert caught.value.code is Code.WIRE_DECLARATION
    return caught.value.sentence


def test_a_message_is_an_immutable_value() -> None:
    cls = report()
    one, same = cls(celsius=[60.5, 61], driver="x"), cls((60.5, 61.0), "x")
    assert one == same
    assert hash(one) == hash(same)
    assert one.celsius == (60.5, 61.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.driver = "y"
    assert dataclasses.replace(one, driver="y").driver == "y"


def test_a_contract_can_be_read_from_the_class() -> None:
    spec: Spec = spec_of(report())
    assert (spec.name, spec.version, spec.role, spec.plane) == ("acme.report", 1, Role.MESSAGE, Plane.CONTROL)
    assert (spec.max_bytes, spec.rate, spec.audience) == (Bytes(4096), Rate.parse("1/s"), "member")
    assert spec.doc == "Temperatures of one node's accelerators."
    assert REGISTRY.find("acme.report") is spec


def test_a_request_names_its_reply_and_time_out_and_is_for_its_replys_audience() -> None:
    cls = report()

    @request("acme.ask-report", version=1, max_bytes="1 KiB", rate="10/s", timeout="5 s", replies=cls)
    class AskReport: ...

    spec = spec_of(AskReport)
    assert (spec.timeout, spec.replies, spec.stream) == (timedelta(seconds=5), cls, False)
    assert spec.audience == "member"
    assert AskReport() == AskReport()


@pytest.mark.parametrize("limit", ["version", "max_bytes", "rate", "audience"])
def test_a_message_without_a_limit_does_not_import(limit: str) -> None:
    with pytest.raises(TypeError, match=limit):
        message("acme.report", **{name: value for name, value in LIMITS.items() if name != limit})


@pytest.mark.parametrize("limit", ["version", "max_bytes", "rate", "timeout", "replies"])
def test_a_request_without_a_limit_does_not_import(limit: str) -> None:
    limits = {"version": 1, "max_bytes": "1 KiB", "rate": "1/s", "timeout": "1 s", "replies": report()}
    with pytest.raises(TypeError, match=limit):
        request("acme.ask", **{name: value for name, value in limits.items() if name != limit})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "report"},
        {"name": "Acme.Report"},
        {"name": "acme." + "x" * 70},
        {"name": "acme..report"},
        {"name": "3d.report"},
        {"version": 0},
        {"version": "1"},
        {"max_bytes": "4 blocks"},
        {"max_bytes": 0},
        {"max_bytes": "5 MiB"},
        {"max_bytes": "9 MiB", "plane": "bulk"},
        {"rate": "often"},
        {"audience": "friends"},
        {"audience": "role:"},
        {"plane": "fast"},
        {"reserved": (2,)},
        {"reserved": 2},
        {"reserved": "2"},
        {"reserved": (-1,)},
        {"version": True},
        {"max_bytes": None},
        {"max_bytes": True},
        {"rate": None},
        {"rate": 5},
        {"rate": "9" * 400 + "/s"},
        {"concurrency": True},
    ],
)
def test_a_limit_that_makes_no_sense_does_not_import(changes: dict[str, Any]) -> None:
    refused(lambda: report(**changes))


def test_a_name_is_given_once() -> None:
    report()
    assert "acme.report" in refused(report)


def test_a_message_declared_inside_isolation_is_forgotten() -> None:
    with REGISTRY.isolated():
        report()
    report()


class Upside(Enum):
    """Not numbers."""

    A = "a"


class Abroad(Enum):
    """A name that protobuf does not allow."""

    GRÖSSE = 0


class Plain:
    """Not a part."""


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (set, field(1)),
        (Plain, field(1)),
        (Upside, field(1)),
        (Abroad, field(1)),
        (tuple[int, str], field(1)),
        (tuple[tuple[int, ...], ...], field(1)),
        (dict[float, int], field(1)),
        (int | str, field(1)),
        (tuple[int, ...] | None, field(1)),
        (int, field(0)),
        (int, field(19_500)),
        (int, field(2**29)),
        (int, 3),
        (int, field(1, default="three")),
        (int, field(1, kind="string")),
        (str, field(1, kind="sint64")),
        (int, field(1, max_items=3)),
        (int, field("1")),  # type: ignore[arg-type]
        (int, field(True)),
        (tuple[int, ...], field(1, max_items=-1)),
        (tuple[int, ...], field(1, max_items="3")),  # type: ignore[arg-type]
        (int, field(1, max_bytes=3)),
        (tuple[int, ...], field(1, default=(1, 2))),
    ],
)
def test_a_field_that_cannot_travel_does_not_import(annotation: Any, value: Any) -> None:
    def declare() -> None:
        body = {"__annotations__": {"x": annotation}, "x": value}
        message("acme.bad", **LIMITS)(type("Bad", (), body))

    refused(declare)


def test_two_fields_with_one_number_do_not_import() -> None:
    body = {"__annotations__": {"x": int, "y": int}, "x": field(1), "y": field(1)}
    assert "number 1" in refused(lambda: message("acme.bad", **LIMITS)(type("Bad", (), body)))


@pytest.mark.parametrize("names", [("größe",), ("_x",), ("HasField",), ("a_b", "aB"), ("a_b", "a__b")])
def test_names_that_protobuf_does_not_allow_do_not_import(names: tuple[str, ...]) -> None:
    body = {
        "__annotations__": dict.fromkeys(names, int),
        **{name: field(at) for at, name in enumerate(names, 1)},
    }
    refused(lambda: message("acme.bad", **LIMITS)(type("Bad", (), body)))


def test_a_class_name_that_protobuf_does_not_allow_does_not_import() -> None:
    refused(lambda: message("acme.bad", **LIMITS)(type("Größe", (), {})))


def test_a_bound_that_is_no_size_does_not_import() -> None:
    assert "4 blocks" in refused(lambda: field(1, max_bytes="4 blocks"))


@pytest.mark.parametrize("replies", [Plain, None, "Plain"])
def test_a_reply_that_is_no_message_does_not_import(replies: Any) -> None:
    refused(
        lambda: request("a.b", version=1, max_bytes=1, rate="1/s", timeout="1 s", replies=replies)(
            type("A", (), {})
        )
    )


@part
class Card:
    """A part with one of everything that has a bound."""

    number: int = field(1, kind="uint32")
    offset: int = field(2, kind="sint64", default=0)
    label: str = field(3, max_bytes=4, default="")
    data: bytes = field(4, max_bytes="4 B", default=b"")
    digest: Digest = field(5, default=Digest(bytes(32)))
    peer: PeerId = field(6, default=PeerId(""))
    many: tuple[str, ...] = field(7, max_items=2, default=())
    notes: dict[str, int] = field(8, max_items=2, default={})
    flag: bool = field(9, default=False)
    ratio: float = field(10, default=0.0)
    half: float = field(11, kind="float", default=0.0)


@pytest.mark.parametrize(
    "values",
    [
        {"number": -1},
        {"number": 2**32},
        {"number": True},
        {"number": "1"},
        {"number": 1.0},
        {"offset": 2**63},
        {"label": "ÄÖÜ"},
        {"label": b"x"},
        {"label": "\ud800"},
        {"data": b"12345"},
        {"data": "text"},
        {"digest": bytes(31)},
        {"many": ("a", "b", "c")},
        {"many": "ab"},
        {"many": (1,)},
        {"notes": {"a": 1, "b": 2, "c": 3}},
        {"notes": {1: 1}},
        {"notes": {"a": -1}},
        {"notes": (("a", 1),)},
        {"flag": 1},
        {"ratio": "1"},
        {"ratio": True},
        {"ratio": 2**2000},
        {"half": 1e300},
    ],
)
def test_a_value_of_another_type_or_beyond_a_bound_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(NodeError) as caught:
        Card(**{"number": 1, **values})
    assert caught.value.code is Code.WIRE_INVALID
    assert caught.value.sentence.startswith("Card.")


def test_a_class_can_ask_more_of_its_values() -> None:
    @part
    class Range:
        low: int = field(1)
        high: int = field(2)

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low is above high")

    assert Range(1, 2).high == 2
    with pytest.raises(ValueError, match="above"):
        Range(2, 1)


def test_a_map_is_as_immutable_as_its_message() -> None:
    card = Card(1, notes={"a": 1})
    for change in (
        lambda: card.notes.__setitem__("b", 2),
        lambda: card.notes.update(b=2),
        lambda: card.notes.pop("a"),
        lambda: card.notes.clear(),
    ):
        with pytest.raises(TypeError):
            change()  # type: ignore[no-untyped-call]
    assert hash(card) == hash(Card(1, notes={"a": 1}))
    assert copy.deepcopy(card) == card
    assert pickle.loads(pickle.dumps(card.notes)) == {"a": 1}


def test_annotations_as_text_are_understood_inside_functions() -> None:
    @part
    class Inner:
        x: "int" = field(1)

    @part
    class Outer:
        inner: "Inner" = field(1)

    assert Outer(Inner(1)).inner.x == 1


def test_a_description_can_be_printed_as_json() -> None:
    described = describe(report())
    assert described["max_bytes"] == 4096
    assert described["fields"][0] == {
        "number": 1,
        "name": "celsius",
        "type": "repeated double",
        "required": True,
    }
    assert [each["type"] for each in describe(Card)["fields"]][7] == "map<string, uint64>"


def test_a_description_holds_what_bounds_a_field_and_every_part_once() -> None:
    class Mood(Enum):
        CALM = 0
        BUSY = 1

    @part
    class Hand:
        cards: tuple[Card, ...] = field(1, max_items=5)
        mood: Mood = field(2)
        best: Card | None = field(3, default=None, oneof="worth")

    @message("acme.game", **LIMITS)
    class Game:
        hands: dict[str, Hand] = field(1)
        top: Card = field(2)

    described = describe(Game)
    assert [each["name"] for each in described["parts"]] == ["Hand", "Card"]
    hand, card = (each["fields"] for each in described["parts"])
    assert [bounds(each) for each in hand] == ["5 items", "CALM = 0, BUSY = 1", "one of worth"]
    assert [bounds(each) for each in card][2:7] == ["4 bytes", "4 bytes", "32 bytes exactly", "", "2 items"]
    assert json.loads(json.dumps(described)) == described


def test_a_topic_is_published_by_whom_it_says_and_is_small() -> None:
    @topic("acme.news", version=2, max_bytes="64 KiB", rate="3/min", audience="role:validator")
    class News:
        text: str = field(1)

    spec = spec_of(News)
    assert (spec.role, spec.plane, spec.audience, spec.replies) == (
        Role.TOPIC,
        Plane.CONTROL,
        "role:validator",
        None,
    )
    refused(
        lambda: topic("acme.big", version=1, max_bytes="65 KiB", rate="1/s", audience="anyone")(
            type("B", (), {})
        )
    )


@pytest.mark.parametrize("limit", ["version", "max_bytes", "rate", "audience"])
def test_a_topic_without_a_limit_does_not_import(limit: str) -> None:
    with pytest.raises(TypeError, match=limit):
        topic("acme.news", **{name: value for name, value in LIMITS.items() if name != limit})


@pytest.mark.parametrize(
    ("stream", "asks", "answers"),
    [
        (False, False, False),
        (True, False, True),
        ("replies", False, True),
        ("requests", True, False),
        ("both", True, True),
    ],
)
def test_a_request_says_what_of_it_is_a_stream(stream: Any, asks: bool, answers: bool) -> None:
    cls = report()
    made = request("acme.ask", version=1, max_bytes=1, rate="1/s", timeout="1 s", replies=cls, stream=stream)(
        type("Ask", (), {})
    )
    assert (spec_of(made).asks_stream, spec_of(made).stream) == (asks, answers)


@pytest.mark.parametrize(
    "changes",
    [{"stream": "questions"}, {"concurrency": 0}, {"concurrency": 10**6}, {"timeout": "0 s"}, {"timeout": 5}],
)
def test_a_request_that_makes_no_sense_does_not_import(changes: dict[str, Any]) -> None:
    limits = {"version": 1, "max_bytes": 1, "rate": "1/s", "timeout": "1 s", "replies": report(), **changes}
    with pytest.raises(NodeError):
        request("acme.ask", **limits)(type("Ask", (), {}))  # type: ignore[arg-type]


def test_the_base_that_names_the_reply_has_to_agree_with_the_declaration() -> None:
    cls = report()
    other = report(name="acme.other")

    def declare(replies: type[Any]) -> None:
        request("acme.ask", version=1, max_bytes=1, rate="1/s", timeout="1 s", replies=replies)(
            types.new_class("Ask", (Asks[cls],))  # type: ignore[valid-type]
        )

    declare(cls)
    assert "acme.ask" in refused(lambda: declare(other))


@pytest.mark.parametrize(
    "declared",
    [
        {"x": (int, field(1, oneof="choice"))},
        {"x": (int | None, field(1, oneof="choice"))},
        {"x": (int | None, field(1, default=3, oneof="choice"))},
        {"x": (tuple[int, ...], field(1, default=(), oneof="choice"))},
        {"x": (int | None, field(1, default=None, oneof="Choice"))},
        {"x": (int | None, field(1, default=None, oneof="x"))},
    ],
)
def test_a_field_of_a_group_is_optional_and_the_group_has_a_name_of_its_own(declared: dict[str, Any]) -> None:
    body = {"__annotations__": {name: kind for name, (kind, _) in declared.items()}}
    body |= {name: value for name, (_, value) in declared.items()}
    refused(lambda: message("acme.bad", **LIMITS)(type("Bad", (), body)))
