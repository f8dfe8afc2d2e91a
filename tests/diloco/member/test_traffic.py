"""Many members and few voters, in virtual time: who hears what, and what it costs."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from diloco.rounds import routing
from diloco.rounds.routing import Spread
from diloco.rounds.values import Decided
from protocol.envelope import Sealed
from protocol.testing import Swarm
from protocol.units import PeerId
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd, Seat

MINUTES = timedelta(minutes=20)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dozens of members go for many here."""
    monkeypatch.setattr(routing, "FEW", 3)


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=3, keyed=True, run=None) as made:
        yield made


def crowd_of(swarm: Swarm, folder: Path, *, seats: int, others: int, rounds: int = 4) -> Crowd:
    operator = swarm.identity(0)
    genesis = tiny_genesis(rounds=rounds, deadline={"heartbeat": "1 s", "silence": "4 s"}).model_copy(
        update={"operator_root": operator.peer_id}
    )
    return Crowd(swarm, folder, genesis, count=seats + others, operator=operator, seats=seats)


def test_voters_talk_of_an_undecided_round_and_tell_all_what_was_decided(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = crowd_of(swarm, tmp_path, seats=3, others=9)
    heard: list[tuple[str, str]] = []
    taken: list[tuple[str, Decided]] = []

    def listen(seat: Seat) -> None:
        me, member = seat.host.peer_id, seat.member
        arrived, decided = member.arrived, member.decided

        def hear(sealed: Sealed[Any]) -> None:
            heard.append((me, type(sealed.message).__name__))
            arrived(sealed)

        def take(message: Decided, sender: PeerId) -> None:
            taken.append((me, message))
            decided(message, sender)

        member.arrived, member.decided = hear, take  # type: ignore[method-assign]

    for seat in crowd.seats:
        listen(seat)
    swarm.run(crowd.finished(MINUTES))
    crowd.check_equal()
    assert {who for who, _ in heard} == {seat.host.peer_id for seat in crowd.seats[:3]}
    assert {what for _, what in heard} >= {"Ready", "Proposal", "Close", "Vote"}
    for seat in crowd.seats:
        assert sorted(seat.digests()) == [0, 1, 2, 3, 4], "everybody follows"
        assert all(len(commit["roster"]) == 12 for commit in seat.of("commit")), "and contributes"
    told = Counter((who, message.round) for who, message in taken)
    others = [seat.host.peer_id for seat in crowd.seats[3:]]
    times = [told[who, number] for who in others for number in range(4)]
    assert min(times) >= 1 and sum(times) < 1.5 * len(times), (
        "and is told once, or twice where it spoke meanwhile"
    )
    whole = crowd.seats[0].member.ledger.get(2)
    assert whole is not None and all(message.previous for _, message in taken)
    assert max(len(message.value) for _, message in taken) < len(whole.data) / 2


def test_who_stands_below_a_dead_member_is_told_by_those_above_it(swarm: Swarm, tmp_path: Path) -> None:
    crowd = crowd_of(swarm, tmp_path, seats=3, others=12, rounds=6)
    killed: list[Seat] = []

    def kill_a_parent(seat: Seat) -> None:
        """At the commit of round 2 a contributor dies that others stand below, before it has passed it on."""
        before, decided = seat.member.ledger.get(1), seat.member.state
        assert before is not None and decided is not None
        tip = decided.tip
        spread = Spread(before.value, tip.value, tip.digest)
        parents = [peer for peer in spread.order[3:] if list(spread.of(peer))]
        victim = next(seat for seat in crowd.seats if seat.host.peer_id == parents[0])
        victim.host.kill()
        killed.append(victim)

    first = crowd.seats[0]
    emit = first.emit

    def watch(kind: str, /, **fields: Any) -> None:
        emit(kind, **fields)
        if kind == "commit" and fields["round"] == 2:
            kill_a_parent(first)

    object.__setattr__(first.member.setting, "emit", watch)

    async def scene() -> None:
        await crowd.until(lambda: bool(killed), MINUTES)
        rest = [seat for seat in crowd.seats if seat not in killed]
        await crowd.until(lambda: all(2 in {c["round"] for c in s.of("commit")} for s in rest), MINUTES)
        await crowd.until(lambda: all(seat.of("run.finished") for seat in rest), MINUTES)

    swarm.run(scene())
    crowd.check_equal()


def test_a_member_that_was_away_is_told_by_anyone_and_follows(swarm: Swarm, tmp_path: Path) -> None:
    crowd = crowd_of(swarm, tmp_path, seats=3, others=5, rounds=8)
    away = crowd.seats[6]

    async def scene() -> None:
        await crowd.until(lambda: 1 in crowd.seats[0].digests(), MINUTES)
        away.host.pause()
        await crowd.until(lambda: 4 in crowd.seats[0].digests(), MINUTES)
        away.host.resume()
        await crowd.until(lambda: 8 in away.digests(), MINUTES)
        await asyncio.sleep(1)

    swarm.run(scene())
    crowd.check_equal()
    rosters = [set(commit["roster"]) for commit in crowd.seats[0].of("commit")]
    assert any(away.host.peer_id not in roster for roster in rosters), "it was missed"
    assert away.host.peer_id in rosters[-1], "and contributes again"


def test_the_traffic_of_one_member_does_not_grow_with_the_others(tmp_path: Path) -> None:
    per_member = {}
    for others in (6, 24):
        with Swarm(seed=3, keyed=True, run=None) as swarm:
            crowd = crowd_of(swarm, tmp_path / str(others), seats=3, others=others, rounds=3)

            async def two_rounds(crowd: Crowd = crowd) -> Counter[str]:
                """What is sent after all have found one another."""
                await crowd.until(lambda: all(1 in seat.digests() for seat in crowd.seats), MINUTES)
                before = sent(crowd)
                await crowd.finished(MINUTES)
                return sent(crowd) - before

            per_member[others] = {
                kind: size / len(crowd.seats) for kind, size in swarm.run(two_rounds()).items()
            }
    for kind in (
        "run.heartbeat",
        "round.ready",
        "round.proposal",
        "round.close",
        "round.vote",
        "round.decided",
    ):
        assert per_member[24][kind] < 1.4 * per_member[6][kind], per_member


def sent(crowd: Crowd) -> Counter[str]:
    """Bytes of messages by kind, of all members."""
    return sum((Counter(seat.host.endpoint.sent) for seat in crowd.seats), Counter())
