import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import torch

from protocol.errors import Code, NodeError
from protocol.units import Digest
from rl.environments.interface import Message, Messages, Task
from rl.environments.play import Room, Sampler, Turn, play
from rl.rollouts.record import Group, Int32s, Rollout
from rl.sampling import Sampling
from rl.validation.audit import audit
from rl.validation.judging import Judge, Patience
from rl.validation.planting import PLANTS, plant
from rl.validation.tolerances import Tolerances
from rl.validation.verdict import Outcome, Verdict
from rl.work.seeds import task_seed, token_seed
from tests.rl.validation.conftest import judge_of
from tests.rl.validation.world import BEN, VAL, TorchPolicy, World

FILE, OTHER = Digest(bytes(32)), Digest(b"o" * 32)


class Twisted:
    """An environment that goes wrong in scoring, in the way that it is told to, for one of the positions."""

    name, version = "reverse-text", "1"

    def __init__(self, world: World, how: str) -> None:
        self._honest, self._how = world.remote, how
        self.hung = asyncio.Event()

    async def task(self, seed: int) -> Task:
        return await self._honest.task(seed)

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        return None

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        match self._how:
            case "raises":
                raise ZeroDivisionError("division by zero")
            case "fails":
                raise NodeError(Code.RL_ENVIRONMENT_FAILED, "Its process ended.")
            case "hangs":
                self.hung.set()
                await asyncio.Event().wait()
            case "counts wrong":
                return (1.0,)
            case "gives nan":
                return tuple(float("nan") for _ in transcripts)
        raise AssertionError(self._how)


def twisted_judge(world: World, how: str, seconds: float = 600.0) -> tuple[Judge, Twisted]:
    environment = Twisted(world, how)
    patience = Patience(environment=timedelta(seconds=seconds))
    judge = Judge(
        VAL.peer_id,
        world.terms,
        environment,
        world.renderer,
        world.policy_of,
        Tolerances.of("float32"),
        patience,
    )
    return judge, environment


@pytest.mark.parametrize("how", ["raises", "fails", "counts wrong", "gives nan"])
async def test_an_environment_that_fails_in_scoring_leaves_the_file_undecided_and_blames_nobody(
    world: World, drawn: tuple[Group, ...], how: str
) -> None:
    judge, _ = twisted_judge(world, how)
    lease = world.lease()
    verdict = await judge.judge(FILE, world.provenance(lease), drawn, lease, audited=True)
    assert (verdict.outcome, verdict.code, verdict.strikes) == (Outcome.UNDECIDED, Code.RL_UNJUDGED, 0)


async def test_an_environment_that_hangs_is_given_up_after_a_bounded_time(
    world: World, drawn: tuple[Group, ...]
) -> None:
    judge, _ = twisted_judge(world, "hangs", seconds=0.05)
    lease = world.lease()
    verdict = await judge.judge(FILE, world.provenance(lease), drawn, lease, audited=True)
    assert (verdict.outcome, verdict.code) == (Outcome.UNDECIDED, Code.RL_UNJUDGED)
    assert "0.05 s" in verdict.sentence


async def test_while_one_file_hangs_others_are_judged(world: World, drawn: tuple[Group, ...]) -> None:
    judge, environment = twisted_judge(world, "hangs")
    lease = world.lease()
    hanging = asyncio.create_task(judge.judge(FILE, world.provenance(lease), drawn, lease, audited=True))
    await environment.hung.wait()
    broken = world.lease(counter=1)
    verdict = await judge.judge(OTHER, world.provenance(lease), drawn, broken, audited=True)
    assert verdict.code is Code.RL_PROVENANCE
    assert not hanging.done()
    hanging.cancel()


@pytest.fixture(scope="module")
def drawn(world: World) -> tuple[Group, ...]:
    return world.draw(world.lease())


def judged(judge: Judge, world: World, groups: tuple[Group, ...], **changes: object) -> Verdict:
    lease = world.lease(**changes)
    return asyncio.run(judge.judge(FILE, world.provenance(lease), groups, lease, audited=True))


def test_weights_that_cannot_be_had_leave_the_file_undecided(world: World, drawn: tuple[Group, ...]) -> None:
    async def gone(version: int) -> TorchPolicy:
        raise NodeError(Code.RL_UNJUDGED, f"Version {version} is gone.")

    async def never(version: int) -> TorchPolicy:
        await asyncio.Event().wait()
        raise AssertionError

    for policy_of in (gone, never):
        judge = Judge(
            VAL.peer_id, world.terms, world.remote, world.renderer, policy_of, Tolerances.of("float32"),
            Patience(policy=timedelta(seconds=0.05)),
        )  # fmt: skip
        verdict = judged(judge, world, drawn)
        assert (verdict.outcome, verdict.audited) == (Outcome.UNDECIDED, 0)


def test_a_validator_whose_own_numbers_are_not_finite_judges_nothing(
    world: World, drawn: tuple[Group, ...]
) -> None:
    class Broken(TorchPolicy):
        def states(self, sequences: Sequence[Int32s]) -> list[torch.Tensor]:
            return [states * float("nan") for states in super().states(sequences)]

    async def broken(version: int) -> TorchPolicy:
        return Broken(world.policies[version].model)

    judge = Judge(VAL.peer_id, world.terms, world.remote, world.renderer, broken, Tolerances.of("float32"))
    assert judged(judge, world, drawn).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize("seed", range(8))
def test_a_planted_file_passes_every_cheap_check_and_no_audit(
    world: World, drawn: tuple[Group, ...], seed: int
) -> None:
    groups = plant(drawn, bytes((seed,)) * 32)
    assert groups is not None
    verdict = judged(judge_of(world), world, groups)
    assert verdict.outcome is Outcome.REFUSED
    assert verdict.code is Code.RL_PROOF


@pytest.mark.parametrize("kind", PLANTS)
def test_who_does_not_run_the_model_misses_what_is_planted(
    world: World, drawn: tuple[Group, ...], kind: str
) -> None:
    groups = PLANTS[kind](drawn, np.random.default_rng(1))
    lease = world.lease()
    verdict = asyncio.run(judge_of(world).judge(FILE, world.provenance(lease), groups, lease, audited=False))
    assert verdict.outcome is Outcome.ACCEPTED


def test_a_single_sampled_token_is_proved_and_accepted(world: World) -> None:
    short = World(Sampling(max_tokens=1))
    short.policies = world.policies
    lease = short.lease()
    groups = short.draw(lease)
    assert {len(rollout.proofs) for group in groups for rollout in group.rollouts} == {1}
    assert judged(judge_of(short), short, groups).outcome is Outcome.ACCEPTED


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, max_tokens=40),
        Sampling(top_p=0.9, max_tokens=40),
        Sampling(top_k=8, max_tokens=40),
        Sampling(temperature=0.0, max_tokens=40),
        Sampling(temperature=1.3, top_p=0.95, top_k=50, max_tokens=33, stop=("a",)),
    ],
    ids=str,
)
def test_honest_work_is_accepted_under_every_kind_of_sampling(world: World, sampling: Sampling) -> None:
    other = World(sampling)
    other.policies = world.policies
    groups = other.draw(other.lease())
    verdict = judged(judge_of(other), other, groups)
    assert verdict.outcome is Outcome.ACCEPTED, verdict.sentence


def test_two_computations_of_one_file_agree_far_within_the_tolerance(
    world: World, drawn: tuple[Group, ...]
) -> None:
    lease, tolerances = world.lease(), Tolerances.of("float32")
    found = audit(drawn, world.policies, lease.beacon, lease.worker, world.terms.sampling, tolerances)
    assert found.findings == []
    assert found.tokens == sum(int(each.sampled.sum()) for group in drawn for each in group.rollouts)
    assert found.largest < tolerances.logit / 20


class Guessing:
    """Two turns: the environment answers the first with the number of its letters."""

    name, version = "guessing", "1"

    def task(self, seed: int) -> Task:
        return Task(seed, (Message("user", f"guess {seed % 100}"),))

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        return None if len(transcript) > 2 else Message("user", f"no: {len(transcript[-1].content)}")

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        return tuple(float(len(transcript[-1].content) % 2) for transcript in transcripts)


class Drawer(Sampler):
    """Samples turns with one policy, reading everything again for each token."""

    def __init__(self, world: World, seed: bytes) -> None:
        self._world, self._seed = world, seed

    async def turn(self, tokens: Sequence[int], first: int, room: int) -> Turn:
        from rl.sampling import choose, finish, noise, processed

        policy, sampling = self._world.policies[5], self._world.terms.sampling
        said: list[int] = []
        logprobs: list[float] = []
        while True:
            states = policy.states([np.array([*tokens, *said], np.int32)])[0][-1:]
            own = processed(policy.logits(states).numpy()[0], sampling)
            token = choose(own, noise(self._seed, first + len(said), self._world.terms.vocab))
            said.append(token)
            logprobs.append(float(own[token]))
            left = self._world.terms.context - len(tokens) - len(said)
            end = finish(sampling, said, self._world.renderer.text, first, left)
            if end is not None:
                return Turn(said, logprobs, [5] * len(said), end)


@pytest.mark.failure_mode(49)
def test_a_conversation_of_several_turns_is_accepted_and_a_forged_word_of_the_environment_found(
    world: World,
) -> None:
    both = Sampling(max_tokens=60, stop=tuple("aeiounstrhldcmp"))
    other = World(both, environment=Guessing(), turns=2, group_size=2)
    other.policies = world.policies
    lease = other.lease(BEN.peer_id, positions=(3,))
    task = other.environment.task(task_seed(lease.beacon, 3))
    room = Room(2, 60, other.terms.context)

    async def one(index: int) -> Rollout:
        seed = token_seed(lease.beacon, 3, lease.worker, index)
        talk, end = await play(other.environment, other.renderer, task, Drawer(other, seed), room)
        (reward,) = await other.environment.score(task, [talk.messages])
        made = Rollout(
            3, index, np.array(talk.tokens, np.int32), np.array(talk.sampled), np.array(talk.logprobs, np.float32),
            np.array(talk.versions, np.int32), (), (), reward, end,
        )  # fmt: skip
        return other.recomputed(made, 5)

    rollouts = tuple(asyncio.run(one(index)) for index in range(2))
    assert any(np.count_nonzero(np.diff(each.sampled.astype(int))) > 1 for each in rollouts), "no second turn"
    group = Group(3, 5, rollouts)
    verdict = judged(judge_of(other), other, (group,), worker=BEN.peer_id, positions=(3,))
    assert verdict.outcome is Outcome.ACCEPTED, verdict.sentence

    talked = next(each for each in rollouts if np.count_nonzero(np.diff(each.sampled.astype(int))) > 1)
    tokens = talked.tokens.copy()
    place = int(np.flatnonzero(~talked.sampled)[-1])
    tokens[place] = (tokens[place] + 1) % 257
    forged = tuple(replace(each, tokens=tokens) if each is talked else each for each in rollouts)
    verdict = judged(
        judge_of(other), other, (replace(group, rollouts=forged),), worker=BEN.peer_id, positions=(3,)
    )
    assert verdict.code is Code.RL_TRANSCRIPT


def test_judging_leaves_the_event_loop_free(world: World, drawn: tuple[Group, ...]) -> None:
    threads: set[int] = set()

    class Noting(TorchPolicy):
        def states(self, sequences: Sequence[Int32s]) -> list[torch.Tensor]:
            threads.add(threading.get_ident())
            return super().states(sequences)

    async def noting(version: int) -> TorchPolicy:
        return Noting(world.policies[version].model)

    judge = Judge(VAL.peer_id, world.terms, world.remote, world.renderer, noting, Tolerances.of("float32"))
    assert judged(judge, world, drawn).audited == 8
    assert threads
    assert threading.get_ident() not in threads
