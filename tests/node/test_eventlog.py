import asyncio
import errno
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import numpy
import pytest

from node import eventlog
from node.eventlog import Event, EventLog, Tail, follow, read
from protocol.errors import Code, NodeError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def log(path: Path, warnings: list[str]) -> Iterator[EventLog]:
    log = EventLog(path, clock=lambda: 12.5, warn=warnings.append)
    yield log
    log.close()


def kinds(path: Path) -> list[str]:
    return [event.kind for event in read(path)]


def test_each_event_is_one_line_with_schema_time_and_kind(log: EventLog, path: Path) -> None:
    log.emit("train.step", round=3, loss=2.5)
    assert json.loads(path.read_bytes()) == {
        "schema": 1,
        "t": 12.5,
        "kind": "train.step",
        "round": 3,
        "loss": 2.5,
    }
    (event,) = read(path)
    assert (event.t, event.kind, event["round"], event.get("none")) == (12.5, "train.step", 3, None)


def test_an_event_can_be_read_at_once(log: EventLog, path: Path) -> None:
    log.emit("one")
    assert kinds(path) == ["one"]


def test_only_the_owner_can_read_it(log: EventLog, path: Path) -> None:
    log.emit("one")
    assert path.stat().st_mode & 0o777 == 0o600


def test_any_value_can_be_logged(log: EventLog, path: Path) -> None:
    class Phase(StrEnum):
        REDUCE = "reduce"

    @dataclass
    class Pair:
        a: int
        b: bytes

    log.emit(
        "all", nan=math.nan, digest=b"\xab", wait=timedelta(seconds=2), phase=Phase.REDUCE, peers=("a",),
        path=Path("/x"), scalar=numpy.float32(0.5), array=numpy.zeros(3), pair=Pair(1, b"\x01"),
        text="ü\ud800", thing=object, table={1: {2}},
    )  # fmt: skip
    (event,) = read(path)
    assert event["nan"] is None
    assert event["digest"] == "ab"
    assert event["wait"] == 2.0
    assert event["phase"] == "reduce"
    assert event["peers"] == ["a"]
    assert event["path"] == "/x"
    assert event["scalar"] == 0.5
    assert event["pair"] == {"a": 1, "b": "01"}
    assert event["table"] == {"1": [2]}


def test_fields_cannot_take_the_place_of_time_or_schema(log: EventLog, path: Path) -> None:
    log.emit("one", t=99, schema=99)
    (event,) = read(path)
    assert event.t == 12.5


def test_a_last_line_that_was_cut_off_is_left_out_and_spoils_nothing(log: EventLog, path: Path) -> None:
    log.emit("whole")
    log.close()
    with path.open("ab") as file:
        file.write(b'{"schema":1,"t":1,"kind":"cu')
    assert kinds(path) == ["whole"]
    again = EventLog(path)
    again.emit("next")
    again.close()
    assert kinds(path) == ["whole", "next"]


@pytest.mark.parametrize(
    "garbage", [b"\x00\x00\n", b"[]\n", b"{}\n", b'{"schema":1,"t":"x","kind":"y"}\n', b"[" * 40_000 + b"\n"]
)
def test_lines_that_are_no_events_are_left_out(log: EventLog, path: Path, garbage: bytes) -> None:
    path.write_bytes(garbage)
    log.emit("one")
    assert kinds(path) == ["one"]


def test_a_log_of_another_version_is_refused(path: Path) -> None:
    path.write_text('{"schema":2,"t":1,"kind":"x"}\n')
    with pytest.raises(NodeError) as caught:
        list(read(path))
    assert caught.value.code == Code.STO_SCHEMA


def test_no_file_means_no_events(path: Path) -> None:
    assert kinds(path) == []


def test_a_full_disk_is_said_once_and_the_node_goes_on(
    log: EventLog, path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    room = [10, 0, 0]

    def full(descriptor: int, data: bytes) -> int:
        if not room:
            return real(descriptor, data)
        if left := room.pop(0):
            return real(descriptor, data[:left])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(eventlog.os, "write", full)
    for number in range(5):
        log.emit("one", number=number)
    assert [event["number"] for event in read(path)] == [3, 4]
    assert log.dropped == 3
    assert len(warnings) == 2
    assert "the node goes on" in warnings[0]
    assert "works again; 3 events were lost" in warnings[1]


def test_a_folder_that_is_gone_fails_nothing(tmp_path: Path, warnings: list[str]) -> None:
    log = EventLog(tmp_path / "none" / "events.jsonl", warn=warnings.append)
    log.emit("one")
    log.emit("two")
    assert len(warnings) == 1


def test_an_event_that_is_too_long_is_dropped(log: EventLog, path: Path, warnings: list[str]) -> None:
    log.emit("big", text="x" * eventlog.MAX_LINE)
    log.emit("small")
    assert kinds(path) == ["small"]
    assert log.dropped == 1


def test_after_close_nothing_is_written(log: EventLog, path: Path) -> None:
    log.emit("one")
    log.close()
    log.emit("two")
    assert kinds(path) == ["one"]


def test_sinks_get_each_event_and_a_broken_one_is_dropped(path: Path) -> None:
    got: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError

    log = EventLog(path, sinks=(broken, got.append))
    log.emit("one")
    log.emit("two")
    log.close()
    assert [event.kind for event in got] == ["one", "two"]


def test_a_tail_returns_each_event_once_and_no_half_lines(log: EventLog, path: Path) -> None:
    tail = Tail(path)
    assert tail.new() == []
    log.emit("one")
    assert [event.kind for event in tail.new()] == ["one"]
    with path.open("ab") as file:
        file.write(b'{"schema":1,"t":1,')
    assert tail.new() == []
    with path.open("ab") as file:
        file.write(b'"kind":"two"}\n')
    assert [event.kind for event in tail.new()] == ["two"]


def test_a_tail_can_begin_at_the_end(log: EventLog, path: Path) -> None:
    log.emit("old")
    tail = Tail(path, since_end=True)
    log.emit("new")
    assert [event.kind for event in tail.new()] == ["new"]


def test_a_tail_survives_lines_without_end(path: Path) -> None:
    tail = Tail(path)
    with path.open("ab") as file:
        for _ in range(3):
            file.write(b"x" * eventlog.MAX_LINE)
            file.flush()
            assert tail.new() == []
        file.write(b'\n{"schema":1,"t":1,"kind":"one"}\n')
    assert [event.kind for event in tail.new()] == ["one"]


def test_a_log_that_has_grown_is_begun_anew_and_read_as_one(path: Path) -> None:
    log = EventLog(path, max_bytes=480)
    tail = Tail(path)
    seen = []
    for number in range(8):
        log.emit("one", number=number, pad="x" * 40)
        if number % 3 == 0:
            seen += tail.new()
    log.close()
    seen += tail.new()
    assert path.with_name("events.jsonl.1").exists()
    assert [event["number"] for event in seen] == list(range(8))
    assert [event["number"] for event in read(path)] == list(range(8))
    assert path.stat().st_size <= 480


async def test_follow_waits_for_a_log_that_does_not_exist_yet(log: EventLog, path: Path) -> None:
    async def first_two() -> list[str]:
        found = []
        async for event in follow(path, interval=timedelta(milliseconds=1)):
            found.append(event.kind)
            if len(found) == 2:
                break
        return found

    task = asyncio.create_task(first_two())
    await asyncio.sleep(0)
    log.emit("one")
    log.emit("two")
    assert await task == ["one", "two"]
