"""What the operator orders becomes a signed order that members take up."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from node.roles.coordinator import Coordinator
from node.roles.planned import MOST, Planned
from node.roles.wish import Wish, wish_of
from node.roles.wishes import carry_out, lines, listed
from protocol.errors import Code, NodeError
from protocol.testing import Swarm
from tests.diloco.member.fleet import OPERATOR, tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd

MINUTES = timedelta(minutes=5)


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=51, run=None) as made:
        yield made


def office(crowd: Crowd, folder: Path) -> Coordinator:
    seat = crowd.seats[0]
    network: Any = SimpleNamespace(banned=frozenset(), members={}, me=seat.host.peer_id)
    return Coordinator(
        OPERATOR, crowd.genesis, seat.member.setting.rules, network, lambda: seat.member.ledger, seat.emit,
        crowd.swarm.wall, folder / "invited.json",
    )  # fmt: skip


def test_a_latecomer_of_an_open_run_votes_once_the_operator_gives_it_a_seat(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=1000))
    first = crowd.seats[0]
    coordinator = office(crowd, tmp_path)

    async def scene() -> None:
        await crowd.until(lambda: 1 in first.digests(), MINUTES)
        late = crowd.join(seat=False)
        peer = late.host.peer_id

        def value() -> Any:
            assert first.member.state is not None
            return first.member.state.value

        await crowd.until(lambda: peer in value().members, MINUTES)
        done = carry_out(coordinator, first.member, wish_of({"do": "seat", "peer": peer}))
        assert done.sentence == f"Order 1: {peer} votes once a value lists it."
        await crowd.until(lambda: peer in {elector.peer for elector in value().electorate}, MINUTES)
        carry_out(coordinator, first.member, wish_of({"do": "pause", "reason": "it is late"}))
        await crowd.until(lambda: bool(value().paused), MINUTES)
        carry_out(coordinator, first.member, wish_of({"do": "resume"}))
        await crowd.until(lambda: not value().paused and bool(value().roster), MINUTES)
        assert carry_out(coordinator, first.member, wish_of({"do": "finish"})).sentence.startswith(
            "Order 4: The run ends"
        )
        await crowd.finished(MINUTES)

    swarm.run(scene())
    crowd.check_equal()
    assert len(crowd.seats) == 4 and max(first.digests()) < 100


@pytest.mark.parametrize(
    "question",
    [
        {"do": "forgive"},
        {"do": "ban", "peer": "nobody"},
        {"do": "kick"},
        {"do": "parameter", "name": "model.hidden", "value": "7"},
        {"do": "parameter", "name": "outer.lr", "value": "much"},
        {},
        {"do": "ban", "peer": OPERATOR.peer_id, "seconds": "-1"},
        {"do": "ban", "peer": OPERATOR.peer_id, "seconds": "x"},
        {"do": "pause", "seconds": "60"},
        {"do": "pause", "round": "-2"},
        {"do": "parameter", "name": "outer.lr", "value": "much", "round": "900"},
        {"do": "admit", "peer": OPERATOR.peer_id, "round": "900"},
        {"do": "drop", "value": "1"},
        {"do": "uninvite", "value": "one"},
    ],
)
def test_what_cannot_be_ordered_is_refused(swarm: Swarm, tmp_path: Path, question: dict[str, Any]) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis())
    coordinator = office(crowd, tmp_path)
    with pytest.raises(NodeError) as refused:
        carry_out(coordinator, crowd.seats[0].member, wish_of(question))
    assert refused.value.code in (Code.CFG_USAGE, Code.ID_BAD_PEER)
    assert not crowd.seats[0].of("order.given")


def test_a_parameter_waits_for_its_round_and_a_ban_ends_by_itself(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=1000))
    first, banned = crowd.seats[0], crowd.seats[-1].host.peer_id
    coordinator = office(crowd, tmp_path)

    def ledger() -> Any:
        return first.member.ledger

    def give() -> None:
        coordinator.planned.give(
            coordinator.now(), coordinator.decided(), first.member.order_number,
            lambda wish: carry_out(coordinator, first.member, wish).order,
        )  # fmt: skip

    def given(condition: Any) -> Any:
        def look() -> bool:
            give()
            return bool(condition())

        return look

    async def scene() -> None:
        await crowd.until(lambda: 1 in first.digests(), MINUTES)
        number = coordinator.decided() + 5
        wish = Wish("parameter", "it learns too slowly", name="outer.lr", value="0.5", round=number)
        done = carry_out(coordinator, first.member, wish)
        assert done.order == 0 and f"waits under number {done.number}" in done.sentence
        assert lines(coordinator, "planned") == f"1: parameter outer.lr 0.5, from round {number}"
        coordinator.planned = Planned(tmp_path / "planned.json")  # as after a restart
        await crowd.until(given(lambda: ledger().tip().value.parameters), MINUTES)
        named = ledger().tip().value
        assert named.parameters[0].value == "0.5" and named.round >= number - 1
        await crowd.until(given(lambda: not listed(coordinator, "planned")), MINUTES)

        carry_out(coordinator, first.member, Wish("ban", "it is broken", banned, seconds=60))
        assert lines(coordinator, "planned") == f"2: unban {banned}, in 1 min"
        ordered = coordinator.now()
        await crowd.until(given(lambda: banned in ledger().tip().value.banned), MINUTES)
        await crowd.until(given(lambda: banned not in ledger().tip().value.banned), MINUTES)
        assert coordinator.now() >= ordered + 60
        await crowd.until(given(lambda: not listed(coordinator, "planned")), MINUTES)
        carry_out(coordinator, first.member, Wish("finish"))
        await crowd.until(lambda: bool(first.of("run.finished")), MINUTES)

    swarm.run(scene())


def test_what_waits_is_dropped_by_its_number_or_by_another_order(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis())
    coordinator, member = office(crowd, tmp_path), Voice()
    somebody = crowd.seats[1].host.peer_id
    for seconds in (60, 600):
        carry_out(coordinator, member, Wish("ban", "x", somebody, seconds=seconds))
    assert [each["number"] for each in listed(coordinator, "planned")] == [2], "the newer ban's end alone"
    carry_out(coordinator, member, Wish("drop", "for good", value="2"))
    assert lines(coordinator, "planned") == "None."
    carry_out(coordinator, member, Wish("pause", "x", round=7))
    with pytest.raises(NodeError) as refused:
        for _ in range(MOST):
            carry_out(coordinator, member, Wish("pause", "x", round=7))
    assert refused.value.code == Code.CFG_USAGE
    (tmp_path / "planned.json").write_bytes(b"[{]")
    with pytest.raises(NodeError) as damaged:
        Planned(tmp_path / "planned.json")
    assert damaged.value.code == Code.STO_CORRUPT


def test_members_write_a_checkpoint_and_check_every_chunk_when_the_operator_wants_it(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=1000, round={"checkpoint_every": 8}))
    first = crowd.seats[0]
    coordinator = office(crowd, tmp_path)

    def kept(seat: Any) -> list[int]:
        files = (seat.folder / "checkpoints").glob("round-*.safetensors")
        return [int(path.stem.removeprefix("round-")) for path in files]

    def checked() -> dict[int, int]:
        """By round, how many times one of its chunks was checked by somebody."""
        return Counter(event["round"] for seat in crowd.seats for event in seat.of("audit"))

    async def scene() -> None:
        await crowd.until(lambda: 3 in first.digests(), MINUTES)
        everything = len(first.member.ledger.tip().value.chunks) * (len(crowd.seats) - 1)
        assert all(number % 8 == 0 for seat in crowd.seats for number in kept(seat))
        assert 0 < max(checked().values()) < everything
        carry_out(coordinator, first.member, Wish("checkpoint", "before the upgrade"))
        await crowd.until(lambda: all(any(n % 8 for n in kept(seat)) for seat in crowd.seats), MINUTES)
        carry_out(coordinator, first.member, Wish("audit", "the loss jumped"))
        await crowd.until(lambda: max(checked().values()) == everything, MINUTES)
        carry_out(coordinator, first.member, Wish("finish"))
        await crowd.finished(MINUTES)
        assert sorted(checked().values())[-2] < everything, "one round alone"

    swarm.run(scene())
    crowd.check_equal()


class Voice:
    """Voters that take nothing up."""

    order_number = 0

    def give_order(self, sealed: Any) -> None:
        """An order that nobody hears."""
