"""The verdict on a demo, from logs in which one thing at a time is not as promised."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from node.demo_rl.facts import Facts
from node.demo_rl.plan import CHEAT, HONEST, NODES, TRAINER, VALIDATOR, RlOptions, run_file, worker_file
from node.demo_rl.report import make_report, page
from node.demo_rl.timeline import PHASES, Sample
from node.demo_rl.verdict import judge
from node.demo_rl.view import closing, render, step_line
from node.eventlog import Event
from node.machine import measure
from node.runfile import parse
from protocol.identity import Identity

PEERS = {name: Identity.ephemeral(name.ljust(32).encode()).peer_id for name in NODES}


def event(kind: str, t: float = 0.0, **fields: Any) -> Event:
    return Event(t, kind, fields)


def step(number: int, age: int) -> Event:
    return event(
        "rollouts.step", 10.0 + number, round=number, reward=0.1 + 0.01 * number, solved=0.1, seconds=0.3,
        entropy=0.5, kl=0.01, groups=6,
        clipped=0.0, norm=1.0, empties={}, staleness={str(age): 6},
    )  # fmt: skip


def verdict(name: str, accepted: bool) -> Event:
    code = "accepted" if accepted else "E-RL-081"
    return event(
        "rollout.verdict", worker=PEERS[name], digest="ab", accepted=accepted, code=code, sentence="So it is."
    )


def shown() -> Facts:
    """A demo that showed all."""
    facts = Facts(RlOptions(24, 1))
    for name in NODES:
        facts.events[name].append(event("node.start", peer=PEERS[name]))
    facts.events[TRAINER] += [step(number, min(number, 2)) for number in range(24)]
    facts.events[TRAINER] += [verdict(name, name != CHEAT) for name in (*HONEST, CHEAT)]
    facts.events[TRAINER] += [
        event("worker.banned", 20.0, worker=PEERS[CHEAT], sentence="Other weights.", evidence=["ab"]),
        event("order.given", order="ban", peer=PEERS[CHEAT]),
        event("policy.published", 5.0, version=1, seconds=0.5),
        event("run.finished"),
    ]
    for name in HONEST:
        facts.events[name] += [
            event("policy.brought", 5.1, version=1, seconds=0.1), event("policy.running", 5.2, version=1, seconds=0.1),
            event("rollouts.made", 6.0, seconds=0.5),
        ]  # fmt: skip
    facts.events[VALIDATOR].append(event("verdict.given", 7.0, seconds=0.2))
    facts.events[CHEAT].append(event("rollouts.judged", banned=True, reason="Other weights."))
    facts.solved = {0: 0.1, 24: 0.3}
    facts.exits = dict.fromkeys(NODES, 0) | {CHEAT: 1}
    facts.evidence = ("ab.parquet",)
    return facts


def without(name: str, kind: str) -> Callable[[Facts], None]:
    def remove(facts: Facts) -> None:
        facts.events[name] = [each for each in facts.events[name] if each.kind != kind]

    return remove


BREAKS: dict[str, tuple[Callable[[Facts], Any], str]] = {
    "too few steps": (lambda facts: facts.events[TRAINER].remove(facts.steps[-1]) or drop(facts, 5), "GRPO steps"),
    "not finished": (without(TRAINER, "run.finished"), "its end"),
    "nothing learnt": (lambda facts: facts.solved.update({24: 0.19}), "not twice"),
    "never measured": (lambda facts: facts.solved.clear(), "not measured"),
    "too old": (lambda facts: facts.events[TRAINER].append(step(30, 3)), "versions old"),
    "nothing asynchronous": (lambda facts: young(facts), "asynchronous"),
    "a file of the cheat accepted": (lambda facts: facts.events[TRAINER].append(verdict(CHEAT, True)), "accepted"),
    "the cheat not banned": (without(TRAINER, "worker.banned"), "not banned"),
    "the cheat not told": (without(CHEAT, "rollouts.judged"), "told why"),
    "no evidence": (lambda facts: setattr(facts, "evidence", ()), "evidence"),
    "the cheat goes on": (lambda facts: facts.exits.pop(CHEAT), "did not end"),
    "no order": (without(TRAINER, "order.given"), "order the ban"),
    "an honest file refused": (
        lambda facts: facts.events[TRAINER].append(verdict(HONEST[0], False)), "worker-1 were refused"
    ),
    "an honest worker idle": (lambda facts: idle(facts, HONEST[1]), "No file of worker-2"),
    "no validator": (without(VALIDATOR, "verdict.given"), "judged nothing"),
    "no relay": (without(HONEST[0], "policy.brought"), "brought no policy"),
    "trouble": (lambda facts: facts.trouble.append("The disk is full."), "disk is full"),
}  # fmt: skip


def drop(facts: Facts, count: int) -> None:
    for each in facts.steps[-count:]:
        facts.events[TRAINER].remove(each)


def young(facts: Facts) -> None:
    without(TRAINER, "rollouts.step")(facts)
    facts.events[TRAINER] += [step(number, 1) for number in range(24)]


def idle(facts: Facts, name: str) -> None:
    for each in facts.verdicts(name):
        facts.events[TRAINER].remove(each)


def test_a_demo_that_showed_all_is_good() -> None:
    assert all(check.ok for check in judge(shown())), judge(shown())


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_not_as_promised_is_said(name: str) -> None:
    facts = shown()
    spoil, word = BREAKS[name]
    spoil(facts)
    wrong = [sentence for check in judge(facts) for sentence in check.wrong]
    assert any(word in sentence for sentence in wrong), wrong


def test_the_report_holds_what_the_issue_asks_for(tmp_path: Any) -> None:
    facts = shown()
    report = make_report(facts, judge(facts), measure(tmp_path))
    held = json.loads(json.dumps(report))
    assert held["ok"] and held["staleness"] == {"0": 6, "1": 6, "2": 132}
    assert held["seconds_of"] == {
        "broadcast": pytest.approx(0.7), "generation_of_a_file": 0.5, "verification_of_a_file": 0.2,
        "training_of_a_step": 0.3,
    }  # fmt: skip
    assert held["processor_seconds_of_a_step"] is None, "nothing was measured"
    assert held["rollout_files"] == {
        "worker-1": {"accepted": 1},
        "worker-2": {"accepted": 1},
        CHEAT: {"E-RL-081": 1},
    }
    assert held["ban"]["told"] == "Other weights." and held["steps"][3]["entropy"] == 0.5
    assert "<script" not in page(report, facts) and "Other weights." in page(report, facts)
    assert "10.0% before, 30.0% after" in closing(report)
    assert "step 4 of 24" in step_line(facts, facts.steps[3]) and render(facts, 3.0)


def test_the_run_files_are_right_and_their_run_is_one_of_reinforcement_learning(tmp_path: Any) -> None:
    judge_peer = PEERS[VALIDATOR]
    written = parse(run_file(RlOptions(24, 3), tmp_path / "warm.safetensors", judge_peer))
    assert written.rl.environment == "reverse-text" and written.rl.validators == (judge_peer,)
    assert written.run.rounds == 24 and written.round.inner_steps == 1 and written.outer.lr == 1.0
    assert parse(worker_file("http://127.0.0.1:1")).policy.sources == ("http://127.0.0.1:1",)


def test_the_report_draws_and_says_what_a_step_costs(tmp_path: Any) -> None:
    facts = shown()
    facts.samples = [
        Sample(t, dict.fromkeys(PHASES, 0.0) | {"generation": t, "training": t, "broadcast": t / 10})
        for t in (19.5, 33.5)
    ]
    report = make_report(facts, judge(facts), measure(tmp_path))
    spent = json.loads(json.dumps(report))["processor_seconds_of_a_step"]
    assert spent["generation"] == spent["training"] == 1.0 and spent["broadcast"] == pytest.approx(0.1)
    assert report["broadcast_and_verification_add"] == pytest.approx(0.05)
    assert "add 5.0% to" in closing(report) and "generation 1.00 s" in page(report, facts)
