"""Honest files as workers make them: drawn by the engine, many at once, while the weights change."""

import time
from collections.abc import Sequence

import numpy as np

from rl.engine.generator import Generator
from rl.engine.interface import Piece, Request
from rl.engine.shape import Shape
from rl.engine.weights import Weights, assemble
from rl.environments.interface import Task
from rl.rollouts.record import Group, Rollout
from rl.validation.terms import Lease
from rl.work.seeds import task_seed, token_seed
from tests.rl.validation.world import ANA, NEWEST, WINDOW, World

Files = list[tuple[Lease, tuple[Group, ...]]]


def generated(world: World, count: int, each: int) -> tuple[Files, float]:
    """Honest files drawn by the engine, and its processor seconds; its weights change in two of them.

    Args:
        world: The run.
        count: Files, at least 3.
        each: Positions in each.
    """
    engine = Generator(weights_for(world, NEWEST - WINDOW), NEWEST - WINDOW, decode=world.renderer.text)
    files = []
    spent = 0.0
    for number in range(count):
        lease = world.lease(ANA.peer_id, number, engine.version, range(number * each, (number + 1) * each))
        requests = [
            Request(
                id=f"{position}/{index}",
                tokens=world.renderer.prompt(_task(world, lease, position).messages),
                seed=token_seed(lease.beacon, position, lease.worker, index),
                sampling=world.terms.sampling,
                proofs=True,
            )
            for position in lease.positions
            for index in range(world.terms.group_size)
        ]
        pieces: dict[str, list[Piece]] = {request.id: [] for request in requests}
        update = number in (count // 3, 2 * count // 3)
        newer = weights_for(world, engine.version + 1) if update else None
        began = time.process_time()
        for request in requests:
            engine.add(request)
        steps = 0
        while engine.busy:
            if newer is not None and steps == 12:
                engine.update(engine.version + 1, newer)
            for name, piece in engine.step():
                pieces[name].append(piece)
            steps += 1
        spent += time.process_time() - began
        files.append((lease, _groups(world, lease, requests, pieces)))
    engine.close()
    return files, spent


def _task(world: World, lease: Lease, position: int) -> Task:
    return world.environment.task(task_seed(lease.beacon, position))


def weights_for(world: World, version: int) -> Weights:
    """A policy version as the engine reads it."""
    return assemble(Shape.of(world.model), world.policies[version].model.state_dict().__getitem__)


def _groups(
    world: World, lease: Lease, requests: Sequence[Request], pieces: dict[str, list[Piece]]
) -> tuple[Group, ...]:
    groups = []
    for position in lease.positions:
        rollouts = []
        for index in range(world.terms.group_size):
            request = next(each for each in requests if each.id == f"{position}/{index}")
            came = pieces[request.id]
            prompt = len(request.tokens)
            tokens = [*request.tokens, *(token for piece in came for token in piece.tokens)]
            rollouts.append(
                Rollout(
                    position=position,
                    index=index,
                    tokens=np.array(tokens, np.int32),
                    sampled=np.arange(len(tokens)) >= prompt,
                    logprobs=_filled(
                        0, prompt, [one for piece in came for one in piece.logprobs], np.float32
                    ),
                    versions=_filled(-1, prompt, [one for piece in came for one in piece.versions], np.int32),
                    proofs=came[-1].proofs,
                    proof_versions=came[-1].proof_versions,
                    reward=0.0,
                    finish=came[-1].finish or "over",
                )
            )
        groups.append(world.rewarded(Group(position, lease.version, tuple(rollouts))))
    return tuple(groups)


def _filled(value: int, prompt: int, rest: Sequence[float], dtype: type) -> np.ndarray:
    return np.array([*([value] * prompt), *rest], dtype)
