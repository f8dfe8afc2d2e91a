"""Orchestrators under random deeds: nothing is trained on twice, nothing lost, and a restart knows what was known."""

from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.rl.orchestration.judge import Violation
from tests.rl.orchestration.mutants import MUTANTS, Mutant
from tests.rl.orchestration.world import Trainer, World, play

WORKERS = st.integers(0, 3).map("worker-{}".format)
DIES = st.none() | st.integers(0, 3)
KINDS = st.sampled_from(["good", "good", "flat", "older", "newer", "short", "partial", "claim", "broken"])
TRAINER = st.integers(0, 2)

SEEDS = (25, 57, 69, 81, *range(300))
"""Deeds under which a rule is missed; those that miss what is rarely missed come first, which is only quicker."""


class Orchestrators(RuleBasedStateMachine):
    """Up to three trainers, four workers and three validators in the hands of Hypothesis; the judge sees all.

    ``DIES`` is after how many effects of the event a trainer's process is killed.
    """

    @initialize(trainers=st.integers(1, 3), step=st.sampled_from([2, 4]))
    def begin(self, trainers: int, step: int) -> None:
        self.world = World(trainers, step=step)
        self.names = sorted(self.world.trainers)
        self.world.validators_are(frozenset({"validator-a", "validator-b"}))
        self.world.publish()

    def trainer(self, number: int) -> Trainer:
        return self.world.trainers[self.names[number % len(self.names)]]

    @rule(number=TRAINER, worker=WORKERS, lost=st.booleans(), dies=DIES)
    def a_worker_asks(self, number: int, worker: str, lost: bool, dies: int | None) -> None:
        self.world.ask(self.trainer(number), worker, lost=lost, most=dies)

    @rule(number=TRAINER, worker=WORKERS, kind=KINDS, twice=st.booleans(), dies=DIES)
    def a_worker_answers(self, number: int, worker: str, kind: str, twice: bool, dies: int | None) -> None:
        self.world.answer(self.trainer(number), worker, kind=kind, twice=twice, most=dies)

    @rule(number=TRAINER, worker=WORKERS, dies=DIES)
    def a_worker_gives_up(self, number: int, worker: str, dies: int | None) -> None:
        self.world.abandon(self.trainer(number), worker, dies)

    @rule(number=TRAINER, accepted=st.booleans(), strikes=st.integers(0, 2), dies=DIES, unsure=st.booleans())
    def a_validator_judges(
        self, number: int, accepted: bool, strikes: int, dies: int | None, unsure: bool
    ) -> None:
        self.world.judge_one(self.trainer(number), accepted, strikes, dies, unsure)

    @rule(number=TRAINER, which=st.integers(0, 7), dies=DIES)
    def a_bad_file_is_planted(self, number: int, which: int, dies: int | None) -> None:
        self.world.plant(self.trainer(number), which, dies)

    @rule(number=TRAINER)
    def a_validator_stays_silent(self, number: int) -> None:
        self.world.forget_verdict(self.trainer(number))

    @rule(number=TRAINER, which=st.integers(0, 7))
    def a_worker_appeals(self, number: int, which: int) -> None:
        self.world.appeal(self.trainer(number), which)

    @rule(present=st.frozensets(st.sampled_from(["validator-a", "validator-b", "validator-c"])))
    def validators_come_and_go(self, present: frozenset[str]) -> None:
        self.world.validators_are(present)

    @rule(number=TRAINER)
    def a_trainer_takes_a_step(self, number: int) -> None:
        self.world.train(self.trainer(number))

    @rule(number=TRAINER)
    def a_trainer_is_killed(self, number: int) -> None:
        self.world.boot(self.trainer(number))

    @rule(chosen=st.frozensets(TRAINER), left=st.none() | TRAINER, published=st.booleans())
    def a_round_is_decided(self, chosen: frozenset[int], left: int | None, published: bool) -> None:
        gone = None if left is None or len(self.names) == 1 else self.trainer(left).name
        present = tuple(name for name in self.names if name != gone)
        self.world.decide({self.trainer(number).name for number in chosen}, present)
        if published:
            self.world.publish()

    @rule(worker=WORKERS)
    def the_operator_bans_or_pardons(self, worker: str) -> None:
        banned = set(self.world.banned) ^ {worker}
        self.world.banned = tuple(sorted(banned))

    @rule(worker=WORKERS)
    def a_worker_dies(self, worker: str) -> None:
        self.world.lose(worker)

    @rule(seconds=st.sampled_from([0.5, 6.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.time_passes(seconds)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.recover()


TestOrchestrators = Orchestrators.TestCase
TestOrchestrators.settings = settings(
    max_examples=25,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("seed", range(40))
def test_under_drawn_deeds_positions_are_trained_once_and_in_the_window(seed: int) -> None:
    play(seed, trainers=1 + seed % 3)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_rule_that_is_taken_away_is_missed(mutant: Mutant) -> None:
    with ExitStack() as patches:
        for patched in mutant():
            patches.enter_context(patched)
        with pytest.raises(Violation):
            for seed in SEEDS:
                play(seed, trainers=1 + seed % 3)
