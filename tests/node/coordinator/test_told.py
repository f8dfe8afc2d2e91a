"""What events say of others becomes facts, as far as the teller may be believed."""

from typing import Any

from node.coordinator.facts import Evidence, Fact, Policy, Refused, Verdict
from node.coordinator.fold import replay
from node.coordinator.told import told
from tests.node.coordinator.sample import START, opening, peer, report

TRAINER, WORKER, VALIDATOR = peer(0), peer(1), peer(2)
VERDICT = {
    "worker": WORKER, "digest": "ab", "accepted": True, "code": "", "sentence": "", "rollouts": 8, "reward": 0.5,
    "solved": 0.25, "version": 3, "staleness": 1, "validators": [VALIDATOR],
}  # fmt: skip


def say(kind: str, fields: dict[str, Any], *, own: bool = False, trains: bool = True) -> tuple[Fact, ...]:
    return told(TRAINER, kind, fields, START, own=own, trains=trains)


def test_a_trainers_verdicts_are_witnessed_and_summed() -> None:
    (verdict,) = say("rollout.verdict", VERDICT)
    assert isinstance(verdict, Verdict)
    assert (verdict.trust, verdict.source, verdict.validator) == ("witnessed", TRAINER, VALIDATOR)
    (refused,) = say("rollout.verdict", VERDICT | {"accepted": False, "code": "E-RL-001", "reward": None})
    sums = replay([*opening(), verdict, refused]).rollouts
    assert (sums.accepted, sums.refused, sums.reward_sum, sums.solved_sum) == (8, 8, 4.0, 2.0)


def test_who_does_not_train_judges_nobody_and_evidence_is_only_this_nodes_own() -> None:
    for kind in ("rollout.verdict", "worker.banned", "validator.distrusted"):
        assert say(kind, VERDICT, trains=False) == ()
    assert say("evidence", {"accused": WORKER, "what": "equivocation"}) == ()
    assert isinstance(say("evidence", {"accused": WORKER, "what": "x"}, own=True)[0], Evidence)
    (ban,) = say("worker.banned", {"worker": WORKER, "sentence": "It cheats.", "evidence": []})
    assert isinstance(ban, Refused) and (ban.peer, ban.what) == (WORKER, "rollouts")


def test_versions_say_who_holds_them() -> None:
    (published,) = say("policy.published", {"version": 4, "bytes": 1000, "digest": "cd"})
    (running,) = told(
        WORKER, "policy.running", {"version": 4, "seconds": 2.0}, START, own=False, trains=False
    )
    assert isinstance(published, Policy)
    held = replay([published, running]).versions["policy/4"]
    assert (held.size, held.digest, held.holders) == (1000, "cd", {TRAINER: 1.0, WORKER: 1.0})


def test_a_trainer_says_how_its_rollouts_stand() -> None:
    view = replay([
        *opening(),
        report(TRAINER, 1, START, "rollouts.queue", newest=4, workers=3, working=32, judging=8, ready=16, free=0,
               validators=[VALIDATOR], distrusted=[]),
        report(TRAINER, 2, START, "rollouts.step", round=4, reward=0.5, solved=0.25, staleness={"0": 3, "1": 1}),
        report(TRAINER, 3, START, "rollouts.waiting", sentence="Waiting for rollouts."),
    ])  # fmt: skip
    stands = view.learning[TRAINER]
    assert (stands.newest, stands.workers, stands.ready, stands.validators) == (4, 3, 16, (VALIDATOR,))
    assert (stands.reward, stands.staleness) == (0.5, {"0": 3, "1": 1})
    assert stands.waiting == "Waiting for rollouts."


def test_fields_of_the_wrong_type_do_no_harm() -> None:
    wild = {name: {"a": [1]} for name in (*VERDICT, "staleness", "validator", "bytes", "sentence")}
    for kind in ("rollout.verdict", "worker.banned", "validator.distrusted", "policy.published", "evidence"):
        replay([*say(kind, wild, own=True), *say(kind, {}, own=True)])
    for kind in ("rollouts.queue", "rollouts.step", "rollouts.waiting"):
        replay(
            [
                *opening(),
                report(
                    TRAINER, 1, START, kind, **wild | {"newest": "x", "reward": float("nan"), "round": True}
                ),
            ]
        )
