"""What members tell everyone by gossip, with the real gossip over neighbours in memory."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from diloco.member import news
from diloco.member.news import Decision, News, OperatorOrder
from diloco.member.setting import Tasks
from diloco.outer_state import OuterState
from diloco.rounds.certificate import Certified
from diloco.rounds.evidence import Proof, check
from diloco.rounds.records import Order
from diloco.rounds.statements import Evidence, Vote
from diloco.rounds.values import Decided, Elector, Value, value_digest
from diloco.store.ledger import to_message
from protocol.envelope import Sealed, seal, unseal
from protocol.errors import Code, NodeError
from protocol.gossip import Gossip
from protocol.identity import Identity, verify
from protocol.messages import decode, encode
from protocol.testing import RUN
from protocol.units import PeerId
from tests.diloco.member.fleet import fleet, tiny_genesis

OPERATOR, OTHER = Identity.ephemeral(b"o" * 32), Identity.ephemeral(b"p" * 32)
STRANGER = Identity.ephemeral(b"s" * 32)


def everybody(peer: PeerId, audience: str) -> bool:
    return True


class Bus:
    """Gives everything that one node publishes to all others at once."""

    def __init__(self) -> None:
        self.nodes: dict[PeerId, Gossip] = {}
        self.published: list[str] = []

    async def add(self, peer: PeerId, gossip: Gossip) -> None:
        self.nodes[peer] = gossip
        await gossip.start(self.carrier(peer))

    def carrier(self, peer: PeerId) -> Any:
        async def publish(topic: str, raw: bytes) -> None:
            self.published.append(topic)
            for other, gossip in self.nodes.items():
                if other != peer:
                    gossip.receive(topic, raw, peer)

        async def nothing(*_: object) -> None:
            pass

        return SimpleNamespace(publish=publish, join=nothing, stop=nothing)


class Reader:
    """A member as far as the news are concerned."""

    def __init__(self, bus: Bus, number: int) -> None:
        self.identity = Identity.ephemeral(bytes([number]) * 32)
        self.me = self.identity.peer_id
        self.place: tuple[int, int] | None = (0, 5)
        self.shown: list[Decided] = []
        self.orders: list[Order] = []
        self.asked: list[PeerId] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.gossip = Gossip(self.identity, run=RUN, boot=bytes([number]) * 16, audience=everybody)
        endpoint = SimpleNamespace(
            handle=self.gossip.handle, publish=self.gossip.publish, gossip=self.gossip, verifier=verify
        )
        rules = SimpleNamespace(check_evidence=lambda raw: check(decode(Evidence, raw), opened))
        setting: Any = SimpleNamespace(endpoint=endpoint, me=self.me, run=RUN, emit=self.emit, rules=rules)
        self.proofs: list[Proof] = []
        self.kept: list[tuple[Proof, PeerId]] = []
        self.failures: list[BaseException] = []
        self.tasks = Tasks(lambda name, error: self.failures.append(error))
        self.news = News(setting, self.tasks, self, self)

    def emit(self, kind: str, /, **fields: Any) -> None:
        self.events.append((kind, fields))

    def tell(self, decided: Certified) -> None:
        self.news.tell_decided(decided, to_message(decided))

    def decided(self, message: Any, sender: PeerId) -> None:
        self.shown.append(message)

    def ordered(self, sealed: Sealed[Order]) -> None:
        self.orders.append(sealed.message)

    def accused(self, proof: Proof) -> None:
        self.proofs.append(proof)

    def concerns(self, peer: str) -> bool:
        return peer != STRANGER.peer_id

    def keep(self, proof: Proof, by: PeerId) -> None:
        self.kept.append((proof, by))

    def catch_up(self, peer: PeerId) -> None:
        self.asked.append(peer)


@pytest.fixture
async def readers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Bus, list[Reader]]]:
    monkeypatch.setattr(news, "_TURN", timedelta(milliseconds=30))
    bus, made = Bus(), []
    for number in range(1, 4):
        made.append(Reader(bus, number))
        await bus.add(made[-1].me, made[-1].gossip)
    yield bus, made
    for reader in made:
        await reader.tasks.close()
        await reader.gossip.stop()
        assert reader.failures == []


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def certified(round_number: int, *, epoch: int = 0, electors: int = 3, weight: int = 0) -> Certified:
    voters = tuple(Elector(peer=Identity.ephemeral(bytes([n]) * 32).peer_id) for n in range(1, electors + 1))
    value = Value(
        epoch=epoch,
        round=round_number,
        previous=b"p" * 32,
        base=b"b" * 32,
        electorate=voters,
        members=tuple(f"m{number}" + "x" * 50 for number in range(weight)),
    )
    data = encode(value)
    return Certified(value, data, value_digest(data), attempt=1, votes=(b"vote",))


async def test_one_member_publishes_a_decision_and_everyone_gets_it_whole(
    readers: tuple[Bus, list[Reader]],
) -> None:
    bus, made = readers
    decided = certified(5)
    for reader in made:
        reader.tell(decided)
    await until(lambda: sum(len(reader.shown) for reader in made) == 2)
    await asyncio.sleep(0.15)  # the others' turns pass
    assert bus.published == ["run.decision"]
    assert {(message.value, message.attempt, message.votes) for r in made for message in r.shown} == {
        (decided.data, 1, (b"vote",))
    }


async def test_a_member_that_does_not_publish_is_followed_by_the_next(
    readers: tuple[Bus, list[Reader]],
) -> None:
    _, made = readers
    decided = certified(5)
    first = min(made, key=lambda reader: reader.news._turn(decided))
    for reader in made:
        if reader is not first:
            reader.tell(decided)
    await until(lambda: len(first.shown) == 1)


async def test_who_is_behind_asks_who_is_ahead_is_not_bothered_and_a_new_epoch_is_shown_to_all(
    readers: tuple[Bus, list[Reader]],
) -> None:
    _, (speaker, behind, ahead) = readers
    behind.place, ahead.place = (0, 3), (0, 9)
    speaker.tell(certified(5))
    await until(lambda: behind.asked == [speaker.me])
    speaker.tell(certified(8, epoch=1))
    await until(lambda: behind.shown and ahead.shown)
    assert ahead.asked == [] and len(ahead.shown) == 1


async def test_of_a_value_that_is_too_large_the_name_is_told_and_the_rest_is_asked_for(
    readers: tuple[Bus, list[Reader]],
) -> None:
    _, (speaker, listener, _) = readers
    speaker.tell(certified(5, weight=1500))
    await until(lambda: listener.asked == [speaker.me])
    assert listener.shown == []


async def test_an_operators_order_reaches_everyone_with_the_operators_own_signature(
    readers: tuple[Bus, list[Reader]],
) -> None:
    _, (speaker, listener, other) = readers
    order = Order(number=1, kind="ban", peer=OTHER.peer_id, reason="it sends rubbish")
    speaker.news.tell_ordered(seal(OPERATOR, RUN, order))
    await until(lambda: listener.orders == other.orders == [order])
    await speaker.gossip.publish(OperatorOrder(order=b"not an order"))
    await speaker.gossip.publish(OperatorOrder(order=seal(OPERATOR, RUN, replace(order, number=2)).raw))
    await until(lambda: len(listener.orders) == 2)


def opened(raw: bytes) -> Sealed[Any]:
    return unseal(raw, run=RUN)


def vote(value: bytes, *, who: Identity = OTHER, attempt: int = 0) -> Sealed[Vote]:
    return seal(who, RUN, Vote(epoch=0, round=5, attempt=attempt, value=value * 32))


async def test_two_votes_in_one_attempt_are_shown_to_everyone_once(readers: tuple[Bus, list[Reader]]) -> None:
    bus, (one, other, third) = readers
    for each in (vote(b"a"), vote(b"a"), vote(b"a", attempt=1), vote(b"b", attempt=2)):
        one.news.watch(each)
    assert not one.news.evidence
    one.news.watch(vote(b"b"))
    one.news.watch(vote(b"c"))
    await until(lambda: other.news.evidence and third.news.evidence)
    assert bus.published == ["run.evidence"]
    for reader in (one, other, third):
        ((kind, fields),) = reader.events
        assert (kind, fields["accused"], fields["shown_by"]) == ("evidence", OTHER.peer_id, one.me)
        assert "voted for two values in round 5, attempt 0" in fields["sentence"]
        assert {proof.accused for proof in reader.proofs} == {OTHER.peer_id}, "the round machine is told"
        ((kept, by),) = reader.kept
        assert kept.accused == OTHER.peer_id and by == one.me


async def test_evidence_against_somebody_outside_the_run_is_not_kept(
    readers: tuple[Bus, list[Reader]],
) -> None:
    _, (one, *_) = readers
    votes = [vote(value, who=STRANGER).raw for value in (b"a", b"b")]
    evidence = Evidence(kind="two-votes", accused=STRANGER.peer_id, statements=tuple(sorted(votes)))
    await one.news.on_evidence(evidence, cast(Any, SimpleNamespace(sender=OTHER.peer_id)))
    assert not one.news.evidence and not one.kept


@pytest.mark.parametrize(
    "statements",
    [
        (vote(b"a").raw, vote(b"a").raw),
        (vote(b"a").raw, vote(b"b", attempt=1).raw),
        (vote(b"a").raw, vote(b"b", who=OPERATOR).raw),
        (vote(b"a", who=OPERATOR).raw, vote(b"b", who=OPERATOR).raw),
        (vote(b"a").raw,),
        (vote(b"a").raw, vote(b"b").raw[:-1] + b"x"),
        (vote(b"a").raw, b""),
    ],
)
def test_nobody_is_accused_by_what_it_did_not_sign(statements: tuple[bytes, ...]) -> None:
    with pytest.raises(NodeError):
        check(Evidence(kind="two-votes", accused=OTHER.peer_id, statements=statements), opened)


def test_unknown_evidence_is_refused() -> None:
    with pytest.raises(NodeError) as caught:
        check(Evidence(kind="looks-bad", accused=OTHER.peer_id, statements=()), opened)
    assert caught.value.code is Code.WIRE_INVALID


def gradient(number: int, round_number: int, state: OuterState) -> np.ndarray:
    return np.full(state.layout.size, 1e-3, np.float32)


async def test_members_of_a_run_publish_each_decision_once(tmp_path: Path) -> None:
    bus = Bus()
    async with fleet(tmp_path, 2, gradient, tiny_genesis(rounds=2)) as crowd:
        for post in crowd.posts:
            gossip = Gossip(post.identity, run=crowd.genesis.run_id, boot=b"b" * 16, audience=everybody)
            post.endpoint.gossip = gossip
            await bus.add(post.peer, gossip)
        await crowd.all_finished()
        await until(lambda: bus.published.count("run.decision") >= 2)
        crowd.check_equal()
        assert bus.published.count("run.decision") <= 3, "and the next in turn keeps silent"
        for gossip in bus.nodes.values():
            await gossip.stop()


def test_a_decision_and_its_proof_fit_into_a_topic() -> None:
    largest = Decision(epoch=2**63, round=2**62, digest=b"d" * 32, decided=b"x" * news._WHOLE)
    assert len(encode(largest)) < 64 * 1024
