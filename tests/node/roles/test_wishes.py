"""What the operator orders becomes a signed order that members take up."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from node.roles.coordinator import Coordinator
from node.roles.wishes import carry_out
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
        done, _ = carry_out(coordinator, first.member, {"do": "seat", "peer": peer})
        assert done == f"Order 1: {peer} votes once a value lists it."
        await crowd.until(lambda: peer in {elector.peer for elector in value().electorate}, MINUTES)
        carry_out(coordinator, first.member, {"do": "pause", "reason": "it is late"})
        await crowd.until(lambda: bool(value().paused), MINUTES)
        carry_out(coordinator, first.member, {"do": "resume"})
        await crowd.until(lambda: not value().paused and bool(value().roster), MINUTES)
        assert carry_out(coordinator, first.member, {"do": "finish"})[0].startswith("Order 4: The run ends")
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
    ],
)
def test_what_cannot_be_ordered_is_refused(swarm: Swarm, tmp_path: Path, question: dict[str, Any]) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis())
    coordinator = office(crowd, tmp_path)
    with pytest.raises(NodeError) as refused:
        carry_out(coordinator, crowd.seats[0].member, question)
    assert refused.value.code in (Code.CFG_USAGE, Code.ID_BAD_PEER)
    assert not crowd.seats[0].of("order.given")
