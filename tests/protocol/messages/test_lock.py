"""What the wire promises: which changes of a message older nodes can live with, and which they cannot."""

import dataclasses
import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from protocol import field, message, part, request, topic
from protocol.errors import Code, NodeError
from protocol.messages import REGISTRY, spec_of
from protocol.messages.exporting import compare, export, read_golden, read_lock
from protocol.messages.lock import additions, breaking, lock_of
from protocol.messages.registry import Spec
from protocol.units import Digest

LIMITS: dict[str, Any] = {"version": 1, "max_bytes": "4 KiB", "rate": "1/s", "audience": "member"}


class Mood(Enum):
    CALM = 0
    BUSY = 1


@part
class Place:
    x: int = field(1)
    y: int = field(2, default=0)


def state(fields: dict[str, Any], types: dict[str, Any], **changes: Any) -> Spec:
    """A message of these fields, registered nowhere else."""
    needed = [name for name in fields if _needed(fields[name])]
    ordered = {name: types[name] for name in [*needed, *(name for name in fields if name not in needed)]}
    with REGISTRY.isolated():
        made = type("State", (), {"__annotations__": ordered, **fields})
        return spec_of(message("acme.state", **{**LIMITS, **changes})(made))


def _needed(declared: Any) -> bool:
    return declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING


def before() -> Spec:
    return state(*_before())


def _before() -> tuple[dict[str, Any], dict[str, Any]]:
    fields = {
        "count": field(1),
        "text": field(2, default="", max_bytes=64),
        "place": field(3),
        "many": field(4, default=(), max_items=8),
        "mood": field(5, default=Mood.CALM),
        "a": field(6, default=None, oneof="choice"),
        "b": field(7, default=None, oneof="choice"),
        "names": field(8, default={}),
    }
    types = {
        "count": int,
        "text": str,
        "place": Place,
        "many": tuple[int, ...],
        "mood": Mood,
        "a": int | None,
        "b": str | None,
        "names": dict[str, int],
    }
    return fields, types


def changed(change: Callable[[dict[str, Any], dict[str, Any]], object], **limits: Any) -> list[str]:
    fields, types = _before()
    change(fields, types)
    return breaking(lock_of([before()]), lock_of([state(fields, types, **limits)]))


def put(name: str, kind: Any, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(fields: dict[str, Any], types: dict[str, Any]) -> None:
        fields[name], types[name] = value, kind

    return change


def drop(name: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(fields: dict[str, Any], types: dict[str, Any]) -> None:
        del fields[name], types[name]

    return change


def nothing(fields: dict[str, Any], types: dict[str, Any]) -> None: ...


class Moods(Enum):
    CALM = 0
    BUSY = 2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (put("count", int, field(9)), "renumbered"),
        (put("count", str, field(1)), "retyped"),
        (put("count", int, field(1, kind="sint64")), "retyped"),
        (put("count", tuple[int, ...], field(1)), "retyped"),
        (drop("text"), "reserved"),
        (put("text", str, field(2, default="", max_bytes=63)), "narrower"),
        (put("many", tuple[int, ...], field(4, default=(), max_items=7)), "narrower"),
        (put("count", int | None, field(1, default=None, oneof="choice")), "group"),
        (put("mood", Moods, field(5, default=Moods.CALM)), "lost the value"),
        (put("place", Digest, field(3)), "retyped"),
        (put("names", dict[int, int], field(8, default={})), "retyped"),
        (put("other", Place, field(9)), "cannot be left out"),
        (put("other", Digest, field(9)), "cannot be left out"),
    ],
)
def test_a_change_that_older_nodes_cannot_live_with_is_named(change: Any, word: str) -> None:
    found = changed(change)
    assert any(word in sentence for sentence in found), found


@pytest.mark.parametrize(
    "change",
    [
        nothing,
        put("more", int, field(9, default=0)),
        put("more", Place | None, field(9, default=None)),
        put("more", Digest, field(9, default=Digest(bytes(32)))),
        put("count", int | None, field(1, default=None)),
        put("text", str, field(2, default="", max_bytes=65)),
        put("text", str, field(2, default="")),
    ],
)
def test_a_field_that_can_be_left_out_and_a_wider_bound_break_nothing(change: Any) -> None:
    assert changed(change) == []


def test_a_removed_field_breaks_nothing_where_its_number_is_reserved_for_ever() -> None:
    assert changed(drop("text"), reserved=(2,)) == []
    fields, types = _before()
    del fields["text"], types["text"]
    with_reserve, without = state(fields, types, reserved=(2,)), state(fields, types)
    assert "reserved" in breaking(lock_of([with_reserve]), lock_of([without]))[0]


@pytest.mark.parametrize("limits", [{"max_bytes": "2 KiB"}, {"plane": "bulk"}, {"version": 3}])
def test_narrower_limits_and_another_plane_break_the_wire(limits: dict[str, Any]) -> None:
    assert len(changed(nothing, **limits)) == 1


def test_an_older_version_and_another_role_or_reply_break_the_wire() -> None:
    new = dataclasses.replace(before(), version=2)
    assert breaking(lock_of([before()]), lock_of([new])) == []
    assert breaking(lock_of([new]), lock_of([before()])) != []

    def answer(name: str) -> type[Any]:
        return message(name, **LIMITS)(type("Answer", (), {"__annotations__": {}}))

    def ask(replies: type[Any], **more: Any) -> Spec:
        with REGISTRY.isolated():
            cls = type("Ask", (), {"__annotations__": {}})
            made = request(
                "acme.ask", version=1, max_bytes=9, rate="1/s", timeout="1 s", replies=replies, **more
            )
            return spec_of(made(cls))

    one, other = answer("acme.one"), answer("acme.other")
    assert len(breaking(lock_of([ask(one)]), lock_of([ask(other)]))) == 1
    assert len(breaking(lock_of([ask(one)]), lock_of([ask(one, stream="replies")]))) == 1
    assert len(breaking(lock_of([ask(one)]), lock_of([ask(one, stream="requests")]))) == 1


def test_a_change_inside_a_part_is_found() -> None:
    def holder(kind: Any) -> Spec:
        made = part(type("Inner", (), {"__annotations__": {"x": kind}, "x": field(1)}))
        return state({"inner": field(1)}, {"inner": made})

    (sentence,) = breaking(lock_of([holder(int)]), lock_of([holder(str)]))
    assert sentence == "acme.state: Inner.x = 1 was retyped from uint64 to string."


def test_a_message_may_only_go_when_it_is_retired_and_its_name_never_comes_back() -> None:
    old = lock_of([before()])
    assert breaking(old, lock_of([])) != []
    gone = lock_of([], retired=["acme.state"])
    assert breaking(old, gone) == []
    assert breaking(gone, lock_of([before()], retired=["acme.state"])) != []


def test_what_is_new_is_named_too() -> None:
    fields, types = _before()
    put("more", int, field(9, default=0))(fields, types)
    new = state(fields, types, version=2)
    assert additions(lock_of([before()]), lock_of([new])) == [
        "acme.state has version 2 now.",
        "acme.state: State.more = 9 is new.",
    ]
    assert additions(lock_of([]), lock_of([new])) == ["acme.state is new."]


def test_an_export_writes_what_changed_and_refuses_what_breaks(tmp_path: Path) -> None:
    first = export(tmp_path, [before()])
    assert {path.name for path in first} == {"acme.proto", "lock.json", "golden.json"}
    assert export(tmp_path, [before()]) == ()
    fields, types = _before()
    put("count", str, field(1))(fields, types)
    bad = state(fields, types)
    assert len(compare(tmp_path, [bad]).breaking) == 1
    with pytest.raises(NodeError) as caught:
        export(tmp_path, [bad])
    assert caught.value.code is Code.WIRE_BREAKING
    assert compare(tmp_path, [before()]) == type(compare(tmp_path, [before()]))((), ())


def test_golden_bytes_of_older_versions_are_kept(tmp_path: Path) -> None:
    export(tmp_path, [before()])
    fields, types = _before()
    put("more", int, field(9, default=0))(fields, types)
    export(tmp_path, [state(fields, types, version=2)])
    versions = read_golden(tmp_path)["acme.state"]
    assert set(versions) == {"1", "2"}
    assert versions["2"]["value"]["more"] == 1009
    assert "more" not in versions["1"]["value"]


def test_a_retired_messages_files_go(tmp_path: Path) -> None:
    export(tmp_path, [before()])
    changed = {path.name for path in export(tmp_path, [], retire=["acme.state"])}
    assert "acme.proto" in changed
    assert not (tmp_path / "acme.proto").exists()
    assert read_lock(tmp_path)["retired"] == ["acme.state"]


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 99, "messages": {}}'])
def test_a_damaged_lock_is_told_from_none(tmp_path: Path, text: str) -> None:
    assert read_lock(tmp_path)["messages"] == {}
    (tmp_path / "lock.json").write_text(text)
    with pytest.raises(NodeError) as caught:
        read_lock(tmp_path)
    assert caught.value.code is Code.STO_CORRUPT


def test_a_lock_is_readable_text() -> None:
    @topic("acme.news", version=1, max_bytes="1 KiB", rate="1/s", audience="anyone")
    class News:
        text: str = field(1)

    described = lock_of([spec_of(News)])["messages"]["acme.news"]
    assert json.loads(json.dumps(described)) == described
    assert described["fields"]["News"]["1"] == {"name": "text", "kind": "string", "shape": "one"}
