"""How hard tasks are, measured with an engine."""

from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from protocol.errors import Code, NodeError
from rl.engine.limits import Limits
from rl.engine.service import TorchEngine
from rl.environments.interface import Message, Messages, Task
from rl.environments.measuring import Measured, measure
from rl.environments.play import Room
from rl.environments.transcript import Renderer
from rl.sampling import Sampling
from tests.rl.engine.small import SHAPE, generator

RENDERER = Renderer(load_tokenizer(train_tokenizer([], SHAPE.vocab), SHAPE.vocab))
SAMPLING = Sampling(max_tokens=12, eos=(RENDERER.end,))


class Lengths:
    """Two turns; task 0 is always won, task 1 never, task 2 by who says a text of even length, and task 3 raises."""

    version = "1"

    async def task(self, seed: int) -> Task:
        return Task(seed, (Message("user", f"Task {seed}"),))

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        return Message("user", "Go on.") if len(transcript) == 2 else None

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        if task.seed == 3:
            raise NodeError(Code.RL_ENVIRONMENT_FAILED, "It cannot be scored.")
        return tuple(
            {0: 1.0, 1: 0.0}.get(task.seed, float(len(each[1].content) % 2 == 0)) for each in transcripts
        )


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[TorchEngine]:
    made = TorchEngine(generator(Limits(slots=4)))
    yield made
    await made.close()


async def measured(engine: TorchEngine, seeds: Sequence[int], at_once: int = 2) -> list[Measured]:
    room = Room(2, SAMPLING.max_tokens, SHAPE.context)
    found = measure(Lengths(), engine, RENDERER, SAMPLING, room, seeds, 6, at_once)
    return [each async for each in found]


async def test_each_task_is_measured_by_a_group_of_rollouts_in_order(engine: TorchEngine) -> None:
    won, lost, between, failed = await measured(engine, [0, 1, 2, 3])
    assert (won.rewards, lost.rewards) == ((1.0,) * 6, (0.0,) * 6)
    assert set(between.rewards) == {0.0, 1.0}
    assert failed == Measured(3, (), "It cannot be scored.")
    assert engine.running == 0 and len(engine._generator.holder) == 0, "conversations are let go"


async def test_it_is_the_same_again_whatever_runs_beside_it(engine: TorchEngine) -> None:
    assert await measured(engine, [2, 4, 5, 6], 4) == await measured(engine, [2, 4, 5, 6], 1)


async def test_an_engine_that_ends_ends_it(engine: TorchEngine) -> None:
    await engine.close()
    with pytest.raises(NodeError) as caught:
        await measured(engine, [0])
    assert caught.value.code is Code.RL_ENGINE
