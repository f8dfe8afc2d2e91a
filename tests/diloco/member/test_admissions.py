"""Who comes in, and by which chain: anchors, expiry, seats."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from diloco.member.admission import Admission, admit
from diloco.member.chain import Chain
from diloco.member.messages import AskLedger
from diloco.rounds.certificate import Certified
from diloco.rounds.statements import Vote
from diloco.rounds.values import Decided, value_digest
from diloco.store.ledger import to_message
from protocol.envelope import seal
from protocol.errors import Code
from protocol.messages import encode
from protocol.rpc import Context
from protocol.testing import Swarm
from tests.diloco.member.fleet import OPERATOR, tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd, Seat

MINUTES = timedelta(minutes=3)


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=41, run=None) as made:
        yield made


def chain_of(seat: Seat) -> list[Certified]:
    return list(seat.member.ledger.after(0, -2))


def anchor_at(certified: Certified) -> dict[str, Any]:
    value = certified.value
    return {"anchor_epoch": value.epoch, "anchor_round": value.round, "anchor_value": certified.digest}


def forged(crowd: Crowd, chain: list[Certified], fork: int, length: int) -> list[Decided]:
    """Another chain from a round on, signed with the keys of all who were ever voters."""
    run = crowd.genesis.run_id
    signers = [seat.host.endpoint.identity for seat in crowd.seats[:3]]
    found = [to_message(certified) for certified in chain[: fork + 1]]
    before = chain[fork]
    template = chain[fork + 1].value
    for number in range(length):
        value = replace(
            template,
            round=before.value.round + 1,
            previous=before.digest,
            tokens=template.tokens + 1 + number,
        )
        data = encode(value)
        vote = Vote(epoch=value.epoch, round=value.round, attempt=0, value=value_digest(data))
        votes = sorted((seal(signer, run, vote) for signer in signers), key=lambda sealed: sealed.sender)
        found.append(Decided(value=data, attempt=0, votes=tuple(sealed.raw for sealed in votes)))
        before = Certified(value, data, value_digest(data))
    return found


@pytest.fixture
def lies(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Decided]]:
    """The chain that a member shows instead of its own."""
    shown: dict[str, list[Decided]] = {}
    honest = Chain.on_ask_ledger

    async def on_ask_ledger(self: Chain, message: AskLedger, context: Context) -> AsyncIterator[Decided]:
        if (chain := shown.get(self._setting.me)) is None:
            async for decided in honest(self, message, context):
                yield decided
            return
        for decided in chain[message.round + 2 : message.round + 2 + min(message.limit, 3)]:
            yield decided

    monkeypatch.setattr(Chain, "on_ask_ledger", on_ask_ledger)
    return shown


@pytest.mark.failure_mode(34)
@pytest.mark.parametrize("length", [2, 3, 4, 12])
def test_a_chain_forged_with_all_keys_of_former_voters_is_refused_for_the_anchor(
    swarm: Swarm, tmp_path: Path, lies: dict[str, list[Decided]], length: int
) -> None:
    """The forgery may end before the anchor, at it, or go on far beyond it."""
    genesis = tiny_genesis(rounds=1000)
    crowd = Crowd(swarm, tmp_path, genesis)
    liar = crowd.seats[2]
    seen: list[int] = []

    async def scene() -> None:
        await crowd.until(lambda: all(8 in seat.digests() for seat in crowd.seats), MINUTES)
        chain = chain_of(crowd.seats[0])
        lies[liar.host.peer_id] = forged(crowd, chain, fork=3, length=length)
        alone = True
        joiner_peer = swarm.identity(4).peer_id
        crowd.knows = lambda one, other: (
            not alone
            or joiner_peer not in (one.peer_id, other.peer_id)
            or (liar.host.peer_id in (one.peer_id, other.peer_id))
        )
        joiner = crowd.join(**anchor_at(chain[6]))
        assert joiner.host.peer_id == joiner_peer
        await crowd.until(lambda: len(joiner.of("chain.refused")) >= 3, MINUTES)
        assert joiner.member.state is None
        assert {event["code"] for event in joiner.of("chain.refused")} == {Code.RND_CHAIN}
        assert {event["peer"] for event in joiner.of("chain.refused")} == {liar.host.peer_id}
        seen.append(len(chain_of(joiner)))
        alone = False
        await crowd.until(lambda: len(joiner.digests()) >= 2, MINUTES)
        theirs = {certified.digest for certified in chain_of(crowd.seats[0])}
        assert {certified.digest for certified in chain_of(joiner)} <= theirs

    swarm.run(scene())
    crowd.check_equal()
    assert seen == [0], "nothing of the forgery was kept"


def test_what_a_joiner_had_stored_of_a_forgery_when_it_was_killed_is_forgotten(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=1000))

    async def scene() -> None:
        await crowd.until(lambda: all(8 in seat.digests() for seat in crowd.seats), MINUTES)
        chain = chain_of(crowd.seats[0])
        crowd.knows = lambda one, other: False
        joiner = crowd.join(**anchor_at(chain[6]))
        before = None
        for decided in forged(crowd, chain, fork=3, length=1):
            before = joiner.member._chain._proofs.follow(before, decided, lambda number: None)
            joiner.member.ledger.append(before)
        joiner.host.kill()
        joiner.host.boot_up()
        crowd.knows = lambda one, other: True
        joiner.build()
        joiner.host.spawn(joiner.member.run())
        await crowd.until(lambda: len(joiner.digests()) >= 2, MINUTES)

    swarm.run(scene())
    crowd.check_equal()


@pytest.mark.failure_mode(39)
def test_admissions_that_expire_while_the_coordinator_is_dead_end_no_run_and_let_nobody_in(
    swarm: Swarm, tmp_path: Path
) -> None:
    """Nobody is there to renew anything: members go on and come back, only newcomers wait."""
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=1000))
    past = int(swarm.wall()) - 3600
    for seat in crowd.seats:  # those that founded the run are in it; what they show has expired
        seat.admission["expires_at"] = past

    async def scene() -> None:
        first = crowd.seats[0]
        await crowd.until(lambda: 2 in first.digests(), MINUTES)
        late = crowd.join(expires_at=past)
        back = crowd.seats[1]
        back.host.kill()
        back.host.boot_up()
        back.build()
        back.host.spawn(back.member.run())
        await crowd.until(lambda: bool(late.of("ready.sent")), MINUTES)
        number = max(first.digests())
        await crowd.until(lambda: number + 4 in first.digests(), MINUTES)
        value = chain_of(first)[-1].value
        assert {elector.peer for elector in value.electorate} == {
            seat.host.peer_id for seat in crowd.seats[:3]
        }
        assert back.host.peer_id in {entry.peer for entry in value.roster}
        assert any("expired" in event["reason"] for event in first.of("ready.refused"))
        fresh = Admission(
            peer=late.host.peer_id, roles=("trainer",), seat=True, expires_at=int(swarm.wall()) + 3600
        )
        late.member.take_admission(admit(OPERATOR, crowd.genesis.run_id, fresh))
        await crowd.until(
            lambda: late.host.peer_id in {e.peer for e in chain_of(first)[-1].value.electorate}, MINUTES
        )

    swarm.run(scene())
    crowd.check_equal()


@pytest.mark.failure_mode(35)
def test_fifty_identities_that_cost_nothing_have_no_vote_and_little_weight_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    with Swarm(seed=43, keyed=True, run=None) as swarm:
        operator = swarm.identity(0)
        genesis = tiny_genesis(rounds=1000, round={"chunk": 4096}).model_copy(
            update={"operator_root": operator.peer_id}
        )
        crowd = Crowd(swarm, tmp_path, genesis, operator=operator)
        founders = {seat.host.peer_id for seat in crowd.seats}
        first = crowd.seats[0]

        async def scene() -> None:
            await crowd.until(lambda: 1 in first.digests(), MINUTES)
            for _ in range(50):
                crowd.join(seat=False)
            await crowd.until(lambda: len(chain_of(first)[-1].value.roster) >= 50, MINUTES)
            number = max(first.digests())
            await crowd.until(lambda: number + 1 in first.digests(), MINUTES)

        swarm.run(scene())
        crowd.check_equal()
        for certified in chain_of(first):
            value = certified.value
            assert {elector.peer for elector in value.electorate} == founders
            weight = sum(entry.weight for entry in value.roster)
            strangers = sum(entry.weight for entry in value.roster if entry.peer not in founders)
            assert 3 * strangers <= weight
