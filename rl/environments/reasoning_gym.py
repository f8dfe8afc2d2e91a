"""Any dataset of the package ``reasoning-gym`` as an environment of one turn."""

import importlib.metadata
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from protocol.errors import Code, NodeError
from rl.environments import settings
from rl.environments.interface import Config, Environment, Json, Message, Messages, Task

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_SEEDS = 1 << 31  # what every generator takes


class ReasoningGym:
    """One of its datasets. Every seed is the first entry of a dataset of its own.

    The answer is what the model writes between ``<answer>`` and ``</answer>``, or all it writes if it has no such tags;
    the dataset itself gives the reward, 0 to 1. Some datasets depend on the order of sets, which is the same on every
    machine only where the environment has a process of its own (`rl.environments.hosting`), as it has on a node.
    """

    name = "reasoning-gym"

    def __init__(self, dataset: str, config: dict[str, Json]) -> None:
        from reasoning_gym import composite, factory

        if dataset not in factory.DATASETS:
            raise NodeError(
                Code.RL_ENVIRONMENT,
                f"reasoning-gym has no dataset {dataset[:100]!r}; it has {', '.join(sorted(factory.DATASETS))}.",
            )
        given: dict[str, Any] = dict(config)
        if dataset == "composite":
            given["datasets"] = [composite.DatasetSpec(**spec) for spec in given.get("datasets", ())]
        self._create, self._dataset, self._settings = factory.create_dataset, dataset, given
        self.version = f"1-{importlib.metadata.version('reasoning-gym')}"
        self.task(0)  # so that refused settings are known at once

    def task(self, seed: int) -> Task:
        """The question of a seed."""
        entry, _ = self._entry(seed)
        return Task(seed, (Message("user", str(entry["question"])),))

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """There is one turn."""
        return None

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """As the dataset judges."""
        entry, dataset = self._entry(task.seed)
        rewards = []
        for transcript in transcripts:
            said = transcript[-1].content
            tagged = _ANSWER.findall(said)
            try:
                reward = float(dataset.score_answer((tagged[-1] if tagged else said).strip(), entry))
            except Exception:  # some judges raise what they cannot read
                reward = 0.0
            rewards.append(reward)
        return tuple(rewards)

    def _entry(self, seed: int) -> tuple[dict[str, Any], Any]:
        seed %= _SEEDS
        before = random.getstate(), np.random.get_state()
        random.seed(seed)  # some datasets draw from what everybody draws from
        np.random.seed(seed)
        try:
            dataset = self._create(self._dataset, seed=seed, size=1, **self._settings)
            return dataset[0], dataset
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def make(config: Config) -> Environment:
    """Settings: `dataset`, its name, and `config`, a table of the dataset's own settings."""
    settings.only(config, "reasoning-gym", "dataset", "config")
    dataset = settings.text(config, "reasoning-gym", "dataset")
    return ReasoningGym(dataset, settings.table(config, "reasoning-gym", "config"))
