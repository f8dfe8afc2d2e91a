"""Real worker processes that train a policy, as a daemon drives them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from diloco.creation import initial_state
from diloco.outer_state import OuterState
from diloco.weights import write_weights
from diloco.worker.group import StepDone, WorkerGroup
from protocol.errors import Code, NodeError
from rl.training.batches import write_batch
from rl.training.packing import pack
from rl.training.settings import ObjectiveSection
from rl.training.work import PROGRAM, Batch, work_of
from tests.diloco.small_run import small_genesis
from tests.rl.training.test_packing import CONTEXT, example, several

SETTINGS = ObjectiveSection(pass_tokens=2 * CONTEXT, kl_coefficient=0.01)


@dataclass
class Node:
    """One group with its own outer state, and what all nodes train on."""

    group: WorkerGroup
    state: OuterState
    folder: Path

    async def train(self, work: dict[str, object]) -> tuple[np.ndarray, list[StepDone]]:
        told: list[StepDone] = []
        result = await self.group.train(work, 0, told.append)
        assert result.finite and result.samples == 5 and result.steps == len(told) == 2
        return self.state.gradient.copy(), told


async def start(folder: Path, workers: int, settings: str = SETTINGS.model_dump_json()) -> Node:
    genesis = small_genesis(folder, inner={"weight_decay": 0.0})
    (folder / "genesis.json").write_bytes(genesis.to_bytes())
    state = initial_state(genesis)
    group = await WorkerGroup.start(
        folder / "genesis.json", state, workers, "cpu", 1, folder / "worker", base=folder,
        program=PROGRAM, settings=settings,
    )  # fmt: skip
    return Node(group, state, folder)


def work_in(folder: Path, state: OuterState) -> dict[str, object]:
    """Two inner steps: rows that two ranks cannot share evenly, and fewer rows than ranks."""
    policies = {}
    for version in (3, 4):
        policies[version] = folder / f"policy-{version}"
        params = state.params * np.float32(1 + 0.02 * version)
        write_weights(policies[version], state.layout, params)
    many = [*several(5, 9, 16, 12, 16, 11, 16), example(9, 14, 5, version=4)]
    for name, examples in (("many", many), ("one", [example(10, 9, 3)])):
        write_batch(folder / name, pack(examples, CONTEXT))
    batches = [Batch(folder / "many", 3), Batch(None, 1), Batch(folder / "one", 1)]
    return work_of(batches, policies, policies[4])


@pytest.mark.failure_mode(52)
async def test_two_ranks_train_on_one_list_and_compute_what_one_rank_does(tmp_path: Path) -> None:
    lone = await start(tmp_path / "lone", 1)
    work = work_in(tmp_path, lone.state)
    gradient, told = await lone.train(work)
    await lone.group.stop()
    pair = await start(tmp_path / "pair", 2)
    try:
        # A file that appears beside the list is on no rank's list.
        write_batch(tmp_path / "late", pack(several(16, 16), CONTEXT))
        both, together = await pair.train(work)
        for one, two in zip(told, together, strict=True):
            assert (one.step, one.tokens) == (two.step, two.tokens)
            assert two.loss == pytest.approx(one.loss, rel=1e-4, abs=1e-6)
            assert set(one.metrics) == {
                "norm", "entropy", "kl", "reference_kl", "clipped", "ratio", "ratio_max",
            }  # fmt: skip
            assert dict(two.metrics) == pytest.approx(dict(one.metrics), rel=1e-3, abs=1e-6)
        # AdamW's first steps are as large as the learning rate wherever the sign is sure.
        assert np.abs(both - gradient).mean() < 0.02 * np.abs(gradient).mean()
        assert told[0].metrics["ratio_max"] > 1.01, (
            "the policies that sampled are not the one that is trained"
        )
        with pytest.raises(NodeError) as caught:
            await pair.group.train({**work, "policies": []}, 1)
        assert caught.value.code is Code.RL_POLICY
    finally:
        await pair.group.stop()


async def test_settings_that_are_not_those_of_a_policy_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="epsilon") as caught:
        await start(tmp_path, 1, '{"epsilon": 2}')
    assert caught.value.code is Code.CFG_BAD_VALUE
