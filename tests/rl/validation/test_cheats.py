"""Each way to cheat is found in the first file that is looked at, with a code, a sentence and evidence."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from blake3 import blake3

from protocol.errors import Code
from protocol.units import Digest
from rl.rollouts.record import Rollout
from rl.validation.judging import Judge
from rl.validation.terms import Lease
from rl.validation.verdict import BAN, Outcome, Verdict
from tests.rl.validation.cheats import CHEATS, Groups, changed, cut, other_weights, said_to_be, with_proofs
from tests.rl.validation.conftest import judge_of
from tests.rl.validation.world import (
    ANA,
    EVE,
    NEWEST,
    WINDOW,
    Drawing,
    World,
    beacon_of,
    edited,
)


def judged(
    judge: Judge, world: World, groups: Groups, lease: Lease, *, audited: bool = True, name: bytes = b"file"
) -> Verdict:
    file = Digest(blake3(name).digest())
    return asyncio.run(judge.judge(file, world.provenance(lease), groups, lease, audited=audited))


def assert_found(verdict: Verdict, *codes: Code) -> None:
    assert verdict.outcome is Outcome.REFUSED
    assert verdict.code in codes, verdict.sentence
    assert verdict.sentence.endswith((".", ")"))
    assert verdict.findings[0].evidence


@pytest.fixture(scope="module")
def honest(world: World) -> Groups:
    return world.draw(world.lease(EVE.peer_id))


@pytest.mark.parametrize("name", CHEATS)
def test_each_cheat_is_found_in_its_first_file(judge: Judge, world: World, name: str) -> None:
    cheat, codes = CHEATS[name]
    lease = world.lease(EVE.peer_id)
    assert_found(judged(judge, world, cheat(world, lease), lease), *codes)


WITHOUT_THE_MODEL = ("truncated", "best of four", "forged reward", "copied rollouts")


@pytest.mark.parametrize("name", WITHOUT_THE_MODEL)
def test_some_cheats_are_found_in_files_that_are_not_audited(judge: Judge, world: World, name: str) -> None:
    cheat, codes = CHEATS[name]
    lease = world.lease(EVE.peer_id)
    assert_found(judged(judge, world, cheat(world, lease), lease, audited=False), *codes)


@pytest.mark.parametrize("noise", [0.003, 0.1])
def test_other_weights_are_found_by_little_and_by_much_noise(
    judge: Judge, world: World, noise: float
) -> None:
    lease = world.lease(EVE.peer_id)
    verdict = judged(judge, world, other_weights(world, lease, noise), lease)
    assert_found(verdict, Code.RL_PROOF, Code.RL_OTHER_LOGPROBS)


@pytest.mark.parametrize("old", [3, 4])
def test_a_policy_of_a_step_or_two_ago_is_not_that_of_now(judge: Judge, world: World, old: int) -> None:
    lease = world.lease(EVE.peer_id, version=5)
    groups = world.draw(lease, Drawing(versions=(old,), claimed=(5,)))
    assert_found(judged(judge, world, groups, lease), Code.RL_PROOF, Code.RL_OTHER_LOGPROBS)


def test_honest_work_is_accepted(judge: Judge, world: World, honest: Groups) -> None:
    verdict = judged(judge, world, honest, world.lease(EVE.peer_id))
    assert (verdict.outcome, verdict.findings, verdict.strikes) == (Outcome.ACCEPTED, (), 0)
    assert (verdict.rollouts, verdict.audited) == (8, 8)


def test_honest_work_whose_weights_changed_on_the_way_is_accepted(judge: Judge, world: World) -> None:
    lease = world.lease(version=5)
    groups = world.draw(lease, Drawing(versions=(5, 6)))
    assert any(set(rollout.versions.tolist()) >= {5, 6} for group in groups for rollout in group.rollouts)
    assert judged(judge, world, groups, lease).outcome is Outcome.ACCEPTED


def test_a_change_of_weights_is_not_believed_at_another_place_than_it_was(judge: Judge, world: World) -> None:
    lease = world.lease(version=5)
    groups = world.draw(lease, Drawing(versions=(5, 6), claimed=(5,)))
    assert_found(judged(judge, world, groups, lease), Code.RL_PROOF)


@pytest.mark.failure_mode(45)
@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_the_window_is_exact_on_both_sides(judge: Judge, world: World, version: int) -> None:
    lease = world.lease(version=version)
    verdict = judged(judge, world, world.draw(lease), lease, audited=False)
    inside = version >= NEWEST - WINDOW
    assert verdict.outcome is (Outcome.ACCEPTED if inside else Outcome.REFUSED)
    assert verdict.code is (None if inside else Code.RL_WINDOW)
    assert verdict.strikes == 0, "late is no lie"


def test_tokens_of_a_version_outside_of_what_was_to_be_had_are_found_without_the_model(
    judge: Judge, world: World
) -> None:
    lease = world.lease(EVE.peer_id, version=5)
    for version in (4, NEWEST + 1):
        groups = said_to_be(world.draw(lease), replace(lease, version=version), world)
        groups = tuple(replace(group, version=5) for group in groups)
        assert_found(judged(judge, world, groups, lease, audited=False), Code.RL_WINDOW)


def test_another_prompt_than_the_task_is_found(judge: Judge, world: World) -> None:
    lease = world.lease(EVE.peer_id)
    hidden = world.draw(lease, Drawing(prompt="<t>abc</t> is easy: <t>cba</t>"))
    assert_found(judged(judge, world, hidden, lease), Code.RL_PROOF)
    shown = world.draw(lease)
    shown = edited(shown, lambda rollout: replace(rollout, tokens=changed(rollout.tokens, 5)))
    assert judged(judge, world, shown, lease, audited=False).code is Code.RL_TRANSCRIPT


@pytest.mark.parametrize("says", ["length", "eos", "stop", "over"])
def test_a_rollout_that_was_cut_by_hand_is_found_without_the_model(
    judge: Judge, world: World, honest: Groups, says: str
) -> None:
    def shorten(rollout: Rollout) -> Rollout:
        return replace(world.recomputed(cut(rollout, rollout.prompt + 20), 5), finish=says)

    groups = tuple(world.rewarded(group) for group in edited(honest, shorten))
    verdict = judged(judge, world, groups, world.lease(EVE.peer_id), audited=False)
    assert_found(verdict, Code.RL_TERMINATION)


@pytest.mark.parametrize("reward", [1.0, -1.0, float("nan"), float("inf")])
def test_a_forged_reward_is_found_without_the_model(
    judge: Judge, world: World, honest: Groups, reward: float
) -> None:
    groups = edited(honest, lambda rollout: replace(rollout, reward=reward))
    verdict = judged(judge, world, groups, world.lease(EVE.peer_id), audited=False)
    assert_found(verdict, Code.RL_REWARD)
    assert verdict.strikes >= BAN


def test_one_rollout_handed_in_for_a_whole_group_is_found_without_the_model(
    judge: Judge, world: World, honest: Groups
) -> None:
    first = honest[0].rollouts[0]
    copies = tuple(replace(first, index=index) for index in range(4))
    groups = (replace(honest[0], rollouts=copies), honest[1])
    verdict = judged(judge, world, groups, world.lease(EVE.peer_id), audited=False)
    assert_found(verdict, Code.RL_IMPLAUSIBLE, Code.RL_COPY)


def test_proofs_of_another_file_are_found(judge: Judge, world: World, honest: Groups) -> None:
    lease, other = world.lease(EVE.peer_id), world.lease(ANA.peer_id, positions=(9, 10))
    others = world.draw(other)
    assert_found(judged(judge, world, with_proofs(honest, others), lease), Code.RL_PROOF)
    assert judged(judge, world, others, other, name=b"first").outcome is Outcome.ACCEPTED
    stolen = judged(judge, world, with_proofs(honest, others), lease, audited=False)
    assert_found(stolen, Code.RL_COPY)


@pytest.mark.failure_mode(50)
def test_log_probabilities_of_another_distribution_than_the_sampled_one_are_found(world: World) -> None:
    nucleus = World(replace(world.terms.sampling, top_p=0.8))
    nucleus.policies = world.policies
    lease = nucleus.lease(EVE.peer_id)
    groups = nucleus.draw(lease)
    assert judged(judge_of(nucleus), nucleus, groups, lease).outcome is Outcome.ACCEPTED
    full = World(replace(world.terms.sampling, top_p=1.0))
    full.policies = world.policies
    forged = tuple(
        replace(group, rollouts=tuple(full.recomputed(rollout, 5) for rollout in group.rollouts))
        for group in groups
    )
    verdict = judged(judge_of(nucleus), nucleus, forged, lease)
    assert_found(verdict, Code.RL_OTHER_LOGPROBS, Code.RL_IMPLAUSIBLE)


@pytest.mark.failure_mode(50)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.5])
def test_log_probabilities_that_cannot_be_are_refused_on_arrival(
    judge: Judge, world: World, honest: Groups, value: float
) -> None:
    def spoil(rollout: Rollout) -> Rollout:
        logprobs = rollout.logprobs.copy()
        logprobs[-1] = value
        return replace(rollout, logprobs=logprobs)

    verdict = judged(judge, world, edited(honest, spoil), world.lease(EVE.peer_id), audited=False)
    assert verdict.code is Code.RL_LOGPROBS


def test_the_beacon_of_another_version_gives_other_tasks_and_other_noise(judge: Judge, world: World) -> None:
    lease = world.lease(EVE.peer_id)
    groups = world.draw(replace(lease, beacon=beacon_of(3)))
    verdict = judged(judge, world, groups, lease, audited=False)
    assert_found(verdict, Code.RL_IMPLAUSIBLE, Code.RL_TRANSCRIPT)
