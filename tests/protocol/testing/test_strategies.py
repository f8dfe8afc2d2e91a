"""Every message of the system is what its strategy draws, and comes back from the wire as it was."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.extensions import system_messages
from protocol import field, message, part
from protocol.messages import Role, decode, encode
from protocol.testing.strategies import any_message, messages


class Colour(Enum):
    RED = 1
    BLUE = 2


@part
class Point:
    x: float = field(1, kind="float")
    y: int = field(2, kind="sint32", default=-1)


@message("strategy-test.all", version=1, max_bytes="4 KiB", rate="1/s", audience="anyone")
class Everything:
    number: int = field(1)
    ratio: float = field(3)
    yes: bool = field(4)
    text: str = field(5, max_bytes=3)
    data: bytes = field(6)
    colour: Colour = field(7)
    point: Point = field(8)
    points: tuple[Point, ...] = field(9, max_items=2)
    by_name: dict[str, int] = field(10)
    by_number: dict[int, Point] = field(11)
    small: int = field(2, kind="uint32", default=7)
    maybe: str | None = field(12, default=None)
    left: int | None = field(13, default=None, oneof="side")
    right: str | None = field(14, default=None, oneof="side")


@message("strategy-test.odd", version=1, max_bytes="1 KiB", rate="1/s", audience="anyone")
class Odd:
    number: int = field(1)

    def __post_init__(self) -> None:
        if self.number % 2 == 0:
            raise ValueError("the number is even")


@given(messages(Everything))
def test_every_kind_of_field_is_drawn_within_its_bounds(drawn: Everything) -> None:
    assert decode(Everything, encode(drawn)) == drawn
    assert len(drawn.text.encode()) <= 3 and len(drawn.points) <= 2
    assert drawn.left is None or drawn.right is None


@given(messages(Odd, number=st.integers(0, 100)))
def test_a_rule_of_the_class_itself_is_kept(drawn: Odd) -> None:
    assert drawn.number % 2 == 1


@given(messages(Everything, text="abc", number=st.integers(5, 6)))
def test_fields_can_be_given(drawn: Everything) -> None:
    assert drawn.text == "abc" and drawn.number in (5, 6)


def own_messages() -> list[type[Any]]:
    return [spec.cls for spec in system_messages() if spec.role is not Role.PART]


def id_of(cls: Callable[..., Any]) -> str:
    return cls.__name__


@pytest.mark.parametrize("cls", own_messages(), ids=id_of)
def test_every_message_of_the_system_comes_back_from_the_wire(cls: type[Any]) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(messages(cls))
    def comes_back(drawn: Any) -> None:
        data = encode(drawn)
        again = decode(cls, data)
        assert again == drawn
        assert encode(again) == data
        assert hash(again) == hash(drawn)

    comes_back()


@settings(max_examples=30)
@given(any_message(within=lambda spec: spec.name.startswith("strategy-test.")))
def test_any_message_is_one_of_those_asked_for(drawn: Any) -> None:
    assert isinstance(drawn, Everything | Odd)
