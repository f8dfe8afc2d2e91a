"""Nothing is said before the promise that it rests on is on disk; what had to wait is said later."""

import pytest

from diloco.member.promising import Promising
from diloco.rounds.events import Persist, Statement
from diloco.rounds.statements import Pass, Ready, Vote
from protocol.errors import Code, NodeError


class Desk:
    """A disk that may be full, and what was written and said, in order."""

    def __init__(self) -> None:
        self.full = False
        self.did: list[object] = []
        self.refused: list[str] = []
        self.promising = Promising(self.save, self.did.append, lambda error: self.refused.append(error.code))

    def save(self, promise: Persist) -> None:
        if self.full:
            raise NodeError(Code.STO_FULL, "The disk is full.")
        self.did.append(promise)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def promise(attempt: int, round_number: int = 0, voted: int = 0) -> Persist:
    return Persist(0, round_number, attempt, voted, b"", b"")


def ready(attempt: int, round_number: int = 0) -> Statement:
    return Ready(epoch=0, round=round_number, attempt=attempt, base=b"b")


def test_with_room_on_disk_a_promise_is_written_and_then_said(desk: Desk) -> None:
    desk.promising.persist(promise(0))
    desk.promising.say(ready(0))
    assert desk.did == [promise(0), ready(0)] and not desk.refused


def test_what_cannot_be_written_is_not_said_before_it_is(desk: Desk) -> None:
    desk.full = True
    desk.promising.persist(promise(0))
    desk.promising.say(ready(0))
    desk.promising.retry()
    assert desk.did == [] and desk.refused == [Code.STO_FULL]
    desk.full = False
    desk.promising.retry()
    desk.promising.retry()
    assert desk.did == [promise(0), ready(0)]


def test_the_last_promise_stands_for_those_before_and_the_last_word_of_a_kind_for_its_kind(
    desk: Desk,
) -> None:
    desk.full = True
    vote = Vote(epoch=0, round=0, attempt=1, value=b"v")
    for attempt in (0, 1):
        desk.promising.persist(promise(attempt))
        desk.promising.say(ready(attempt))
    desk.promising.persist(promise(1, voted=2))
    desk.promising.say(vote)
    desk.full = False
    desk.promising.retry()
    assert desk.did == [promise(1, voted=2), ready(1), vote]


def test_a_word_of_another_round_is_dropped(desk: Desk) -> None:
    desk.full = True
    desk.promising.persist(promise(0))
    desk.promising.say(ready(0))
    desk.full = False
    desk.promising.persist(promise(0, round_number=1))
    assert desk.did == [promise(0, round_number=1)]


def test_nothing_of_a_decided_round_is_said(desk: Desk) -> None:
    desk.full = True
    desk.promising.persist(promise(0))
    desk.promising.say(Pass(epoch=0, round=0, attempt=0))
    desk.promising.forget()
    desk.full = False
    desk.promising.retry()
    assert desk.did == []
