"""How hard tasks are for a policy: the rewards of a few rollouts of each, before a run."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from blake3 import blake3

from protocol.errors import Code, NodeError
from rl.engine.interface import Engine, Former, Request
from rl.environments.interface import Messages, Remote
from rl.environments.play import Room, Turn, play
from rl.environments.transcript import Renderer
from rl.sampling.settings import Sampling

_CONTEXT = "intellect-node 2026 rl measuring 1"


@dataclass(frozen=True)
class Measured:
    """One task.

    Attributes:
        seed: Its seed.
        rewards: Of its rollouts; empty when it could not be played.
        failure: Why it could not.
    """

    seed: int
    rewards: tuple[float, ...]
    failure: str = ""


@dataclass
class _Talk:
    """One rollout's turns; see `rl.environments.play.Sampler`."""

    engine: Engine
    name: str
    seed: bytes
    sampling: Sampling
    keep: bool
    said: list[str] = field(default_factory=list)
    prompt: int = 0
    length: int = 0

    async def turn(self, tokens: Sequence[int], first: int, room: int) -> Turn:
        self.prompt = self.prompt or len(tokens)
        former = Former(self.said[-1], self.length) if self.said else None
        self.said.append(f"{self.name}/{len(self.said)}")
        request = Request(
            self.said[-1],
            tuple(tokens),
            self.seed,
            self.sampling,
            first,
            self.prompt,
            former=former,
            keep=self.keep,
        )
        said: list[int] = []
        async for piece in self.engine.generate(request):
            said += piece.tokens
            if piece.finish is not None:
                self.length = len(tokens) + len(said)
                return Turn(said, [0.0] * len(said), [0] * len(said), piece.finish)
        raise NodeError(Code.RL_ENGINE, "The engine ended a turn without saying why.")


async def measure(
    environment: Remote,
    engine: Engine,
    renderer: Renderer,
    sampling: Sampling,
    room: Room,
    seeds: Sequence[int],
    rollouts: int,
    at_once: int,
) -> AsyncIterator[Measured]:
    """Play tasks and tell their rewards, in the order of the seeds; the same for the same arguments.

    Args:
        environment: Where they come from. One that fails at a task costs this task.
        engine: What samples; it has one policy version.
        renderer: Tokens of messages.
        sampling: How tokens are drawn.
        room: How far a rollout may go.
        seeds: Of the tasks.
        rollouts: Of each task.
        at_once: Tasks that are played at once.

    Raises:
        NodeError: What the engine raises.
    """
    waiting = iter(seeds)
    playing: list[asyncio.Task[Measured]] = []
    try:
        while True:
            while len(playing) < at_once and (seed := next(waiting, None)) is not None:
                one = _one(environment, engine, renderer, sampling, room, seed, rollouts)
                playing.append(asyncio.ensure_future(one))
            if not playing:
                return
            yield await playing[0]
            playing.pop(0)
    finally:
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


async def _one(
    environment: Remote,
    engine: Engine,
    renderer: Renderer,
    sampling: Sampling,
    room: Room,
    seed: int,
    rollouts: int,
) -> Measured:
    try:
        task = await environment.task(seed)

        async def talk(index: int) -> Messages:
            key = blake3(f"{seed}/{index}".encode(), derive_key_context=_CONTEXT).digest()
            sampler = _Talk(engine, f"{seed}-{index}", key, sampling, keep=room.turns > 1)
            try:
                return (await play(environment, renderer, task, sampler, room))[0].messages
            finally:
                if sampler.keep and sampler.said:
                    await engine.release(sampler.said[-1])

        told = await asyncio.gather(*(talk(index) for index in range(rollouts)))
        return Measured(seed, await environment.score(task, told))
    except NodeError as error:
        if error.code not in (Code.RL_ENVIRONMENT, Code.RL_ENVIRONMENT_FAILED):
            raise
        return Measured(seed, (), error.sentence)
