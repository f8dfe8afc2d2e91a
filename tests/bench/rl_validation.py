"""Validation against generation: processor time of both, honest work refused, cheats missed.

A model of a million parameters that has begun to learn to reverse texts of 16 to 32 letters. The engine draws 32 files
of 64 rollouts, 16 at once, and changes its weights twice while it does; each file is judged without and with the
model. Then each way to cheat is tried in some files of its own.
"""

import asyncio
import time
from collections.abc import Mapping

import torch

from diloco.config import ModelSection
from diloco.model import model_with
from protocol.units import Digest
from rl.engine.prefill import ReadPolicy
from rl.environments.reverse_text import ReverseText
from rl.rollouts.limits import Limits
from rl.rollouts.parquet import decode, encode, unfold
from rl.rollouts.signing import Signed
from rl.sampling import Sampling
from rl.training.warmstart import Plan, warm_start
from rl.validation.audit import audit
from rl.validation.draw import Shares
from rl.validation.judging import Judge
from rl.validation.tolerances import Tolerances
from rl.validation.verdict import Outcome, Verdict
from tests.bench.measurement import Measurement
from tests.rl.validation.cheats import CHEATS
from tests.rl.validation.engine import Files, generated, weights_for
from tests.rl.validation.world import ANA, EVE, VAL, World, drifting

MODEL = ModelSection(hidden=128, layers=4, heads=4, kv_heads=2, intermediate=512, vocab=260, context=128)
FILES, POSITIONS, GROUP = 32, 8, 8
TRIES, TRIED = 3, 4

Readers = Mapping[int, ReadPolicy]
"""Policy versions as the validator reads them."""


def run() -> Measurement:
    """Measure; one thread."""
    torch.set_num_threads(1)
    world = World(Sampling(max_tokens=64), model=MODEL, group_size=GROUP, environment=ReverseText(16, 32))
    plan = Plan(low=0, high=1, batch=32, every=60)
    started = warm_start(MODEL, world.environment, world.renderer, 1, plan)
    world.policies = drifting(model_with(MODEL, started.params).eval(), 0.01)
    readers = {version: ReadPolicy(weights_for(world, version)) for version in world.policies}
    files, generating = generated(world, FILES, POSITIONS)
    figures = {"generation_cpu_s": generating, **_honest(world, files, readers)}
    figures |= {"missed_" + "_".join(name.split()): _missed(world, readers, name) for name in CHEATS}
    figures["cheats_missed"] = sum(count for name, count in figures.items() if name.startswith("missed_"))
    share = Shares().established
    spent = figures["cheap_cpu_s"] + share * figures["audit_cpu_s"]
    ratios = {
        "validation_vs_generation": spent / generating,
        "cheap_checks_vs_generation": figures["cheap_cpu_s"] / generating,
        "audit_of_all_vs_generation": figures["audit_cpu_s"] / generating,
    }
    return Measurement(figures, ratios=ratios)


def _honest(world: World, files: Files, readers: Readers) -> dict[str, float]:
    """Every file read and judged, first without the model, then with it."""
    refused, cheap, audited, ties, tokens, largest, texts = 0, 0.0, 0.0, 0, 0, 0.0, 0
    judge = _judge(world, readers)
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
            read, readers, lease.beacon, lease.worker, world.terms.sampling, Tolerances.of("float32")
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


def _judge(world: World, readers: Readers) -> Judge:
    async def policy_of(version: int) -> ReadPolicy:
        return readers[version]

    return Judge(VAL.peer_id, world.terms, world.remote, world.renderer, policy_of, Tolerances.of("float32"))


def _missed(world: World, readers: Readers, name: str) -> int:
    """In how many files of its own a cheat was not found."""
    cheat, _ = CHEATS[name]
    missed = 0
    for number in range(TRIES):
        positions = range(5000 + number * TRIED, 5000 + (number + 1) * TRIED)
        lease = world.lease(EVE.peer_id, number, 5, positions)
        verdict: Verdict = asyncio.run(
            _judge(world, readers).judge(
                Digest(bytes(32)), world.provenance(lease), cheat(world, lease), lease, audited=True
            )
        )
        missed += verdict.outcome is not Outcome.REFUSED
    return missed
