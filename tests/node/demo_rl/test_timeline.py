"""What a step costs in each phase, from samples of real processes and from made-up logs."""

import os
import subprocess
import sys
import time

import pytest

from node.demo_rl.plan import CHEAT, HONEST, RELAY, TRAINER, VALIDATOR
from node.demo_rl.timeline import PHASES, Sample, Watch, added_share, per_step, phase_of
from node.eventlog import Event


@pytest.mark.parametrize(
    ("node", "command", "phase"),
    [
        (HONEST[0], ["python", "-m", "node", "run"], "generation"),
        (HONEST[1], ["python", "-m", "rl.engine", "--listen", "7"], "generation"),
        (HONEST[0], ["python", "-m", "rl.environments.hosted"], "generation"),
        (VALIDATOR, ["python", "-m", "rl.environments.hosted"], "verification"),
        (TRAINER, ["python", "-m", "rl.training"], "training"),
        (TRAINER, ["python", "-m", "rl.rollouts.reader", "1", "2"], "verification"),
        (TRAINER, ["python", "-m", "node", "init"], "coordination"),
        (VALIDATOR, ["python", "-m", "protocol.directory.process"], "network"),
        (RELAY, ["/somewhere/p2pd", "-listen"], "network"),
        (RELAY, ["python", "-m", "node", "shardcast"], "broadcast"),
        (RELAY, [], "broadcast"),
    ],
)
def test_each_process_works_for_one_phase(node: str, command: list[str], phase: str) -> None:
    assert phase_of(node, command) == phase


def test_what_a_process_has_used_is_read_and_kept_when_it_has_ended() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline()
        watch = Watch()
        sample = watch.look({VALIDATOR: child.pid, CHEAT: os.getpid()}, time.time())
        assert 0.15 < sample.spent["verification"] < 10, "kernels count in hundredths of a second"
        assert sum(sample.spent.values()) == sample.spent["verification"], "the cheat counts nowhere"
        child.communicate(b"\n")
    assert watch.look({VALIDATOR: child.pid}, time.time()).spent == sample.spent


def sample(t: float, **spent: float) -> Sample:
    return Sample(t, dict.fromkeys(PHASES, 0.0) | spent)


def test_a_step_costs_what_was_used_between_two_samples_and_moving_policies_is_broadcast() -> None:
    steps = [Event(float(number), "rollouts.step", {}) for number in range(11)]
    samples = [
        sample(1.5, generation=100.0),
        sample(2.5, generation=110.0, training=10.0, verification=3.0, broadcast=1.0, coordination=5.0),
        sample(10.5, generation=190.0, training=50.0, verification=11.0, broadcast=3.0, coordination=13.0),
    ]
    logs = {
        TRAINER: [Event(t, "policy.published", {"cpu": 1.0}) for t in (1.0, 3.0, 4.0)],
        HONEST[0]: [Event(3.0, "policy.brought", {"cpu": 2.0}), Event(11.0, "policy.brought", {"cpu": 9.0})],
        VALIDATOR: [Event(3.0, "policy.brought", {"cpu": 4.0})],
    }

    def events(name: str, *kinds: str) -> list[Event]:
        return [event for event in logs.get(name, []) if event.kind in kinds]

    spent = per_step(samples, steps, events, begin=2)
    assert spent == {
        "generation": 78 / 8, "training": 5.0, "verification": 0.5, "broadcast": 10 / 8, "coordination": 6 / 8,
        "network": 0.0,
    }  # fmt: skip
    assert added_share(spent) == pytest.approx((0.5 + 1.25) / (9.75 + 5.0))
    assert per_step(samples, steps[:2], events, begin=2) is None, "too few steps"
    assert per_step(samples[:1], steps, events, begin=2) is None, "too few samples"
    assert per_step([], steps, events, begin=0) is None
