"""A member may die at any point of a round: the others agree, and go on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from diloco.codec import codec
from diloco.member import exchange
from diloco.outer_state import OuterState
from diloco.reduce.contribution import Frozen
from diloco.reduce.messages import Frame
from diloco.reduce.reduction import Reduction
from diloco.rounds import planning
from diloco.rounds.roster import included
from tests.diloco.member.fleet import Fleet, Post, fleet, heavy_tailed, tiny_genesis

PHASES = {
    "while it trains": ("train.step", {"step": 1}),
    "with a frozen contribution": ("contribution.frozen", {}),
    "as it says Ready": ("ready.sent", {}),
    "as the reduce begins": ("reduce.begin", {}),
    "in the middle of the reduce": ("reduce.progress", {"fraction": lambda f: f > 0.4}),
    "between its last byte and the acknowledgement": ("reduce.end", {}),
    "as it votes": ("vote", {}),
    "as it commits": ("commit", {}),
}


def constant(number: int, round_number: int, state: OuterState) -> np.ndarray:
    return np.ones(state.layout.size, np.float32)


async def _founder_killed(folder: Path, phase: str, leads: bool) -> None:
    kind, where = PHASES[phase]
    genesis = tiny_genesis(rounds=3, deadline={"attempt": "2 s"})
    async with fleet(folder, 4, heavy_tailed, genesis, begin=False) as crowd:
        founder = crowd.posts[0]
        rules = founder.member.setting.rules
        founder.on(kind, founder.die, round=0, **where)
        crowd.begin(lambda value: (planning.leaders(rules, value)[0] == founder.peer) == leads)
        await crowd.until(lambda: founder.killed)
        await crowd.all_finished(90)
        crowd.check_equal()
        assert len(crowd.living()) == 3
        assert all(3 in post.digests() for post in crowd.living()), "no living member lost a round"
        crowd.check_books()


@pytest.mark.failure_mode(4)
@pytest.mark.failure_mode(26)
@pytest.mark.parametrize("half", [0, 1])
async def test_a_founder_killed_at_any_transition_costs_no_round(tmp_path: Path, half: int) -> None:
    await _phases(tmp_path, half, leads=False)


@pytest.mark.failure_mode(4)
@pytest.mark.failure_mode(7)
@pytest.mark.failure_mode(26)
@pytest.mark.parametrize("half", [0, 1])
async def test_a_founder_that_leads_may_be_killed_at_any_transition(tmp_path: Path, half: int) -> None:
    await _phases(tmp_path, half, leads=True)


async def _phases(folder: Path, half: int, leads: bool) -> None:
    """Half of the phases at once: they mostly wait for deadlines."""
    async with asyncio.TaskGroup() as group:
        for phase in list(PHASES)[half::2]:
            group.create_task(_founder_killed(folder / phase, phase, leads), name=phase)


def check_exactly_one(crowd: Fleet, rounds: int) -> None:
    """Each reduced byte decodes to 1.0, and the parameters fell by exactly 1.0 a round."""
    first = crowd.living()[0]
    int8, grid = codec("int8"), first.member.setting.grid
    for certified in crowd.chain()[1:]:
        for chunk, data in enumerate(first.member._holding.store.read(certified.value)):
            part = grid.slice(chunk)
            assert np.array_equal(int8.decode(data, part.stop - part.start), np.ones(part.stop - part.start))
    for post in crowd.living():
        for number in range(rounds):
            assert np.array_equal(post.paths[number + 1], post.paths[number] - np.float32(1.0))


class Dying(Frozen):
    """A contribution whose owner dies after so many of its chunks were pulled."""

    post: Post
    left: int

    def frame(self, chunk: int) -> Frame:
        object.__setattr__(self, "left", self.left - 1)
        if self.left < 0:
            self.post.die()
            raise ConnectionError("killed")
        return super().frame(chunk)


ONES = {"rounds": 2, "outer": {"lr": 1.0, "momentum": 0.0}}


async def follower(crowd: Fleet) -> Post:
    """A member that the round can be decided without in its first attempt."""
    await crowd.until(lambda: crowd.posts[0].member.state is not None)
    state = crowd.posts[0].member.state
    assert state is not None
    return next(post for post in crowd.posts if post.peer not in (state.leader(0), state.value.tie_breaker))


@pytest.mark.failure_mode(2)
async def test_a_contributor_that_dies_mid_reduce_leaves_an_average_of_exactly_one(tmp_path: Path) -> None:
    async with fleet(tmp_path, 4, constant, tiny_genesis(**ONES)) as crowd:
        victim = await follower(crowd)

        def arm() -> None:
            whole = victim.member._holding.frozen
            assert whole is not None
            dying = Dying(whole.chunks, whole.leaves, whole.facts)
            object.__setattr__(dying, "post", victim)
            object.__setattr__(dying, "left", len(whole.chunks) * 2 // 3)  # a quarter of them for itself
            victim.member._holding.frozen = dying

        victim.on("ready.sent", arm, round=0)
        await crowd.until(lambda: victim.killed)
        await crowd.all_finished()
        value = crowd.chain()[1].value
        position = [entry.peer for entry in value.roster].index(victim.peer)
        inside = [included(chunk, position) for chunk in value.chunks]
        assert not all(inside), "it died before all its chunks were pulled"
        check_exactly_one(crowd, 2)
        crowd.check_equal()


class Short(Reduction):
    """The reduce of a member that dies after it has given out so many reduced chunks."""

    victim: Post | None = None
    left = 0

    async def serve(self, chunks: tuple[int, ...], *, wait: bool) -> AsyncIterator[Frame]:
        async for frame in super().serve(chunks, wait=wait):
            victim = Short.victim
            if victim is not None and self._setting.me == victim.peer:
                Short.left -= 1
                if Short.left < 0:
                    victim.die()
                    raise ConnectionError("killed")
            yield frame


@pytest.mark.failure_mode(2)
@pytest.mark.failure_mode(38)
@pytest.mark.parametrize("given", [0, 7])
async def test_an_owner_that_dies_mid_reduce_leaves_an_average_of_exactly_one(
    tmp_path: Path, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "Reduction", Short)
    async with fleet(tmp_path, 4, constant, tiny_genesis(**ONES)) as crowd:
        victim = await follower(crowd)
        monkeypatch.setattr(Short, "victim", victim)
        monkeypatch.setattr(Short, "left", given)
        await crowd.until(lambda: victim.killed)
        await crowd.all_finished()
        check_exactly_one(crowd, 2)
        crowd.check_equal()
        moved = [event for post in crowd.living() for event in post.of("reduce.reassigned")]
        assert moved, "the lost owner's chunks went to others"
        assert crowd.chain()[1].attempt == 0, "within the same attempt"
