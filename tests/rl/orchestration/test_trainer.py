"""A member's training on rollouts, with real worker processes and real files."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from diloco.creation import initial_state
from diloco.outer_state import OuterState
from diloco.rounds.values import Lease
from diloco.weights import write_weights
from diloco.worker.group import WorkerGroup
from protocol.errors import Code, NodeError
from rl.orchestration.books import lease_of
from rl.orchestration.feed import Feed
from rl.orchestration.trainer import RolloutTrainer, Settings
from rl.training.settings import ObjectiveSection
from rl.training.work import PROGRAM
from tests.diloco.small_run import small_genesis
from tests.rl.orchestration.bench import Bench
from tests.rl.rollouts.making import TOM

pytestmark = pytest.mark.asyncio(loop_scope="module")

OBJECTIVE = ObjectiveSection(pass_tokens=64)


class Workers:
    """What a node's workers are to a trainer."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group

    async def group(self) -> WorkerGroup:
        return self._group

    def request_stop(self) -> None:
        self._group.request_stop()


class Node:
    """One trainer: its desk, its workers, its outer state."""

    def __init__(self, folder: Path, bench: Bench, group: WorkerGroup, state: OuterState) -> None:
        self.bench, self.state, self.group = bench, state, group
        self.policy = folder / "policy-0"
        write_weights(self.policy, state.layout, state.params)
        self.steps: list[tuple[int, float, int]] = []
        self.batches = folder / "batches"
        self.trainer = self.trains(group)

    def trains(self, group: WorkerGroup, patience: timedelta = timedelta(hours=1)) -> RolloutTrainer:
        return RolloutTrainer(
            Workers(group), Feed(self.bench.desk, self.bench.emit), Settings(2, 16, patience, None, OBJECTIVE),
            self.batches, policies=self.policies, reference=None, emit=self.bench.emit, clock=lambda: self.bench.now,
        )  # fmt: skip

    def policies(self, versions: frozenset[int]) -> Mapping[int, Path]:
        assert versions == {0}
        return {0: self.policy}

    @property
    def lease(self) -> Lease:
        lease = lease_of(self.bench.value, TOM.peer_id)
        assert lease is not None
        return lease

    async def train(self, done: int = 0):  # type: ignore[no-untyped-def]
        return await self.trainer.train(
            self.lease, 0, done=done, lr=1e-2, on_step=lambda *step: self.steps.append(step)
        )


@dataclass(frozen=True)
class Machine:
    """Workers, which all tests share: they take seconds to start."""

    group: WorkerGroup
    state: OuterState


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    genesis = small_genesis(folder, inner={"weight_decay": 0.0})
    (folder / "genesis.json").write_bytes(genesis.to_bytes())
    state = initial_state(genesis)
    group = await WorkerGroup.start(
        folder / "genesis.json", state, 1, "cpu", 1, folder / "worker", base=folder, program=PROGRAM,
        settings=OBJECTIVE.model_dump_json(),
    )  # fmt: skip
    yield Machine(group, state)
    await group.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def here(machine: Machine, tmp_path: Path) -> AsyncIterator[Node]:
    machine.state.gradient[:] = 0
    bench = Bench(tmp_path / "desk")
    yield Node(tmp_path, bench, machine.group, machine.state)
    await bench.close()


async def test_a_lease_is_trained_step_by_step_as_its_groups_come(here: Node) -> None:
    await here.bench.make()
    training = asyncio.ensure_future(here.train())
    await here.bench.until("rollouts.step")
    first = here.bench.of("rollouts.step")[0]
    assert (first["positions"], first["groups"], first["reward"]) == (2, 2, 0.5)
    assert first["staleness"] == {0: 2} and "entropy" in first
    await here.bench.make()  # the second step waited for it
    outcome = await training
    assert (outcome.samples, outcome.steps, outcome.finite) == (4, 2, True)
    assert outcome.tokens == sum(tokens for _, _, tokens in here.steps) > 0
    assert [step for step, _, _ in here.steps] == [0, 1]
    assert np.abs(here.state.gradient).max() > 0
    assert not list(here.batches.iterdir())

    # ---- what an interrupted lease has is gone on with, as the one before it would have
    whole = here.state.gradient.copy()
    again = asyncio.ensure_future(here.train())
    await here.bench.until("rollouts.step", 3)
    here.trainer.request_stop()
    part = await again
    assert part.samples == 2 and part.steps == 1
    rest = await here.train(done=2)
    assert rest.samples == 2
    assert np.abs(here.state.gradient).max() > 0 and here.state.gradient.shape == whole.shape


@pytest.mark.failure_mode(47)
async def test_filtered_positions_are_used_up_without_a_step(here: Node) -> None:
    await here.bench.make()
    await here.bench.make((1.0, 1.0))
    outcome = await here.train()
    assert (outcome.samples, outcome.steps) == (4, 1)


@pytest.mark.failure_mode(47)
async def test_a_lease_of_filtered_groups_alone_has_nothing_trained_on(here: Node) -> None:
    for _ in range(2):
        await here.bench.make((0.0, 0.0))
    outcome = await here.train()
    assert (outcome.samples, outcome.steps, outcome.tokens, outcome.finite) == (0, 0, 0, True)
    assert not here.steps
    assert here.bench.of("rollouts.waiting")[-1]["reason"] == "all-filtered"


@pytest.mark.failure_mode(48)
async def test_when_groups_do_not_come_the_trainer_gives_what_it_has(here: Node) -> None:
    await here.bench.make()
    here.trainer = here.trains(here.group, timedelta(0))
    outcome = await here.train()
    assert (outcome.samples, outcome.steps) == (2, 1)
    assert here.bench.of("rollouts.timeout")[0]["reason"] == "generating"


async def test_a_trainer_that_waits_for_groups_stops_at_once_when_it_is_told_to(here: Node) -> None:
    training = asyncio.ensure_future(here.train())
    await here.bench.until("rollouts.waiting")
    here.trainer.request_stop()
    assert (await training).samples == 0


async def test_a_policy_that_is_not_there_any_more_is_said_and_leaves_no_batch(here: Node) -> None:
    for _ in range(2):
        await here.bench.make()

    def gone(versions: frozenset[int]) -> Mapping[int, Path]:
        raise NodeError(Code.RL_POLICY, f"The weights of {sorted(versions)} are gone.")

    here.trainer._policies = gone
    with pytest.raises(NodeError, match="are gone"):
        await here.train()
    assert not list(here.batches.iterdir())
