"""What a node tells of its log: events of a few kinds, by number, waiting a moment for news."""

import asyncio
import json
from typing import Any

from node.eventlog import Event
from node.reporting import KEPT, MOST, MOST_BYTES, AskEvents, Events, Reporting
from protocol.errors import Code, NodeError
from protocol.testing import local_endpoints


def event(kind: str, t: float = 1.0, **fields: Any) -> Event:
    return Event(t, kind, fields)


def numbers(answer: Events) -> list[int]:
    return [told.sequence for told in answer.events]


def test_only_kinds_of_the_list_leave_the_node() -> None:
    reporting = Reporting(b"b")
    for kind in ("node.phase", "directory.ready", "peer.path", "acme.secret"):
        reporting.take(event(kind))
    assert [told.kind for told in reporting.since(b"", 0).events] == ["node.phase", "peer.path"]


def test_who_has_events_of_this_process_gets_those_after_and_who_has_others_gets_all() -> None:
    reporting = Reporting(b"b")
    for number in range(5):
        reporting.take(event("commit", round=number))
    assert numbers(reporting.since(b"b", 3)) == [4, 5]
    assert numbers(reporting.since(b"other", 3)) == [1, 2, 3, 4, 5]
    assert numbers(reporting.since(b"b", 0, limit=2)) == [1, 2]
    assert numbers(reporting.since(b"b", 99)) == [] and numbers(reporting.since(b"b", 0, limit=0)) == []


def test_what_is_kept_and_told_at_once_is_bounded() -> None:
    reporting = Reporting(b"b")
    for number in range(KEPT + 10):
        reporting.take(event("commit", round=number))
    answer = reporting.since(b"b", 0, limit=10**9)
    assert answer.first == 11 and len(answer.events) == MOST
    assert numbers(reporting.since(b"b", 5))[0] == 11, "what is gone is skipped, and `first` says so"


def test_of_training_steps_one_a_second_is_told() -> None:
    reporting = Reporting(b"b")
    for tenth in range(31):
        reporting.take(event("train.step", 100 + tenth / 10, step=tenth, loss=1.0))
    assert len(reporting.since(b"b", 0).events) == 4


def test_of_a_long_event_the_short_fields_are_told() -> None:
    reporting = Reporting(b"b")
    reporting.take(event("commit", round=7, roster=["x" * 60] * 200))
    (told,) = reporting.since(b"b", 0).events
    assert json.loads(told.fields) == {"round": 7} and len(told.fields) < MOST_BYTES


async def test_a_question_waits_for_news_and_is_answered_at_once_when_it_comes() -> None:
    reporting = Reporting(b"b")
    asked = asyncio.ensure_future(reporting.ask(AskEvents(boot=b"b")))
    while not reporting._news:
        await asyncio.sleep(0)
    await asyncio.to_thread(reporting.take, event("commit", round=1))  # the log may be written by any thread
    assert numbers(await asked) == [1] and not reporting._news
    assert numbers(await reporting.ask(AskEvents(boot=b"b", after=1, wait=False))) == []


async def test_a_coordinator_is_answered_and_nobody_else() -> None:
    def belongs(peer: str, audience: str) -> bool:
        return audience == "member"

    reporting = Reporting(b"b")
    reporting.take(event("commit", round=1))
    async with local_endpoints(2) as (coordinator, member):
        member.handle(reporting.on_ask)
        assert numbers(await coordinator.request(member.peer_id, AskEvents())) == [1]
    async with local_endpoints(2, audience=belongs) as (stranger, member):
        member.handle(reporting.on_ask)
        try:
            await stranger.request(member.peer_id, AskEvents())
        except NodeError as error:
            assert error.code == Code.NET_AUDIENCE
        else:
            raise AssertionError("a member without the role was answered")
