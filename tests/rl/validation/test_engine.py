import asyncio

import pytest
from blake3 import blake3

from protocol.units import Digest
from rl.engine.prefill import ReadPolicy
from rl.sampling import Sampling
from rl.validation.judging import Judge
from rl.validation.tolerances import Tolerances
from rl.validation.verdict import Outcome
from tests.rl.validation.engine import generated, weights_for
from tests.rl.validation.world import VAL, World


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=48), Sampling(max_tokens=48, top_p=0.9)], ids=str)
def test_what_the_engine_draws_while_its_weights_change_is_accepted_file_by_file(sampling: Sampling) -> None:
    world = World(sampling)
    readers = {version: ReadPolicy(weights_for(world, version)) for version in world.policies}

    async def policy_of(version: int) -> ReadPolicy:
        return readers[version]

    tolerances = Tolerances.of("float32")
    judge = Judge(VAL.peer_id, world.terms, world.remote, world.renderer, policy_of, tolerances)
    files, _ = generated(world, 6, 3)
    versions = {
        rollout.proof_versions for _, groups in files for group in groups for rollout in group.rollouts
    }
    assert any(len(set(each)) > 1 for each in versions), "no rollout changed its version"
    for lease, groups in files:
        name = Digest(blake3(bytes((lease.counter,))).digest())
        verdict = asyncio.run(judge.judge(name, world.provenance(lease), groups, lease, audited=True))
        assert verdict.outcome is Outcome.ACCEPTED, verdict.sentence
        assert verdict.audited == 12
