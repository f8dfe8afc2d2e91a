"""Whole members where the operator's key was used twice, where a chain forks, and where two processes have one key."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from diloco.rounds import founding
from diloco.rounds.events import Arrived, Event, TwinSeen
from diloco.rounds.proofs import Proofs
from diloco.rounds.records import Reset
from diloco.rounds.rescue import voted
from diloco.rounds.statements import Vote
from diloco.rounds.values import parse_value, value_digest
from diloco.store.ledger import to_message
from diloco.store.verification import verify_ledger
from protocol.delegation import Delegation
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.messages import encode
from protocol.testing import Swarm
from tests.diloco.member.fleet import OPERATOR, tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd, Seat

LONG = timedelta(minutes=4)
DELEGATE = Identity.ephemeral(b"d" * 32)


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=5, run=None) as made:
        yield made


def reset(
    crowd: Crowd, seat: Seat, mark: bytes, signer: Identity = OPERATOR, delegation: bytes = b""
) -> bytes:
    """A reset after one member's last certified value that stands, signed by the operator or a delegate."""
    (last, base), state = seat.member.standing(), seat.member.state
    assert state is not None
    peers = {host.peer_id: True for host in crowd.swarm.hosts}
    value = founding.make_reset(
        seat.member.setting.rules, last.value, last.digest, base, peers, mark * 32, epoch=state.epoch
    )
    return seal(signer, crowd.genesis.run_id, Reset(value=encode(value), delegation=delegation)).raw


def halted(crowd: Crowd) -> bool:
    return all(seat.member.state is not None and seat.member.state.halted for seat in crowd.seats)


def test_two_resets_of_one_epoch_stop_all_members_over_a_restart_until_a_higher_one(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=6))
    first, second, third = crowd.seats

    async def scene() -> None:
        await crowd.until(lambda: all(2 in seat.digests() for seat in crowd.seats), LONG)
        one, other = reset(crowd, first, b"1"), reset(crowd, first, b"2")
        first.member.give_reset(one)
        swarm.network.partition([first.host, second.host], [third.host])
        third.member.give_reset(other)
        await asyncio.sleep(2)
        swarm.network.heal()
        await crowd.until(lambda: halted(crowd), LONG)
        assert {seat.of("halted")[0]["code"] for seat in crowd.seats if seat.of("halted")} == {
            Code.RND_FORKED
        }
        before = [seat.digests() for seat in crowd.seats]
        second.host.kill()
        second.host.boot_up()
        second.build()
        second.host.spawn(second.member.run())
        await asyncio.sleep(300)
        assert halted(crowd) and first.digests() == before[0]
        said = Delegation(delegate=DELEGATE.peer_id, scopes=("reset",), number=1, expires_at=1 << 40)
        right = seal(OPERATOR, crowd.genesis.run_id, said).raw
        with pytest.raises(NodeError, match="only the root key"):
            first.member.give_reset(reset(crowd, first, b"3", DELEGATE, right))
        assert second.member.state is not None and second.member.state.base is None, (
            "it restarted when it was halted"
        )
        second.member.give_reset(reset(crowd, second, b"3"))
        await crowd.finished()

    swarm.run(scene())
    crowd.check_equal()
    assert {c.value.epoch for seat in crowd.seats for c in [seat.member.ledger.tip()] if c} == {2}


def test_two_resets_before_the_first_round_are_ended_by_the_root_key(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=3))
    first, second, third = crowd.seats

    async def scene() -> None:
        await crowd.until(
            lambda: all(seat.member.state and seat.member.state.base for seat in crowd.seats), LONG
        )
        one, other = reset(crowd, first, b"1"), reset(crowd, first, b"2")
        swarm.network.partition([first.host, second.host], [third.host])
        first.member.give_reset(one)
        third.member.give_reset(other)
        swarm.network.heal()
        await crowd.until(lambda: halted(crowd), LONG)
        first.member.give_reset(reset(crowd, first, b"3"))
        await crowd.finished()

    swarm.run(scene())
    crowd.check_equal()


def test_who_is_on_the_other_side_of_two_resets_follows_the_root_key(swarm: Swarm, tmp_path: Path) -> None:
    """The root key goes on from what one side has decided, before anybody knows of the fork."""
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=8))
    first, second, third = crowd.seats

    async def scene() -> None:
        await crowd.until(lambda: all(2 in seat.digests() for seat in crowd.seats), LONG)
        swarm.network.partition([first.host, second.host], [third.host])
        first.member.give_reset(reset(crowd, first, b"1"))
        third.member.give_reset(reset(crowd, third, b"2"))
        began = max(first.digests())
        await crowd.until(lambda: max(first.digests()) > began + 1, LONG)
        first.member.give_reset(reset(crowd, first, b"3"))
        swarm.network.heal()
        await crowd.finished()

    swarm.run(scene())
    crowd.check_equal()
    assert {c.value.epoch for seat in crowd.seats for c in [seat.member.ledger.tip()] if c} == {2}


def test_two_certificates_of_one_round_stop_who_sees_them(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=6))
    first = crowd.seats[0]

    async def scene() -> None:
        await crowd.until(lambda: 3 in first.digests(), LONG)
        mine = first.member.ledger.get(1)
        assert mine is not None
        other = replace(mine.value, beacon=b"other" * 6)
        data = encode(other)
        body = Vote(epoch=0, round=1, attempt=9, value=value_digest(data))
        votes = tuple(
            seal(host.endpoint.identity, crowd.genesis.run_id, body).raw
            for host in sorted(swarm.hosts, key=lambda host: host.peer_id)
        )
        forged = replace(to_message(mine), value=data, votes=votes, attempt=9)
        first.member.decided(replace(forged, votes=votes[:1]), first.host.peer_id)
        await asyncio.sleep(1)
        assert first.member.state is not None and not first.member.state.halted, "one vote is no certificate"
        first.member.decided(forged, first.host.peer_id)
        await crowd.until(lambda: halted(crowd), LONG)
        before = first.digests()
        await asyncio.sleep(100)
        assert first.digests() == before
        first.member.give_reset(reset(crowd, first, b"4"))
        await crowd.finished()

    swarm.run(scene())
    crowd.check_equal()


def deaf_to_votes(seat: Seat, number: int) -> None:
    """It hears nobody else's vote in a round of the first epoch."""
    hand_on = seat.member.post

    def lossy(event: Event) -> None:
        said = event.sealed if isinstance(event, Arrived) else None
        vote = (
            said is not None and isinstance(said.message, Vote) and (said.message.epoch, said.message.round)
        )
        if said is None or vote != (0, number) or said.sender == seat.host.peer_id:
            hand_on(event)

    seat.member.post = lossy  # type: ignore[method-assign]


def test_a_reset_goes_on_from_a_value_that_was_voted_for_and_a_joiner_believes_it(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=6))
    first = crowd.seats[0]
    for seat in crowd.seats:
        deaf_to_votes(seat, 2)

    async def scene() -> None:
        await crowd.until(
            lambda: all(seat.of("vote") and seat.of("vote")[-1]["round"] == 2 for seat in crowd.seats), LONG
        )
        await asyncio.sleep(3)
        state = first.member.state
        assert state is not None and state.round == 2, "nobody can see a certificate"
        last = voted(state)
        assert value_digest(last) in state.held
        peers = {host.peer_id: True for host in crowd.swarm.hosts}
        value = founding.make_reset(state.rules, parse_value(last), value_digest(last), b"", peers, b"r" * 32)
        body = Reset(value=encode(value), last=last)
        first.member.give_reset(seal(OPERATOR, crowd.genesis.run_id, body).raw)
        await crowd.until(lambda: 4 in first.digests(), LONG)
        crowd.join()
        await crowd.finished()
        named = first.member.ledger.get(2)
        assert named is not None and (named.data, named.votes) == (last, ())

    swarm.run(scene())
    crowd.check_equal()
    proofs = Proofs(crowd.genesis.run_id, crowd.genesis.operator, crowd.genesis.base)
    for seat in crowd.seats:
        path = seat.folder / "ledger.sqlite"
        report = verify_ledger(path, proofs)
        assert not report.problems and report.tip is not None and report.tip.value.epoch == 1
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM decided WHERE epoch = 1")
        database.commit()
    assert Code.RND_CERTIFICATE in {problem.code for problem in verify_ledger(path, proofs).problems}


@pytest.mark.failure_mode(32)
def test_the_older_of_two_processes_with_one_key_says_so_and_ends(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=3))
    first = crowd.seats[0]

    async def scene() -> None:
        await crowd.until(lambda: 1 in first.digests(), LONG)
        assert first.member.state is not None
        first.member.post(TwinSeen(b"t" * 16, first.member.state.started + 1))
        async with asyncio.timeout(60):
            await first.member.superseded.wait()
        assert [fields["code"] for fields in first.of("clone")] == [Code.ID_CLONED]

    swarm.run(scene())
