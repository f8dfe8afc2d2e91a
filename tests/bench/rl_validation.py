"""Validation against generation: processor time of both, honest work refused, cheats missed.

A model of a million parameters after a warm start on reversed words. The engine draws 32 files of 64 rollouts, 16 at
once, and changes its weights twice while it does; each file is judged without and with the model. Then each way to
cheat is tried in some files of its own.
"""

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import torch

from diloco.config import ModelSection
from diloco.model import model_with
from protocol.units import Digest
from rl.engine.generator import Generator
from rl.engine.interface import Piece, Request
from rl.engine.shape import Shape
from rl.engine.weights import Weights, assemble
from rl.rollouts.limits import Limits
from rl.rollouts.parquet import decode, encode, unfold
from rl.rollouts.record import Group, Rollout
from rl.rollouts.signing import Signed
from rl.sampling import Sampling
from rl.training.warmstart import warm_start
from rl.validation.audit import audit
from rl.validation.draw import Shares
from rl.validation.judging import Judge
from rl.validation.terms import Lease
from rl.validation.tolerances import Tolerances
from rl.validation.verdict import Outcome, Verdict
from rl.work.seeds import task_seed, token_seed
from tests.bench.measurement import Measurement
from tests.rl.validation.cheats import CHEATS
from tests.rl.validation.world import ANA, EVE, NEWEST, VAL, WINDOW, World, drifting

MODEL = ModelSection(hidden=128, layers=4, heads=4, kv_heads=2, intermediate=512, vocab=260, context=128)
FILES, POSITIONS, GROUP = 32, 8, 8
TRIES = 5


def run() -> Measurement:
    """Measure; one thread."""
    torch.set_num_threads(1)
    world = World(Sampling(max_tokens=48), model=MODEL, group_size=GROUP)
    started = warm_start(MODEL, world.environment, world.renderer, seed=1)
    world.policies = drifting(model_with(MODEL, started.params).eval(), 0.01)
    files, generating = _generated(world)
    figures = {"generation_cpu_s": generating, **_honest(world, files)}
    figures |= {f"missed_{name.replace(' ', '_')}": _missed(world, name) for name in CHEATS}
    figures["cheats_missed"] = sum(count for name, count in figures.items() if name.startswith("missed_"))
    share = Shares().established
    spent = figures["cheap_cpu_s"] + share * figures["audit_cpu_s"]
    ratios = {
        "validation_vs_generation": spent / generating,
        "cheap_checks_vs_generation": figures["cheap_cpu_s"] / generating,
        "audit_of_all_vs_generation": figures["audit_cpu_s"] / generating,
    }
    return Measurement(figures, ratios=ratios)


def _generated(world: World) -> tuple[list[tuple[Lease, tuple[Group, ...]]], float]:
    """Honest files and the processor seconds of the engine."""
    shape = Shape.of(MODEL)
    engine = Generator(_weights(world, shape, NEWEST - WINDOW), NEWEST - WINDOW, decode=world.renderer.text)
    files = []
    spent = 0.0
    for number in range(FILES):
        lease = world.lease(
            ANA.peer_id, number, engine.version, range(number * POSITIONS, (number + 1) * POSITIONS)
        )
        requests = [
            Request(
                id=f"{position}/{index}",
                tokens=world.renderer.prompt(_task(world, lease, position).messages),
                seed=token_seed(lease.beacon, position, lease.worker, index),
                sampling=world.terms.sampling,
                proofs=True,
            )
            for position in lease.positions
            for index in range(GROUP)
        ]
        pieces: dict[str, list[Piece]] = {request.id: [] for request in requests}
        update = number in (FILES // 3, 2 * FILES // 3)
        newer = _weights(world, shape, engine.version + 1) if update else None
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


def _task(world: World, lease: Lease, position: int):  # type: ignore[no-untyped-def]
    return world.environment.task(task_seed(lease.beacon, position))


def _weights(world: World, shape: Shape, version: int) -> Weights:
    return assemble(shape, world.policies[version].model.state_dict().__getitem__)


def _groups(
    world: World, lease: Lease, requests: Sequence[Request], pieces: dict[str, list[Piece]]
) -> tuple[Group, ...]:
    groups = []
    for position in lease.positions:
        rollouts = []
        for index in range(GROUP):
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


def _honest(world: World, files: Sequence[tuple[Lease, tuple[Group, ...]]]) -> dict[str, float]:
    """Every file read and judged, first without the model, then with it."""
    refused, cheap, audited, ties, tokens, largest, texts = 0, 0.0, 0.0, 0, 0, 0.0, 0
    judge = _judge(world)
    for lease, groups in files:
        data = encode(world.provenance(lease), groups)
        signed = Signed.make(ANA, data)
        began = time.process_time()
        signed.check(data)
        unfold(data, Limits())  # in the process that reads first
        provenance, read = decode(data, Limits())
        verdict = asyncio.run(judge.judge(signed.digest, provenance, read, lease, audited=False))
        cheap += time.process_time() - began
        began = time.process_time()
        found = audit(
            read, world.policies, lease.beacon, lease.worker, world.terms.sampling, Tolerances.of("float32")
        )
        audited += time.process_time() - began
        if verdict.outcome is not Outcome.ACCEPTED or found.findings:
            refused += sum(len(group.rollouts) for group in groups)
            print(verdict.sentence, *(finding.sentence for finding in found.findings), sep="\n")
        ties, tokens, largest = ties + found.near_ties, tokens + found.tokens, max(largest, found.largest)
        texts += sum(len(group.rollouts) for group in groups)
    changed = sum(
        len(set(each.proof_versions)) > 1
        for _, groups in files
        for group in groups
        for each in group.rollouts
    )
    return {
        "honest_rollouts": texts,
        "honest_refused": refused,
        "honest_tokens": tokens,
        "honest_rollouts_of_two_versions": changed,
        "honest_near_ties": ties,
        "honest_largest_logprob_difference": largest,
        "cheap_cpu_s": cheap,
        "audit_cpu_s": audited,
    }


def _judge(world: World) -> Judge:
    return Judge(
        VAL.peer_id, world.terms, world.remote, world.renderer, world.policy_of, Tolerances.of("float32")
    )


def _missed(world: World, name: str) -> int:
    """In how many files of its own a cheat was not found."""
    cheat, _ = CHEATS[name]
    missed = 0
    for number in range(TRIES):
        positions = range(5000 + number * POSITIONS, 5000 + (number + 1) * POSITIONS)
        lease = world.lease(EVE.peer_id, number, 5, positions)
        verdict: Verdict = asyncio.run(
            _judge(world).judge(
                Digest(bytes(32)), world.provenance(lease), cheat(world, lease), lease, audited=True
            )
        )
        missed += verdict.outcome is not Outcome.REFUSED
    return missed
