"""What the environment says to a file: its tasks, its words between the turns, its rewards, all made again."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from protocol.errors import Code, NodeError
from protocol.units import Digest
from rl.environments.interface import Messages, Remote, Task
from rl.environments.play import Room, replay
from rl.environments.transcript import Renderer
from rl.rollouts.record import Group, Rollout
from rl.validation.terms import Terms
from rl.validation.verdict import Finding
from rl.work.seeds import task_seed

_EXACT = 1e-9
"""By how much a reward may differ: environments compute the same everywhere, but for the last bits of a sum."""


async def check_rewards(
    groups: Sequence[Group],
    environment: Remote,
    renderer: Renderer,
    terms: Terms,
    beacon: Digest,
    most: timedelta,
) -> list[Finding]:
    """Findings on transcripts and rewards.

    Args:
        groups: What a file holds, which passed the checks of form.
        environment: That of the run; in a process of its own, since it may hang.
        renderer: The run's.
        terms: The run's.
        beacon: Of the policy version that was leased.
        most: How long the environment may take for one group.

    Returns:
        What is wrong. Where the environment fails or takes too long, a finding ``E-RL-084``, which is no fault of the
        worker's.
    """
    room = Room(terms.turns, terms.sampling.max_tokens, terms.context)
    found: list[Finding] = []
    for group in groups:
        try:
            async with asyncio.timeout(most.total_seconds()):
                found += await _group(group, environment, renderer, room, task_seed(beacon, group.position))
        except TimeoutError:
            sentence = f"The environment takes more than {most.total_seconds():g} s over the group."
            found.append(Finding(Code.RL_UNJUDGED, sentence, group.position))
        except Exception as error:  # an environment is foreign code
            sentence = f"The environment fails over the group: {type(error).__name__}: {str(error)[:200]}"
            found.append(Finding(Code.RL_UNJUDGED, sentence, group.position))
    return found


async def _group(
    group: Group, environment: Remote, renderer: Renderer, room: Room, seed: int
) -> list[Finding]:
    task = await environment.task(seed)

    async def told(rollout: Rollout) -> Messages | Finding:
        try:
            return await replay(
                environment,
                renderer,
                task,
                rollout.tokens.tolist(),
                rollout.sampled.tolist(),
                rollout.finish,
                room,
            )
        except NodeError as error:
            if error.code is not Code.RL_TRANSCRIPT:
                raise
            return Finding(error.code, error.sentence, group.position, rollout.index)

    # All at once: what they ask of the environment's process then goes there together.
    tasks = [asyncio.ensure_future(told(rollout)) for rollout in group.rollouts]
    try:
        each = await asyncio.gather(*tasks)
    finally:
        for task_under_way in tasks:
            task_under_way.cancel()
    found = [one for one in each if isinstance(one, Finding)]
    transcripts = [one for one in each if not isinstance(one, Finding)]
    return found or await _scored(group, environment, task, transcripts)


async def _scored(
    group: Group, environment: Remote, task: Task, transcripts: Sequence[Messages]
) -> list[Finding]:
    rewards = await environment.score(task, transcripts)
    if len(rewards) != len(transcripts):
        raise ValueError(f"{len(rewards)} rewards for {len(transcripts)} transcripts")
    return [
        Finding(
            Code.RL_REWARD,
            f"The reward is said to be {rollout.reward:g}, and the environment gives {reward:g}.",
            group.position,
            rollout.index,
            {"says": str(rollout.reward), "should": float(reward)},
        )
        for rollout, reward in zip(group.rollouts, rewards, strict=True)
        if not abs(rollout.reward - reward) <= _EXACT * max(1.0, abs(reward))  # NaN is not, either
    ]
