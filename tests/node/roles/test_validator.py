"""A validator believes a draw only by the chain that its trainer committed to."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from node.roles.policies import PolicyFollower
from node.roles.validator import MOST_WAITING, Validator
from protocol.errors import Code, NodeError
from protocol.rpc import Endpoint
from protocol.testing import local_endpoints
from protocol.units import Digest
from rl.messages import Draw, Policies, Policy
from rl.orchestration.audits import Audits
from rl.validation.draw import LINKS, Shares

AUDITS = Audits(b"k" * 32, "run", Shares())


def draw(number: int, link: bytes | None = None, digest: bytes | None = None) -> Draw:
    policy = Policy(version=0, weights=b"w" * 32, beacon=b"b" * 32)
    return Draw(
        digest=digest or number.to_bytes(32), worker="w", counter=0, policy=policy, positions=(0,), newest=0,
        standing="new", number=number, link=link or AUDITS.link(number),
    )  # fmt: skip


async def validator(here: Endpoint, there: Endpoint, folder: Path, number: int = 1) -> Validator:
    policies = PolicyFollower(here, lambda: [there.peer_id], folder, (), 4, lambda kind, /, **fields: None)
    chain = (number - 1) // LINKS
    await policies._take(there.peer_id, Policies(anchor=AUDITS.anchor(number), chain=chain))
    judge: Any = None
    return Validator(
        here.peer_id, here, lambda: [there.peer_id], judge, Shares(), policies, folder, lambda kind, /, **f: None,
        lambda *said: None,
    )  # fmt: skip


async def test_links_of_the_chain_are_taken_in_any_order_and_others_are_not(tmp_path: Path) -> None:
    async with local_endpoints(2) as (here, there):
        made = await validator(here, there, tmp_path)
        context: Any = SimpleNamespace(sender=there.peer_id)
        for number in (3, 1, 2, 40, 17):
            await made.on_draw(draw(number), context)
        for wrong in (draw(5, AUDITS.link(6)), draw(5, b"x" * 32), draw(41, AUDITS.link(40))):
            with pytest.raises(NodeError) as refused:
                await made.on_draw(wrong, context)
            assert refused.value.code is Code.RL_DRAW
        await made.on_draw(draw(5), context)


async def test_an_anchor_that_is_told_later_changes_nothing(tmp_path: Path) -> None:
    async with local_endpoints(2) as (here, there):
        made = await validator(here, there, tmp_path)
        chosen = Audits(b"another key, chosen afterwards!!", "run", Shares())
        await made._policies._take(there.peer_id, Policies(anchor=chosen.anchor(1), chain=0))
        assert made._policies.anchor(there.peer_id, 0) == Digest(AUDITS.anchor(1))
        context: Any = SimpleNamespace(sender=there.peer_id)
        with pytest.raises(NodeError):
            await made.on_draw(draw(1, chosen.link(1)), context)
        await made.on_draw(draw(1), context)


async def test_draws_that_wait_are_bounded_and_one_that_is_repeated_waits_once(tmp_path: Path) -> None:
    async with local_endpoints(2) as (here, there):
        made = await validator(here, there, tmp_path)
        context: Any = SimpleNamespace(sender=there.peer_id)
        for _ in range(3):
            await made.on_draw(draw(1), context)
        for number in range(2, MOST_WAITING + 1):
            await made.on_draw(draw(number), context)
        with pytest.raises(NodeError) as busy:
            await made.on_draw(draw(MOST_WAITING + 1), context)
        assert busy.value.code is Code.NET_BUSY and busy.value.retriable
