import secrets
from typing import Any

import pytest

from protocol.envelope import Sealed, seal
from protocol.errors import Code
from protocol.gossip import judging
from protocol.gossip.judging import Judge, Judgement
from protocol.identity import Identity, verify
from protocol.messages import spec_of
from protocol.testing import RUN
from protocol.units import PeerId, RunId
from tests.protocol.gossip.scene import members
from tests.protocol.gossip.words import Command, News, Rumour

NEWS, RUMOUR, COMMAND = spec_of(News), spec_of(Rumour), spec_of(Command)
BOOT = b"b" * 16


class Speaker:
    """Seals one message after the other."""

    def __init__(self, boot: bytes = BOOT, identity: Identity | None = None) -> None:
        self.identity = identity or Identity.ephemeral()
        self.boot, self.sequence = boot, 0

    def say(self, message: Any, *, sequence: int | None = None, run: RunId = RUN, **more: Any) -> bytes:
        self.sequence += 1
        number = self.sequence if sequence is None else sequence
        return seal(self.identity, run, message, **{"boot": self.boot, "sequence": number, **more}).raw


def test_a_good_message_is_accepted_once_and_its_copies_are_nobodys_fault() -> None:
    judge, raw = Judge(RUN, members), Speaker().say(News(text="new"))
    first = judge.judge(NEWS, raw)
    assert first.judgement is Judgement.ACCEPT
    assert isinstance(first.sealed, Sealed) and first.sealed.message == News(text="new")
    again = judge.judge(NEWS, raw)
    assert (again.judgement, again.code, again.sealed) == (Judgement.IGNORE, Code.WIRE_REPLAY, None)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (Speaker().say(News(text="x")) + bytes(40_000), Code.WIRE_TOO_LARGE),
        (b"garbage", Code.WIRE_MALFORMED),
        (b"", Code.WIRE_MALFORMED),
        (Speaker().say(Rumour(text="x")), Code.WIRE_WRONG_MESSAGE),
        (Speaker().say(News(text="x"), run=RunId("00" * 32)), Code.WIRE_WRONG_RUN),
        (Speaker().say(News(text="x"), recipient=Identity.ephemeral().peer_id), Code.WIRE_WRONG_RECIPIENT),
        (Speaker(boot=b"").say(News(text="x")), Code.WIRE_INVALID),
        (Speaker().say(News(text="x"))[:-1] + b"y", Code.WIRE_SIGNATURE),
    ],
    ids=("too long", "garbage", "empty", "another message", "another run", "addressed", "no boot", "changed"),
)
def test_what_no_honest_node_passes_on_is_held_against_the_neighbour(raw: bytes, code: Code) -> None:
    judge = Judge(RUN, members)
    for _ in range(2):
        verdict = judge.judge(NEWS, raw)
        assert (verdict.judgement, verdict.code) == (Judgement.REJECT, code)


def test_a_bad_message_that_comes_again_costs_no_second_verification() -> None:
    verified = 0

    def counting(peer: PeerId, data: bytes, signature: bytes) -> bool:
        nonlocal verified
        verified += 1
        return verify(peer, data, signature)

    judge, raw = Judge(RUN, members, verifier=counting), Speaker().say(News(text="x"))
    forged = raw[:3] + bytes([raw[3] ^ 1]) + raw[4:]
    for _ in range(5):
        assert judge.judge(NEWS, forged).code is Code.WIRE_SIGNATURE
        judge.judge(NEWS, raw)
    assert verified == 2


def test_a_sender_who_may_not_publish_is_left_alone_until_it_may() -> None:
    admitted: set[PeerId] = set()
    judge, speaker = Judge(RUN, lambda peer, audience: peer in admitted), Speaker()
    raw = speaker.say(News(text="x"))
    assert judge.judge(NEWS, raw).code is Code.NET_AUDIENCE
    admitted.add(speaker.identity.peer_id)
    assert judge.judge(NEWS, raw).judgement is Judgement.ACCEPT


def test_only_the_operator_commands() -> None:
    operator = Speaker()

    def audience(peer: PeerId, name: str) -> bool:
        return name != "operator" or peer == operator.identity.peer_id

    judge = Judge(RUN, audience)
    assert judge.judge(COMMAND, Speaker().say(Command(text="stop"))).code is Code.NET_AUDIENCE
    assert judge.judge(COMMAND, operator.say(Command(text="stop"))).judgement is Judgement.ACCEPT


def test_messages_may_arrive_in_any_order_within_the_window_but_not_from_before_it() -> None:
    judge, speaker = Judge(RUN, members), Speaker()
    raws = {number: speaker.say(News(text=str(number)), sequence=number) for number in (1, 2, 3, 2000, 990)}
    for number in (2, 1, 3, 2000, 990):
        assert judge.judge(NEWS, raws[number]).judgement is Judgement.ACCEPT
    late = speaker.say(News(text="old"), sequence=900)
    assert judge.judge(NEWS, late).code is Code.WIRE_REPLAY


def test_the_same_number_said_twice_counts_once() -> None:
    judge, speaker = Judge(RUN, members), Speaker()
    assert judge.judge(NEWS, speaker.say(News(text="one"), sequence=7)).judgement is Judgement.ACCEPT
    assert judge.judge(NEWS, speaker.say(News(text="two"), sequence=7)).code is Code.WIRE_REPLAY


def test_each_topic_has_numbers_of_its_own() -> None:
    judge, speaker = Judge(RUN, members), Speaker()
    assert judge.judge(NEWS, speaker.say(News(text="x"), sequence=5000)).judgement is Judgement.ACCEPT
    assert judge.judge(RUMOUR, speaker.say(Rumour(text="x"), sequence=1)).judgement is Judgement.ACCEPT


def test_a_boot_that_the_senders_record_does_not_name_waits_for_the_record() -> None:
    """So nobody can silence a restarted sender by showing what it said in an earlier life."""
    identity = Identity.ephemeral()
    old, new = Speaker(b"o" * 16, identity), Speaker(b"n" * 16, identity)
    recorded = {identity.peer_id: b"o" * 16}
    judge = Judge(RUN, members, boot_of=recorded.get)
    early = new.say(News(text="before its record"))
    assert judge.judge(NEWS, early).code is Code.NET_UNTRUSTED
    recorded[identity.peer_id] = b"n" * 16
    assert judge.judge(NEWS, old.say(News(text="from an earlier life"))).code is Code.NET_UNTRUSTED
    assert judge.judge(NEWS, early).judgement is Judgement.ACCEPT


def test_an_earlier_boot_is_refused_after_a_later_one() -> None:
    identity = Identity.ephemeral()
    old, new = Speaker(b"o" * 16, identity), Speaker(b"n" * 16, identity)
    judge = Judge(RUN, members)
    assert judge.judge(NEWS, old.say(News(text="1"))).judgement is Judgement.ACCEPT
    assert judge.judge(NEWS, new.say(News(text="2"))).judgement is Judgement.ACCEPT
    assert judge.judge(NEWS, old.say(News(text="3"))).code is Code.WIRE_REPLAY


def test_a_sender_beyond_its_rate_is_left_alone_and_what_was_too_much_is_taken_when_asked_for() -> None:
    judge, speaker = Judge(RUN, members), Speaker()
    raws = [speaker.say(Rumour(text=str(number))) for number in range(4)]
    assert [judge.judge(RUMOUR, raw).code for raw in raws] == [None, None, Code.NET_RATE, Code.NET_RATE]
    assert judge.judge(RUMOUR, raws[3], late=True).judgement is Judgement.ACCEPT
    assert judge.judge(RUMOUR, Speaker().say(Rumour(text="another's"))).judgement is Judgement.ACCEPT


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MAX_REMEMBERED", 10)
    monkeypatch.setattr(judging, "MAX_SENDERS", 5)
    judge = Judge(RUN, members)
    for _ in range(30):
        assert judge.judge(RUMOUR, Speaker(secrets.token_bytes(16)).say(Rumour(text="x"))).sealed is not None
    assert len(judge._remembered) == 10
    assert len(judge._senders[RUMOUR.name]) == len(judge._windows[RUMOUR.name]._senders) == 5
