"""A member whose state differs gets the chunks that differ, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diloco.digest import leaves
from diloco.member import repairing
from diloco.member.messages import AskLeaves, AskState, Leaves, StatePiece
from diloco.member.repairing import Repairing
from protocol.errors import Code, NodeError
from protocol.testing import Swarm
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd, Seat

CHUNK = 256


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with Swarm(seed=12, run=None) as made:
        yield made


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each piece of a state that any member sent."""
    sent: list[int] = []

    def piece(*, chunk: int, offset: int, data: bytes) -> StatePiece:
        sent.append(len(data))
        return StatePiece(chunk=chunk, offset=offset, data=data)

    monkeypatch.setattr(repairing, "StatePiece", piece)
    return sent


def spoil(seat: Seat, *chunks: int) -> None:
    """One value of each chunk changes in this member's memory."""
    params, momentum = seat.state.back()
    params[:] = seat.state.params
    momentum[:] = seat.state.momentum
    for chunk in chunks:
        params[chunk * CHUNK + 17] += np.float32(0.25)
    seat.state.flip(seat.state.round)


async def spoiled_in_round_two(crowd: Crowd, victim: Seat, *chunks: int) -> None:
    await crowd.until(
        lambda: any(event["round"] == 2 for event in victim.of("train.begin")), timedelta(minutes=5)
    )
    spoil(victim, *chunks)
    await crowd.finished()


@pytest.mark.parametrize("chunks", [(3,), (0, 2, 5)])
def test_only_the_chunks_that_differ_travel(
    swarm: Swarm, tmp_path: Path, pieces: list[int], chunks: tuple[int, ...]
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=5))
    victim = crowd.seats[1]
    swarm.run(spoiled_in_round_two(crowd, victim, *chunks))
    (repaired,) = victim.of("state.repaired")
    assert repaired["chunks"] == list(chunks) and repaired["round"] == 3
    assert repaired["bytes"] == sum(pieces) == 8 * CHUNK * len(chunks)
    assert victim.of("diverged") and not victim.of("state.downloaded")
    assert victim.digests()[5] == crowd.seats[0].digests()[5] == crowd.seats[2].digests()[5]


def test_a_holder_that_sends_wrong_bytes_is_refused_and_another_one_gives(
    swarm: Swarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=5))
    victim = crowd.seats[1]
    honest = StatePiece
    liars: list[int] = []

    def piece(*, chunk: int, offset: int, data: bytes) -> StatePiece:
        if liars:
            return honest(chunk=chunk, offset=offset, data=data)
        liars.append(1)
        return honest(chunk=chunk, offset=offset, data=bytes(len(data)))

    monkeypatch.setattr(repairing, "StatePiece", piece)
    swarm.run(spoiled_in_round_two(crowd, victim, 3))
    (refused,) = victim.of("repair.refused")
    (repaired,) = victim.of("state.repaired")
    assert refused["code"] == Code.RND_CHUNK and refused["peer"] in repaired["holders"]
    assert len(repaired["holders"]) == 2
    assert victim.digests()[5] == crowd.seats[0].digests()[5]


def test_a_member_that_nobody_gives_chunks_restores_its_state_as_after_a_restart(
    swarm: Swarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no(self: Repairing, message: AskLeaves, context: Any) -> AsyncIterator[Leaves]:
        raise NodeError(Code.SHC_MISSING, "No.")
        yield

    monkeypatch.setattr(Repairing, "on_ask_leaves", no)
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=5))
    victim = crowd.seats[1]
    swarm.run(spoiled_in_round_two(crowd, victim, 3))
    assert victim.of("repair.failed") and not victim.of("state.repaired")
    assert victim.digests()[5] == crowd.seats[0].digests()[5]


def test_lists_of_digests_that_are_not_the_states_are_refused_within_bounds(
    swarm: Swarm, tmp_path: Path
) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=1))
    swarm.run(crowd.finished())
    seat = crowd.seats[0]
    grid = seat.member.setting.grid
    right = b"".join(leaves(seat.state.params, seat.state.momentum, grid))
    base = bytes.fromhex(seat.digests()[1])
    taken = 0

    def answers(*parts: Leaves, endless: bool = False) -> Any:
        async def stream(peer: str, question: Any, *, progress: timedelta) -> AsyncIterator[Leaves]:
            nonlocal taken
            for part in parts:
                taken += 1
                yield part
            while endless:
                taken += 1
                yield Leaves(digests=b"\0" * 32)

        return stream

    mending = seat.member._outer._repairing
    peer = crowd.seats[1].host.peer_id

    async def ask(stream: Any) -> None:
        seat.host.endpoint.stream = stream
        with pytest.raises(NodeError) as refused:
            await mending.repair(1, base, [peer])
        assert refused.value.code == Code.SHC_NO_HOLDER

    async def scene() -> None:
        await ask(answers())
        await ask(answers(Leaves(digests=right[:-32])))
        await ask(answers(Leaves(digests=right + right[:32])))
        await ask(answers(Leaves(digests=right[:-1])))
        await ask(answers(Leaves(digests=right[:-32] + b"\0" * 32)))
        await ask(answers(endless=True))

    swarm.run(scene())
    assert taken < 20
    assert {event["code"] for event in seat.of("repair.refused")} == {Code.RND_CHUNK}


def test_a_state_that_is_not_in_memory_is_not_given(swarm: Swarm, tmp_path: Path) -> None:
    crowd = Crowd(swarm, tmp_path, tiny_genesis(rounds=1))
    swarm.run(crowd.finished())
    seat, other = crowd.seats[:2]
    base = bytes.fromhex(seat.digests()[1])

    async def ask(question: Any) -> list[Any]:
        answers = seat.host.endpoint.stream(other.host.peer_id, question, progress=timedelta(seconds=5))
        return [answer async for answer in answers]

    async def refused(question: Any, code: Code) -> None:
        with pytest.raises(NodeError) as error:
            await ask(question)
        assert error.value.code == code

    async def scene() -> None:
        (piece,) = await ask(AskState(round=1, base=base, chunks=(2,)))
        assert len(piece.data) == 8 * CHUNK
        (whole,) = await ask(AskLeaves(round=1, base=base))
        assert len(whole.digests) == 32 * seat.member.setting.grid.count
        await refused(AskLeaves(round=0, base=base), Code.SHC_MISSING)
        await refused(AskLeaves(round=1, base=b"\0" * 32), Code.SHC_MISSING)
        await refused(AskState(round=2, base=base, chunks=(0,)), Code.SHC_MISSING)
        await refused(AskState(round=1, base=base, chunks=(1 << 40,)), Code.WIRE_INVALID)
        await asyncio.sleep(0)

    swarm.run(scene())


@pytest.mark.parametrize(("missed", "whole"), [(7, False), (8, True)])
def test_few_missed_rounds_are_replayed_and_more_are_not(
    swarm: Swarm, tmp_path: Path, missed: int, whole: bool
) -> None:
    """Reduced bytes cost a byte per parameter and round, a checkpoint eight: below eight rounds they are less."""
    left = 6
    back = left + missed  # others have a checkpoint of round 12 by then
    genesis = tiny_genesis(rounds=back + 2, round={"checkpoint_every": 4})
    crowd = Crowd(swarm, tmp_path, genesis)
    first, second, late = crowd.seats
    opened = asyncio.Event()

    async def scene() -> None:
        minutes = timedelta(minutes=20)
        await crowd.until(lambda: left in late.digests(), minutes)
        late.host.kill()
        for seat in (first, second):
            seat.trainer.gate = lambda number, step: opened if number >= back else None
        await crowd.until(lambda: back in first.digests() and back in second.digests(), minutes)
        late.host.boot_up()
        late.events.clear()
        late.build()
        late.host.spawn(late.member.run())
        await crowd.until(lambda: back in late.digests(), minutes)
        opened.set()
        await crowd.finished(minutes)

    swarm.run(scene())
    crowd.check_equal()
    (got,) = late.of("state.downloaded")
    parameters = genesis.parameters
    if whole:
        assert got["bytes"] >= 9 * parameters, "a checkpoint, and the rounds since"
    else:
        assert got["bytes"] < 1.1 * missed * parameters
