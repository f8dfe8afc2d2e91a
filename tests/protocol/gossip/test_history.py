from typing import Any

import pytest

from protocol.envelope import Sealed, seal
from protocol.gossip import history
from protocol.gossip.history import SHORT, History
from protocol.identity import Identity
from protocol.testing import RUN
from tests.protocol.gossip.words import Rumour

ONE, OTHER = Identity.ephemeral(b"1" * 32), Identity.ephemeral(b"2" * 32)


def rumour(number: int, *, who: Identity = ONE, size: int = 0) -> Sealed[Any]:
    return seal(who, RUN, Rumour(text=str(number) + "." * size), boot=b"b" * 16, sequence=number)


def kept(of: History, *have: Sealed[Any], topics: tuple[str, ...] = ("r",)) -> list[bytes]:
    return [raw for _, raw in of.since(topics, [each.digest[:SHORT] for each in have])]


def test_a_late_subscriber_gets_what_it_does_not_have_in_order_and_nothing_of_other_topics() -> None:
    memory, said = History(), [rumour(number) for number in range(4)]
    for each in said:
        memory.add("r", each)
    memory.add("other", rumour(9))
    assert kept(memory, said[1]) == [said[0].raw, said[2].raw, said[3].raw]
    assert kept(memory, topics=("nobody's",)) == []


def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_MESSAGES", 3)
    memory, said = History(), [rumour(number) for number in range(5)]
    for each in said:
        memory.add("r", each)
    assert kept(memory) == [each.raw for each in said[2:]]


def test_the_oldest_go_when_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_BYTES", 2500)
    memory, said = History(), [rumour(number, size=1000) for number in range(4)]
    for each in said:
        memory.add("r", each)
    assert kept(memory) == [said[3].raw]


def test_one_sender_does_not_push_out_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_PER_SENDER", 2)
    memory, quiet = History(), rumour(1, who=OTHER)
    memory.add("r", quiet)
    loud = [rumour(number) for number in range(5)]
    for each in loud:
        memory.add("r", each)
    assert kept(memory) == [quiet.raw, loud[3].raw, loud[4].raw]


def test_what_is_old_is_not_given_out() -> None:
    now = 0.0
    memory = History(clock=lambda: now)
    memory.add("r", rumour(1))
    now = history.KEPT_FOR.total_seconds() + 1
    memory.add("r", rumour(2))
    assert kept(memory) == [rumour(2).raw]
    now *= 3
    assert kept(memory) == []
