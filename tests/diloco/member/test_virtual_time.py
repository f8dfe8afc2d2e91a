"""Unchanged members on an in-memory swarm: whole runs in virtual time, with faults that no real network would give."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diloco.creation import grid_of, initial_state
from diloco.genesis import Genesis
from diloco.member.admission import Admission, admit, anchor_in, seats
from diloco.member.member import Member
from diloco.member.setting import Setting, codec_of, rules_of, timing_of
from diloco.outer_state import OuterState
from diloco.rounds import founding
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Persist
from diloco.rounds.records import Start
from diloco.rounds.values import value_digest
from diloco.store.ledger import Ledger
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.identity import Signer
from protocol.messages import encode
from protocol.testing import Conditions, Host, Swarm
from tests.diloco.member.fleet import OPERATOR, ScriptedTrainer, tiny_genesis


def noise(number: int, round_number: int, state: OuterState) -> np.ndarray:
    random = np.random.default_rng((number, round_number))
    return (random.standard_normal(state.layout.size) * 1e-3).astype(np.float32)


class Seat:
    """One member on a node of the swarm."""

    def __init__(
        self, crowd: "Crowd", host: Host, folder: Path, *, seated: bool = True, **admission: Any
    ) -> None:
        self.crowd, self.host, self.folder = crowd, host, folder
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.admission = {"roles": ("trainer",), "seat": seated, **admission}
        self.knows: Callable[[Host], bool] = lambda other: True
        self.build()

    def build(self) -> None:
        genesis, host = self.crowd.genesis, self.host
        self.folder.mkdir(parents=True, exist_ok=True)
        admission = Admission(peer=host.peer_id, **self.admission)
        setting = Setting(
            genesis=genesis,
            run=genesis.run_id,
            rules=rules_of(
                genesis,
                seats(genesis.run_id, genesis.operator, verifier=host.endpoint.verifier),
                verifier=host.endpoint.verifier,
            ),
            timing=timing_of(genesis),
            grid=grid_of(genesis),
            codec=codec_of(genesis),
            endpoint=host.endpoint,
            folder=self.folder,
            peers=lambda: [
                other.peer_id
                for other in self.crowd.swarm.hosts
                if other is not host and self.knows(other) and self.crowd.knows(host, other)
            ],
            admission=admit(self.crowd.operator, genesis.run_id, admission),
            emit=self.emit,
            anchor=anchor_in(admission),
            wall=self.crowd.swarm.wall,
        )
        self.state = initial_state(genesis)
        self.trainer = ScriptedTrainer(host.number, self.state, noise, step=1.0)
        self.member = Member(setting, self.state, self.trainer)

    def emit(self, kind: str, /, **fields: Any) -> None:
        self.events.append((kind, fields))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == kind]

    def digests(self) -> dict[int, str]:
        return {fields["round"]: fields["digest"] for fields in self.of("apply")}


class Crowd:
    """Members of a run that has begun; the first of them have seats."""

    def __init__(
        self,
        swarm: Swarm,
        folder: Path,
        genesis: Genesis,
        count: int = 3,
        operator: Signer = OPERATOR,
        seats: int | None = None,
    ) -> None:
        self.swarm, self.genesis, self.operator = swarm, genesis, operator
        self.knows: Callable[[Host, Host], bool] = lambda one, other: True
        self.folder = folder
        hosts = swarm.nodes(count, run=genesis.run_id)
        vote = {host.peer_id: seats is None or number < seats for number, host in enumerate(hosts)}
        self.seats = [Seat(self, host, folder / host.name, seated=vote[host.peer_id]) for host in hosts]
        rules = self.seats[0].member.setting.rules
        boots = {host.peer_id: host.endpoint.boot for host in hosts}
        value = founding.make_start(rules, genesis.base, vote, boots, b"\5" * 32)
        data = encode(value)
        start = seal(operator, genesis.run_id, Start(value=data))
        self.seats[0].member.found(Certified(value, data, value_digest(data), start=start.raw))
        for seat in self.seats:
            seat.host.spawn(seat.member.run())

    def join(self, **admission: Any) -> Seat:
        """Somebody comes, with an admission like this, and begins to join."""
        host = self.swarm.node(run=self.genesis.run_id)
        seat = Seat(self, host, self.folder / host.name, **admission)
        self.seats.append(seat)
        host.spawn(seat.member.run())
        return seat

    async def until(self, condition: Callable[[], bool], within: timedelta) -> None:
        async with asyncio.timeout(within.total_seconds()):
            while not condition():
                await asyncio.sleep(0.1)

    async def finished(self, within: timedelta = timedelta(minutes=10)) -> None:
        await self.until(lambda: all(seat.of("run.finished") for seat in self.seats), within)

    def check_equal(self) -> None:
        seen: dict[int, str] = {}
        for seat in self.seats:
            for number, digest in seat.digests().items():
                assert seen.setdefault(number, digest) == digest, f"{seat.host.name}, round {number}"


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=1, run=None) as made:
        yield made


def test_three_members_train_and_agree_in_virtual_time(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis())
    swarm.run(crowd.finished())
    crowd.check_equal()
    assert all(sorted(seat.digests()) == [0, 1, 2, 3, 4] for seat in crowd.seats)
    assert all(
        commit["roster"] == sorted(host.peer_id for host in swarm.hosts)
        for commit in crowd.seats[0].of("commit")
    )
    assert swarm.time > 4 * 4  # four rounds of four steps of a second


def test_members_may_sign_with_a_keyed_hash(tmp_path: Path) -> None:
    with Swarm(seed=2, keyed=True, run=None) as swarm:
        operator = swarm.identity(0)
        genesis = tiny_genesis(rounds=2).model_copy(update={"operator_root": operator.peer_id})
        crowd = Crowd(swarm, tmp_path, genesis, count=5, operator=operator)
        swarm.run(crowd.finished())
        crowd.check_equal()
        assert all(2 in seat.digests() for seat in crowd.seats)


def test_two_runs_of_one_seed_are_the_same_to_the_bit(tmp_path: Path) -> None:
    heard = []
    for attempt in ("first", "second"):
        rough = Conditions(delay=timedelta(milliseconds=30), jitter=timedelta(milliseconds=30), loss=0.01)
        with Swarm(seed=7, run=None, conditions=rough, record=True) as swarm:
            crowd = Crowd(swarm, tmp_path / attempt, tiny_genesis(rounds=2))
            swarm.run(crowd.finished())
            crowd.check_equal()
            heard.append(swarm.recording)
    assert heard[0] == heard[1]


def test_members_agree_through_loss_a_pause_a_partition_and_a_restart(swarm: Swarm, tmp_path: Path) -> None:
    swarm.network.conditions = Conditions(
        delay=timedelta(milliseconds=20), jitter=timedelta(milliseconds=20), loss=0.02, duplication=0.02,
        reordering=0.1, corruption=0.02,
    )  # fmt: skip
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=6))
    first, second, third = crowd.seats

    async def scene() -> None:
        await crowd.until(lambda: 1 in first.digests(), timedelta(minutes=5))
        third.host.pause()
        await asyncio.sleep(20)
        third.host.resume()
        swarm.network.partition([first.host, second.host], [third.host])
        await asyncio.sleep(20)
        swarm.network.heal()
        second.host.kill()
        await asyncio.sleep(5)
        second.host.boot_up()
        second.build()
        second.host.spawn(second.member.run())
        await crowd.finished(timedelta(minutes=30))

    swarm.run(scene())
    crowd.check_equal()
    assert 6 in first.digests() and 6 in second.digests() and 6 in third.digests()


def test_a_member_whose_disk_was_full_says_its_ready_when_there_is_room(
    swarm: Swarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full: list[Ledger] = []
    save = Ledger.save_promise

    def save_if_there_is_room(ledger: Ledger, promise: Persist) -> None:
        if ledger in full:
            raise NodeError(Code.STO_FULL, "The disk is full.")
        save(ledger, promise)

    monkeypatch.setattr(Ledger, "save_promise", save_if_there_is_room)
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=2), count=2)
    first, second = crowd.seats
    full += [first.member.ledger, second.member.ledger]

    async def scene() -> None:
        await crowd.until(lambda: bool(first.of("abstain") and second.of("abstain")), timedelta(minutes=1))
        await asyncio.sleep(20)
        assert not first.of("commit") and not second.of("commit")
        full.clear()
        await crowd.finished(timedelta(minutes=2))

    swarm.run(scene())
    crowd.check_equal()
