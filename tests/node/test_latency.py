"""Nodes ask one another whether they are there, and write down how long the answer took."""

import random
from collections.abc import Mapping
from typing import Any

from node.latency import EVENT, MOST, Latency
from protocol.testing import local_endpoints
from protocol.units import PeerId


async def test_round_trips_of_those_who_answer_are_written_down_and_no_others() -> None:
    said: list[tuple[str, Mapping[str, Any]]] = []
    async with local_endpoints(3) as (ada, bob, cyd):
        asks = Latency(
            ada, lambda: [bob.peer_id, cyd.peer_id], lambda kind, **fields: said.append((kind, fields))
        )
        bob.handle(Latency(bob, list, lambda kind, **fields: None).on_ask)
        await asks.measure()  # cyd has no answer to it
    ((kind, fields),) = said
    assert kind == EVENT and list(fields["seconds"]) == [bob.peer_id]
    assert 0 < fields["seconds"][bob.peer_id] < 5


async def test_of_many_some_are_drawn_and_where_nobody_is_nothing_is_said() -> None:
    said: list[str] = []
    async with local_endpoints(1) as (ada,):
        many = [PeerId(f"peer{number}") for number in range(500)]
        draw = random.Random(1)
        asked: list[PeerId] = []

        class Nobody:
            async def request(self, peer: PeerId, question: object, timeout: object) -> object:
                asked.append(peer)
                return await ada.request(peer, question, timeout=timeout)  # type: ignore[type-var,arg-type]

        await Latency(Nobody(), lambda: many, lambda kind, **fields: said.append(kind), draw).measure()  # type: ignore[arg-type]
        await Latency(ada, list, lambda kind, **fields: said.append(kind)).measure()
    assert len(set(asked)) == len(asked) == MOST and said == []
