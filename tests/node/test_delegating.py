"""The root key leaves its daily work to another key, for some things, for a time, until it revokes that."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from node.cli import main
from node.delegating import key_in
from node.roles.coordinator import Coordinator
from protocol.delegation import SCOPES, Delegation, authority
from protocol.envelope import seal
from protocol.identity import Identity
from protocol.testing import Swarm
from tests.diloco.member.fleet import OPERATOR, tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd, Seat

GENESIS = tiny_genesis(rounds=1000, round={"chunk": 4096})
DELEGATE = Identity.ephemeral(b"d" * 32)
MINUTES = timedelta(minutes=3)


def delegation(number: int, *scopes: str, signer: Identity = OPERATOR, expires_at: int = 1 << 40) -> bytes:
    said = Delegation(
        delegate=DELEGATE.peer_id, scopes=scopes or SCOPES, number=number, expires_at=expires_at
    )
    return seal(signer, GENESIS.run_id, said).raw


def right(raw: bytes, scope: str = "ban", who: Identity = DELEGATE) -> Any:
    return authority(who.peer_id, raw, scope, root=OPERATOR.peer_id, run=GENESIS.run_id)


def test_a_delegation_is_good_for_its_key_its_scopes_and_its_run_only() -> None:
    assert right(b"", who=OPERATOR).number == 0 and right(delegation(7)).number == 7
    assert right(delegation(7, "admit")) is None and right(b"") is None and right(b"x" * 2000) is None
    assert right(delegation(7), who=Identity.ephemeral(b"e" * 32)) is None
    assert right(delegation(7, signer=DELEGATE)) is None and right(delegation(0)) is None
    other = seal(
        OPERATOR, "0" * 64, Delegation(delegate=DELEGATE.peer_id, scopes=SCOPES, number=1, expires_at=1)
    )
    assert right(other.raw) is None
    assert right(delegation(7, expires_at=100)).expired(101) and not right(delegation(7)).expired(1e9)


def test_the_command_makes_a_key_that_may_sign_once_the_root_key_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Identity.create(tmp_path / "operator.key")
    genesis = GENESIS.model_copy(update={"operator_root": root.peer_id})
    assert main(["admin", "delegate", str(tmp_path)]) == 2
    assert "does not hold a run's genesis" in capsys.readouterr().err
    (tmp_path / "genesis.json").write_bytes(genesis.to_bytes())
    assert main(["admin", "delegate", str(tmp_path), "--scopes", "admit,everything"]) == 2
    assert main(["admin", "delegate", str(tmp_path), "--for", "a while"]) == 2
    assert main(["admin", "delegate", str(tmp_path), "--scopes", "admit,reset", "--for", "7 d"]) == 0
    assert "may sign for the operator (admit, reset) for 7 d" in capsys.readouterr().out
    here = key_in(tmp_path, genesis)
    assert here is not None and here.identity.peer_id == root.peer_id and not here.delegation
    (tmp_path / "operator.key").rename(tmp_path / "away")
    there = key_in(tmp_path, genesis)
    assert there is not None and there.identity.peer_id != root.peer_id
    found = authority(
        there.identity.peer_id, there.delegation, "reset", root=root.peer_id, run=genesis.run_id
    )
    assert found is not None
    assert key_in(tmp_path, GENESIS) is None, "it is of another run"


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=71, run=None) as made:
        yield made


def office(crowd: Crowd, folder: Path, key: Identity, raw: bytes = b"") -> Coordinator:
    seat = crowd.seats[0]
    network: Any = SimpleNamespace(banned=frozenset(), members={}, newcomers={}, me=seat.host.peer_id)
    return Coordinator(
        key, crowd.genesis, seat.member.setting.rules, network, lambda: seat.member.ledger, seat.emit,
        crowd.swarm.wall, folder / "invited.json", raw,
    )  # fmt: skip


def test_a_delegate_orders_and_admits_until_the_root_key_revokes_it(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, GENESIS)
    first = crowd.seats[0]
    delegate = office(crowd, tmp_path, DELEGATE, delegation(5, "admit", "order", "anchor"))
    root = office(crowd, tmp_path, OPERATOR)

    def value() -> Any:
        assert first.member.state is not None
        return first.member.state.value

    def admitted(number: int) -> Seat:
        peer = swarm.identity(number).peer_id
        seat = crowd.join(seat=False)
        assert seat.host.peer_id == peer
        raw = delegate.admit(peer, ("trainer",))
        object.__setattr__(seat.member.setting, "admission", raw)
        return seat

    async def scene() -> None:
        await crowd.until(lambda: 1 in first.digests(), MINUTES)
        fourth = admitted(4)
        await crowd.until(lambda: fourth.host.peer_id in value().members, MINUTES)
        delegate.order(first.member, "ban", "not in its scopes", peer=fourth.host.peer_id)
        delegate.order(first.member, "pause", "")
        await crowd.until(lambda: bool(value().paused), MINUTES)
        assert not value().banned
        delegate.order(first.member, "revoke", "by itself", value="1")
        delegate.order(first.member, "resume", "")
        await crowd.until(lambda: not value().paused, MINUTES)
        assert value().revoked == 0
        root.order(first.member, "revoke", "it is over", value="5")
        await crowd.until(lambda: value().revoked == 5, MINUTES)
        number = value().order_number
        delegate.order(first.member, "pause", "")
        fifth = admitted(5)
        round_number = value().round
        await crowd.until(lambda: value().round >= round_number + 3, MINUTES)
        assert value().order_number == number and not value().paused
        assert fourth.host.peer_id in value().members, "who is in stays in"
        assert fifth.host.peer_id not in value().members

    swarm.run(scene())
    crowd.check_equal()


def test_a_delegate_resets_where_its_scopes_say_so(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, GENESIS)
    first = crowd.seats[0]
    run = crowd.genesis

    async def scene() -> None:
        await crowd.until(lambda: 1 in first.digests(), MINUTES)
        for scopes, epoch in ((("admit",), 0), (("reset",), 1)):
            office_of = office(crowd, tmp_path, DELEGATE, delegation(3, *scopes))
            office_of._network.members = {  # type: ignore[misc]
                seat.host.peer_id: SimpleNamespace(
                    admission=seat.member.setting.admission, boot=seat.host.endpoint.boot
                )
                for seat in crowd.seats
            }
            await crowd.until(
                lambda: first.member.state is not None and first.member.state.base is not None, MINUTES
            )
            try:
                office_of.reset(first.member, "a test")
            except Exception as error:
                assert epoch == 0 and "not signed by the run's operator" in str(error)
        await crowd.until(
            lambda: all(
                seat.member.state is not None and seat.member.state.epoch == 1 for seat in crowd.seats
            ),
            MINUTES,
        )
        assert run.operator == OPERATOR.peer_id

    swarm.run(scene())
    crowd.check_equal()
