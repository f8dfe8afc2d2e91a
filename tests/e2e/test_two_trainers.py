"""Two trainers, a rollout worker and a validator as real daemons; each trainer is killed once (kill -9)."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from diloco.architecture import layout_of
from diloco.weights import write_weights
from protocol.identity import Identity
from rl.training.warmstart import Plan, warm_start
from tests.e2e.cluster import ROOT, Cluster, cluster
from tests.rl.training.reversing import ENVIRONMENT, MODEL, RENDERER

pytestmark = pytest.mark.soak  # four daemons that compute: a minute on two free cores, and five on busy ones

RUN = """\
[run]
name = "two-trainers"
rounds = 100000
[model]
hidden = {hidden}
layers = {layers}
heads = {heads}
kv_heads = {kv_heads}
intermediate = {intermediate}
vocab = {vocab}
context = {context}
weights = "warm.safetensors"
[data]
source = "none"
[inner]
batch = 4
lr = 1e-4
warmup_steps = 0
schedule = "constant"
[outer]
lr = 1.0
momentum = 0.0
[round]
inner_steps = 1
codec = "fp32"
[deadline]
ready_floor = "3 s"
attempt = "8 s"
heartbeat = "500 ms"
silence = "5 s"
[rl]
environment = "few-letters"
group_size = 8
max_tokens = 12
patience = "20 s"
planted = 0.0
twice = 0.0
validators = ["{judge}"]
"""

PACKAGE = """\

from tests.rl.training.reversing import FewLetters


class Letters(FewLetters):
    name, version = "few-letters", "1"


def make(config):
    return Letters()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("two-trainers")) as made:
        started = warm_start(MODEL, ENVIRONMENT, RENDERER, 1, Plan(low=0.12, lr=5e-3, batch=32))
        write_weights(made.folder / "warm.safetensors", layout_of(MODEL), started.params)
        (made.folder / "vic").mkdir()
        judge = Identity.load_or_create(made.folder / "vic" / "identity.key").peer_id
        text = RUN.format(**MODEL.model_dump(), judge=judge)
        install(made.folder)
        nodes = [made.add(name, run=text) for name in ("tom", "max", "ana", "vic")]
        for node in nodes:  # what paces rounds here is rollouts, and not bytes
            node.file.write_text(node.file.read_text().replace('upload = "160 kb/s"', 'upload = "1 Gb/s"'))
        tom, *others = nodes
        tom.start("init", PYTHONPATH=paths(made))
        for node, role in zip(others, ("trainer", "rollout", "validator"), strict=True):
            node.start("run", "--join", tom.address, "--role", role, PYTHONPATH=paths(made))
        yield made


def paths(made: Cluster) -> str:
    """Where processes find this source tree, and the environment's package."""
    return os.pathsep.join((str(ROOT), str(made.folder / "packages")))


def install(folder: Path) -> None:
    """An environment as a package of its own brings it."""
    place = folder / "packages"
    about = place / "few_letters-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: few-letters\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[intellect_node.environments]\nfew-letters = few_letters:make\n")
    (place / "few_letters.py").write_text(PACKAGE)


def test_both_train_one_policy_on_what_one_worker_makes_for_both(run: Cluster) -> None:
    tom, most = run["tom"], run["max"]
    for trainer in (tom, most):
        trainer.wait("rollouts.step")
    both = tom.wait("commit", lambda event: {tom.peer, most.peer} <= set(event["roster"]))
    most.wait("commit", lambda event: event["round"] >= both["round"])
    assert run.check_digests() >= 1
    given = {event["trainer"] for event in run["ana"].of("rollouts.made")}
    assert given == {tom.peer, most.peer}
    assert all(event["outcome"] == "accepted" for event in run["vic"].of("verdict.given"))


def test_when_one_is_killed_the_other_goes_on_and_it_comes_back(run: Cluster) -> None:
    tom, most = run["tom"], run["max"]
    most.signal(signal.SIGKILL)
    most.ended()
    since, before = tom.mark(), tom.newest_round()
    tom.wait("commit", lambda event: event["roster"] == [tom.peer] and event["round"] > before, since=since)
    tom.wait("rollouts.step", since=since)
    run["ana"].wait("rollouts.made", lambda event: event["trainer"] == tom.peer, since=run["ana"].mark())
    most.start("run", "--join", tom.address, PYTHONPATH=paths(run))
    again = most.mark()
    most.wait("rollouts.step", since=again)
    tom.contributed(most.peer, since=tom.mark())


def test_the_founder_is_killed_and_goes_on_where_it_was(run: Cluster) -> None:
    tom = run["tom"]
    before = tom.newest_round()
    tom.signal(signal.SIGKILL)
    tom.ended()
    since = tom.mark()
    tom.start(
        "run",
        "--join",
        run["max"].address,
        PYTHONPATH=paths(run),
    )
    tom.wait("rollouts.step", lambda event: event["round"] > before, since=since)
    tom.wait("commit", lambda event: event["round"] > before and tom.peer in event["roster"], since=since)
    assert run.check_digests() >= 2
    run.check_values()
    for name in ("tom", "max"):
        assert not [each for each in run[name].of("worker.banned")], "nobody honest is banned for it"
    refused = [event for event in run["vic"].of("verdict.given") if event["outcome"] == "refused"]
    assert not refused, refused
