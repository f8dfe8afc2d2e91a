"""What docs/rl.md walks through: from a lease's task to a gradient, each step by the part that does it in a run."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from diloco.architecture import layout_of
from diloco.model import model_with
from diloco.weights import write_weights
from diloco.worker.objective import Place
from rl.engine.prefill import ReadPolicy
from rl.environments.interface import Messages, Task
from rl.environments.reverse_text import ReverseText
from rl.rollouts.files import load, write
from rl.rollouts.limits import Limits
from rl.rollouts.parquet import decode
from rl.sampling import Sampling
from rl.training.batches import write_batch
from rl.training.objective import PolicyObjective
from rl.training.packing import examples_of, pack
from rl.training.settings import ObjectiveSection
from rl.training.warmstart import flat
from rl.training.work import Batch, work_of
from rl.validation.judging import Judge
from rl.validation.tolerances import Tolerances
from rl.validation.verdict import Outcome
from tests.rl.validation.engine import generated, weights_for
from tests.rl.validation.world import ANA, NEWEST, VAL, World


class EvenText(ReverseText):
    """A reward that random weights earn now and then."""

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        return tuple(float(len(each[-1].content) % 2 == 0) for each in transcripts)


@pytest.mark.failure_mode(50)
@pytest.mark.parametrize("sampling", [Sampling(max_tokens=48), Sampling(max_tokens=48, top_p=0.9)], ids=repr)
def test_from_a_task_to_a_gradient(sampling: Sampling, tmp_path: Path) -> None:
    world = World(sampling, environment=EvenText(3, 6))
    layout = layout_of(world.model)
    policies = {}
    for version, policy in world.policies.items():
        policies[version] = tmp_path / f"{version}.safetensors"
        write_weights(policies[version], layout, flat(policy.model, world.model))

    # A worker draws what it was leased, and hands in a file that it signed.
    ((lease, groups), *_), _ = generated(world, 3, 2)
    write(tmp_path / "file.parquet", world.provenance(lease), groups, ANA)
    data, signed = load(tmp_path / "file.parquet", Limits())
    provenance, held = decode(data, Limits())

    # A validator reads it with weights of its own.
    async def read_policy(version: int) -> ReadPolicy:
        return ReadPolicy(weights_for(world, version))

    judge = Judge(
        VAL.peer_id, world.terms, world.remote, world.renderer, read_policy, Tolerances.of("float32")
    )
    verdict = asyncio.run(judge.judge(signed.digest, provenance, held, lease, audited=True))
    assert verdict.outcome is Outcome.ACCEPTED, verdict.sentence

    # A trainer packs what was accepted, and its worker computes who sampled it how.
    examples = examples_of(held)
    assert any(example.advantage for example in examples)
    write_batch(tmp_path / "batch", pack(examples, world.model.context))
    model = model_with(world.model, flat(world.policies[NEWEST].model, world.model))

    def put(params: np.ndarray) -> None:
        with torch.no_grad():
            for name, view in layout.views(params):
                model.get_parameter(name).copy_(torch.from_numpy(np.ascontiguousarray(view)))

    place = Place(model, 0, 1, torch.device("cpu"), "fp32", put)
    objective = PolicyObjective(world.model, layout, ObjectiveSection(top_p=sampling.top_p))
    (step,) = objective.steps(work_of([Batch(tmp_path / "batch", 2)], policies), place)
    reported = np.concatenate([each.logprobs[each.sampled] for each in examples])
    computed = np.concatenate([part.behaviour.numpy() for part in step.parts])
    np.testing.assert_allclose(np.sort(computed), np.sort(reported), atol=2e-3)

    # The loss under the newest weights, and what it pulls at.
    put(flat(world.policies[NEWEST].model, world.model))
    passes = [objective.loss(part, place) for part in step.parts]
    loss = torch.stack([each.loss for each in passes]).sum() / step.tokens
    loss.backward()  # type: ignore[no-untyped-call]
    gradient = np.concatenate(
        [each.grad.numpy().ravel() for each in model.parameters() if each.grad is not None]
    )
    assert np.isfinite(gradient).all() and gradient.any()
    assert np.isfinite([float(each.peaks.max()) for each in passes]).all()
