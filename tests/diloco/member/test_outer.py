"""The outer state follows the decided rounds, whatever else is decided while it does."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from diloco.member.applying import Applied
from diloco.member.outer import Outer
from diloco.rounds.certificate import Certified
from diloco.rounds.values import Elector, Value, value_digest
from protocol.errors import Code, NodeError
from protocol.messages import encode
from protocol.units import Digest

NONE = Digest(bytes(32))


def decided(number: int, epoch: int = 0) -> Certified:
    value = Value(epoch=epoch, round=number, previous=b"", base=NONE)
    return Certified(value, b"", bytes([epoch, number]), 0, (b"vote",))


def applied(number: int) -> Applied:
    return Applied(number, NONE, NONE, NONE, ())


class World:
    """What an outer state stands in: bytes that cannot be had, a ledger, a way to restore along it."""

    def __init__(self) -> None:
        self.tip = decided(3)
        self.stored: list[Certified] = []
        self.over: list[Certified] = []
        self.forgotten: list[int] = []
        self.restored: list[int] = []
        self.full = False
        self.steps: list[int] = []
        self.asked: list[int] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        setting: Any = SimpleNamespace(
            clock=lambda: 0.0,
            emit=lambda kind, **fields: self.events.append((kind, fields)),
            bytes_sent=lambda: (0, 0),
        )
        nothing: Any = SimpleNamespace(
            get=self.get, append=self.append, interrupt=self.wait, settle=self.wait, gather=self.gather,
            apply=self.apply, restore=self.restore, forget_after=self.forgotten.append, offer=lambda value: None,
            spawn=lambda work, name: asyncio.ensure_future(work),
        )  # fmt: skip
        self.outer = Outer(
            setting, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing,
            state=lambda: SimpleNamespace(epoch=self.tip.value.epoch, value=self.tip.value),  # type: ignore[arg-type, return-value]
            holders=lambda number: [], post=lambda event: None,
        )  # fmt: skip
        self.outer.begin(applied(4))

    async def wait(self, *what: Any) -> None:
        await asyncio.sleep(0)

    async def gather(self, value: Value, *rest: Any) -> list[bytes]:
        self.asked.append(value.round)
        await asyncio.sleep(0)
        raise NodeError(Code.SHC_NO_HOLDER, "The bytes cannot be had any more.")

    def append(self, certified: Certified, *, over: bool) -> None:
        if self.full:
            raise NodeError(Code.STO_FULL, "The disk is full.")
        self.stored.append(certified)
        self.over += [certified] if over else []

    def apply(self, number: int, chunks: Any) -> Applied:
        self.steps.append(number)
        return applied(number + 1)

    async def restore(self, tip: Value, holders: Any, base: bytes | None = None) -> Applied:
        if tip.round >= 4 and tip.round not in [certified.value.round for certified in self.stored]:
            raise NodeError(Code.RND_CHAIN, f"The ledger has no value of round {tip.round}.")
        self.restored.append(tip.round + 1)
        return applied(tip.round + 1)

    def get(self, number: int) -> Certified | None:
        return next((c for c in self.stored if c.value.round == number), None)

    async def until(self, round_number: int) -> None:
        running = asyncio.ensure_future(self.outer.run())
        try:
            async with asyncio.timeout(60):
                while self.outer.reached != round_number:
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_rounds_that_are_decided_while_bytes_are_missing_are_known_to_the_restore() -> None:
    world = World()
    for number in (4, 5, 6):
        world.tip = decided(number)
        world.outer.decide(world.tip)
    await world.until(7)
    assert world.stored == [decided(4), decided(5), decided(6)]


async def test_a_round_that_a_reset_made_void_is_not_applied() -> None:
    world = World()
    world.outer.decide(decided(4))
    world.tip = decided(3, epoch=1)
    world.outer.renew(world.tip, ())
    world.outer.decide(decided(4, epoch=1))
    world.tip = decided(4, epoch=1)
    await world.until(5)
    assert world.steps == []
    assert world.stored == [decided(4), decided(3, epoch=1), decided(4, epoch=1)]


async def test_a_reset_ends_the_wait_for_the_bytes_of_a_void_round() -> None:
    world = World()
    world.tip = decided(4)
    world.outer.decide(world.tip)
    running = asyncio.ensure_future(world.outer.run())
    async with asyncio.timeout(5):
        while not world.asked:
            await asyncio.sleep(0)
    world.tip = decided(2, epoch=1)
    world.outer.renew(world.tip, ())
    await asyncio.sleep(0.1)
    assert not running.done() and world.asked == [4]
    running.cancel()


async def test_a_reset_waits_for_room_on_the_disk() -> None:
    world = World()
    world.full = True
    world.tip = decided(3, epoch=1)
    world.outer.renew(world.tip, ())
    await asyncio.sleep(0.05)
    assert world.stored == [] and world.events[-1][0] == "ledger.waits"
    world.full = False
    async with asyncio.timeout(60):
        while world.stored != [world.tip]:
            await asyncio.sleep(0.01)


async def test_of_what_leads_to_a_new_epoch_the_first_link_replaces_this_members_own() -> None:
    world = World()
    behind = [decided(2), decided(3)]
    world.tip = decided(3, epoch=1)
    world.outer.renew(world.tip, behind)
    async with asyncio.timeout(5):
        while len(world.stored) < 3:
            await asyncio.sleep(0.01)
    assert world.stored == [*behind, world.tip] and world.over == behind[:1]


@pytest.mark.parametrize("stored", [True, False])
async def test_the_state_of_a_value_beside_the_one_that_a_reset_names_is_not_gone_on_from(
    stored: bool,
) -> None:
    world = World()
    ours, voted = decided(3), Value(0, 3, b"other", NONE, electorate=(Elector(peer="anna"),))
    if stored:
        world.append(ours, over=False)
    else:
        world.full = True
        world.outer.decide(ours)
    world.tip = Certified(
        Value(epoch=1, round=3, previous=value_digest(encode(voted)), base=b""), b"", b"reset",
        start=b"reset", last=encode(voted),
    )  # fmt: skip
    world.outer.renew(world.tip, ())
    world.full = False
    async with asyncio.timeout(5):
        while not world.restored:
            await asyncio.sleep(0.01)
    assert (world.forgotten, world.restored) == ([3], [4])
