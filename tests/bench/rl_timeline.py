"""A step's time line in a whole run: what broadcast and verification add to generation and training.

The nodes of `intellect-node demo --rl` but for its cheat, as real processes. The policy has the demo's size, and draws
texts of 64 tokens, of which an environment in a package of its own likes some better than others. Counted are processor
seconds of a step in steady state, when workers are known and audited by share.
"""

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from diloco.architecture import initial_parameters, layout_of
from diloco.weights import write_weights
from node.demo_rl.conductor import Conductor
from node.demo_rl.facts import Facts
from node.demo_rl.plan import VALIDATOR, RlOptions, run_file
from node.demo_rl.timeline import PHASES, added_share
from node.demo_rl.view import View
from node.eventlog import EventLog
from node.runfile import parse
from protocol.identity import Identity
from rl.environments.interface import Message, Messages, Task
from tests.bench.measurement import Measurement

STEPS, TOKENS = 24, 64
_CHANGES = {
    'environment = "reverse-text"': 'environment = "liked-texts"', "config = { shortest = 2, longest = 4 }\n": "",
    "max_tokens = 12": f"max_tokens = {TOKENS}", "context = 64": "context = 128", "lr = 5e-4": "lr = 1e-6",
}  # fmt: skip
_ROOT = Path(__file__).parents[2]


class LikedTexts:
    """Each text has a reward of its own, which nobody can foresee: a group always teaches something."""

    name, version = "liked-texts", "1"

    def task(self, seed: int) -> Task:
        """A few letters to begin with."""
        return Task(seed, (Message("user", f"{seed % 10**8:08d}"),), {})

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """Nothing: one answer is all."""
        return None

    async def score(self, task: Task, transcripts: "tuple[Messages, ...]") -> tuple[float, ...]:
        """From 0 to 1, by the text's checksum."""
        return tuple(zlib.crc32(said[-1].content.encode()) / 2**32 for said in transcripts)


def make(config: object) -> LikedTexts:
    """The environment, as its entry point gives it."""
    return LikedTexts()


class Steady(Conductor):
    """The demo's nodes without its warm start and its cheat."""

    def _warm_start(self) -> None:
        (self._folder / VALIDATOR).mkdir(parents=True)
        validator = Identity.load_or_create(self._folder / VALIDATOR / "identity.key").peer_id
        weights = self._folder / "warm.safetensors"
        text = run_file(self._facts.options, weights, validator)
        for old, new in _CHANGES.items():
            assert old in text, old
            text = text.replace(old, new)
        (self._folder / "run.toml").write_text(text)
        model = parse(text).model
        write_weights(weights, layout_of(model), initial_parameters(model, 1))
        self._policies.mkdir()

    def _measure(self) -> None:
        pass

    def _is_time_for_the_cheat(self) -> bool:
        return False


@contextmanager
def _installed(folder: Path) -> Iterator[None]:
    """The environment as an installed package of all processes that are started."""
    about = folder / "packages" / "liked_texts-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: liked-texts\nVersion: 1\n")
    entry = "[intellect_node.environments]\nliked-texts = tests.bench.rl_timeline:make\n"
    (about / "entry_points.txt").write_text(entry)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join((str(_ROOT), str(folder / "packages")))
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def run() -> Measurement:
    """Run the nodes and read what they used."""
    with tempfile.TemporaryDirectory() as name, _installed(Path(name)):
        folder = Path(name) / "run"
        folder.mkdir()
        facts = Facts(RlOptions(STEPS, 1))
        journal = EventLog(folder / "journal.jsonl")
        conductor = Steady(folder, facts, View(facts, Console(), quiet=True), journal)
        try:
            conductor.run()
        finally:
            conductor.close()
            journal.close()
    spent = facts.processor()
    if facts.trouble or spent is None:
        raise RuntimeError(f"The run did not come to its end: {facts.trouble}")
    figures = {f"{phase}_cpu_s": spent[phase] for phase in PHASES}
    files = facts.rollouts()
    figures["files_accepted"] = sum(counts.get("accepted", 0) for counts in files.values())
    figures["files_refused"] = (
        sum(sum(counts.values()) for counts in files.values()) - figures["files_accepted"]
    )
    return Measurement(figures, ratios={"broadcast_and_verification_add": added_share(spent)})
