"""One run with two DiLoCo members whose real workers train one policy on rollouts of the version before."""

import asyncio
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from diloco.architecture import layout_of
from diloco.config import RunSections
from diloco.creation import create_genesis
from diloco.data.corpus import corpus_of
from diloco.genesis import Genesis
from diloco.member.setting import Outcome
from diloco.model import model_with
from diloco.rounds.leases import cut, spans_of
from diloco.rounds.values import Lease
from diloco.weights import write_weights
from diloco.worker.group import StepDone, WorkerGroup
from rl.training.advantages import informative
from rl.training.batches import write_batch
from rl.training.packing import examples_of, pack
from rl.training.settings import ObjectiveSection
from rl.training.warmstart import Plan, Started, solve_rate, solved_task, warm_start
from rl.training.work import PROGRAM, Batch, work_of
from tests.diloco.member.fleet import OPERATOR, Post, fleet
from tests.rl.training.reversing import ENVIRONMENT, MODEL, RENDERER, groups

ROUNDS, POSITIONS = 12, 16
HELD_OUT = [solved_task(ENVIRONMENT.task(10**6 + seed), RENDERER) for seed in range(256)]
DEADLINES = {"ready_floor": "5 s", "attempt": "20 s", "heartbeat": "500 ms", "silence": "10 s"}


class PolicyTrainer:
    """Trains a member's lease on rollouts of the policy version before the newest, as an orchestrator would feed it."""

    def __init__(self, post: Post, folder: Path) -> None:
        self.post, self.state, self.folder = post, post.state, folder
        self.versions: dict[int, Path] = {}
        self.sampled: dict[int, np.ndarray] = {}
        self.rewards: dict[int, list[float]] = {}
        self.steps: list[StepDone] = []

    async def start(self, genesis: Path) -> None:
        self.group = await WorkerGroup.start(
            genesis, self.state, 1, "cpu", 1, self.folder, program=PROGRAM,
            settings=ObjectiveSection().model_dump_json(),
        )  # fmt: skip

    def publish(self, version: int) -> None:
        """Write the outer state as a policy version; the window of two versions is kept."""
        self.versions[version] = self.folder / f"policy-{version}.safetensors"
        write_weights(self.versions[version], self.state.layout, self.state.params, "BF16")
        self.sampled[version] = self.state.params.copy()
        for old in [number for number in self.versions if number < version - 1]:
            self.versions.pop(old).unlink()
            del self.sampled[old]

    async def train(
        self,
        lease: Lease,
        round_number: int,
        *,
        done: int,
        lr: float,
        on_step: Callable[[int, float, int], None],
    ) -> Outcome:
        self.publish(round_number)
        version = min(self.versions)
        rest = cut(spans_of(lease), done)[1]
        positions = [position for span in rest for position in range(span.start, span.start + span.count)]
        made = await groups(positions, version, self.sampled[version])
        self.post.trained += [(round_number, span.start, span.count) for span in rest]
        rewards = [[rollout.reward for rollout in group.rollouts] for group in made]
        self.rewards.setdefault(round_number, []).extend(chain.from_iterable(rewards))
        kept = [group for group, given in zip(made, rewards, strict=True) if informative(given)]
        path = self.folder / "batch.safetensors"
        await asyncio.to_thread(write_batch, path, pack(examples_of(kept), MODEL.context))

        def told(step: StepDone) -> None:
            self.steps.append(step)
            on_step(step.step, step.loss, step.tokens)

        work = work_of([Batch(path, len(positions))], self.versions)
        result = await self.group.train(work, round_number, told, go_on=done > 0, lr=lr)
        return Outcome(result.samples, result.tokens, result.steps, result.loss, result.finite)

    def request_stop(self) -> None:
        self.group.request_stop()

    async def evaluate(self) -> float | None:
        return await self.group.evaluate()


def begin(folder: Path) -> tuple[Genesis, Started]:
    """The run, which begins with the weights of a warm start."""
    started = warm_start(MODEL, ENVIRONMENT, RENDERER, 1, Plan(low=0.12, lr=5e-3, batch=32))
    write_weights(folder / "warm.safetensors", layout_of(MODEL), started.params)
    sections = RunSections.model_validate(
        {
            "run": {"rounds": ROUNDS},
            "model": {**MODEL.model_dump(), "weights": "warm.safetensors"},
            "data": {"source": "none"},
            "inner": {"batch": POSITIONS, "lr": 1e-3, "warmup_steps": 0, "schedule": "constant", "weight_decay": 0.0},
            "outer": {"lr": 1.0, "momentum": 0.0},
            "round": {"inner_steps": 1, "chunk": 4096, "start_members": 2},
            "deadline": DEADLINES,
        }
    )  # fmt: skip
    return create_genesis(sections, OPERATOR.peer_id, folder), started


def quality(params: np.ndarray) -> float:
    return solve_rate(model_with(MODEL, params), HELD_OUT)


async def test_two_trainers_share_a_policy_and_it_gets_better(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    genesis, started = await asyncio.to_thread(begin, tmp_path)
    (tmp_path / "genesis.json").write_bytes(genesis.to_bytes())
    trainers: list[PolicyTrainer] = []

    def prepare(post: Post) -> None:
        trainers.append(PolicyTrainer(post, tmp_path / f"workers-{post.number}"))
        post.trainer = trainers[-1]

    async with fleet(tmp_path, 0, lambda *_: np.zeros(0), genesis, begin=False) as crowd:
        crowd.corpus, crowd.prepare = corpus_of(genesis, tmp_path / "files", tmp_path), prepare
        for _ in range(2):
            await crowd.add()
        assert all(np.array_equal(post.state.params, started.params) for post in crowd.posts)
        try:
            await asyncio.gather(*(one.start(tmp_path / "genesis.json") for one in trainers))
            crowd.begin()
            await crowd.all_finished(120)
        finally:
            await asyncio.gather(*(one.group.stop() for one in trainers))
        crowd.check_equal()
        crowd.check_books()
        first, second = crowd.posts
        assert first.state.round == ROUNDS and np.array_equal(first.state.params, second.state.params)
        for number, certified in enumerate(crowd.chain()[1:]):
            assert certified.value.round == number
            assert {entry.peer for entry in certified.value.roster} == {post.peer for post in crowd.posts}
        assert not first.of("evaluation"), "a policy holds no text out"

    for one in trainers:
        assert len(one.steps) == ROUNDS
        assert one.steps[0].metrics["ratio_max"] < 1.1, "the first step is on policy, but for bf16"
        assert max(step.metrics["ratio_max"] for step in one.steps[1:]) > 1.1, "later ones are a version late"
    rewards = [np.concatenate([one.rewards[number] for one in trainers]) for number in range(ROUNDS)]
    first_third, last_third = (np.concatenate(part) for part in (rewards[:4], rewards[-4:]))
    assert last_third.mean() > first_third.mean()
    assert (last_third == 1).mean() > 1.2 * (first_third == 1).mean()
    assert quality(first.state.params) > 1.3 * started.solved
