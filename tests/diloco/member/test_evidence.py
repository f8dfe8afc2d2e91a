"""Who signs what no honest member can sign is found out by one, known to all, and not forgotten by a restart."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from diloco.rounds.evidence import contradiction
from diloco.rounds.proofs import Proofs
from diloco.rounds.statements import Vote
from diloco.store.ledger import Ledger
from diloco.store.verification import proofs_in, verify_ledger
from protocol.envelope import seal
from protocol.errors import Code
from protocol.messages import encode
from protocol.testing import Swarm
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd

GENESIS = tiny_genesis(rounds=1000)
PROOFS = Proofs(GENESIS.run_id, GENESIS.operator, GENESIS.base)


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=31, run=None) as made:
        yield made


def test_evidence_reaches_all_costs_the_seat_and_survives_restarts(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, GENESIS, count=4)
    liar, finder, *others = crowd.seats
    culprit = liar.host.peer_id
    minutes = timedelta(minutes=5)

    async def scene() -> None:
        await crowd.until(lambda: all(1 in seat.digests() for seat in crowd.seats), minutes)
        state = finder.member.state
        assert state is not None
        for value in (b"a" * 32, b"b" * 32):
            vote = Vote(epoch=0, round=state.round, attempt=40, value=value)
            await liar.host.endpoint.post(
                finder.host.peer_id, seal(liar.host.endpoint.identity, GENESIS.run_id, vote)
            )
        await crowd.until(lambda: all(seat.member.evidence for seat in (finder, *others)), minutes)
        last = others[-1]
        await crowd.until(
            lambda: (
                last.member.state is not None
                and culprit not in {elector.peer for elector in last.member.state.value.electorate}
            ),
            minutes,
        )
        last.host.kill()
        last.host.boot_up()
        last.build()
        last.host.spawn(last.member.run())
        await crowd.until(lambda: bool(last.member.evidence), minutes)

    swarm.run(scene())
    crowd.check_equal()
    for seat in (finder, *others):
        assert [proof.accused for proof in seat.member.evidence] == [culprit]
        assert "voted for two values" in seat.member.evidence[0].sentence
        assert len(seat.of("evidence")) == 1
        (kept,) = proofs_in(seat.folder / "ledger.sqlite", PROOFS)
        assert kept.accused == culprit


@pytest.mark.parametrize("column", ["accused", "kind", "evidence"])
def test_stored_evidence_cannot_be_turned_against_somebody_else(
    swarm: Swarm, tmp_path: Path, column: str
) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    one, other = swarm.identity(1), swarm.identity(2)
    votes = [
        seal(one, GENESIS.run_id, Vote(epoch=0, round=1, attempt=0, value=value * 32))
        for value in (b"a", b"b")
    ]
    proof = contradiction(*votes)
    assert proof is not None
    ledger.keep_evidence(proof.evidence)
    ledger.keep_evidence(proof.evidence)
    assert ledger.evidence() == [encode(proof.evidence)]
    before = verify_ledger(path, PROOFS).problems
    wrong = {"accused": other.peer_id, "kind": "two-closes", "evidence": b"\1"}[column]
    ledger._db.execute(f"UPDATE evidence SET {column} = ?", (wrong,))
    (found,) = [problem for problem in verify_ledger(path, PROOFS).problems if problem not in before]
    assert found.code == Code.STO_CORRUPT and "Evidence" in found.sentence
    ledger.close()
