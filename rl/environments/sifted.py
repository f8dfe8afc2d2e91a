"""Another environment, of whose tasks only some are asked: those that `intellect-node sift` found worth it."""

import re
from collections.abc import Iterable, Sequence

from blake3 import blake3

from protocol.errors import Code, NodeError
from rl.environments import settings
from rl.environments.interface import Config, Environment, Message, Messages, Task

MOST_TASKS = 1_000_000
_PART = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?")
_SEEDS = 1 << 63


class Sifted:
    """An environment over a list of another one's seeds, which is gone around."""

    name = "sifted"

    def __init__(self, inner: Environment, seeds: Sequence[int]) -> None:
        self._inner, self._seeds = inner, seeds
        what = f"{inner.name}\n{inner.version}\n{ranges(seeds)}"
        self.version = f"1-{blake3(what.encode()).hexdigest(8)}"

    def task(self, seed: int) -> Task:
        """The task at the seed's place in the list; it keeps the seed that it was made from."""
        return self._inner.task(self._seeds[seed % len(self._seeds)])

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """As the other one."""
        return await self._inner.reply(task, transcript)

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """As the other one."""
        return await self._inner.score(task, transcripts)


def make(config: Config) -> Environment:
    """Settings: `environment` and `config`, the other one's; `tasks`, its seeds as `ranges` writes them."""
    from rl.environments.registry import load

    settings.only(config, "sifted", "environment", "config", "tasks")
    name = settings.text(config, "sifted", "environment")
    seeds = read_ranges(settings.text(config, "sifted", "tasks"))
    return Sifted(load(name, settings.table(config, "sifted", "config")), seeds)


def ranges(seeds: Iterable[int]) -> str:
    """Ascending seeds in few words: ``0-3,7``."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][1] + 1:
            parts[-1][1] = seed
        else:
            parts.append([seed, seed])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def read_ranges(text: str) -> tuple[int, ...]:
    """The reverse of `ranges`.

    Raises:
        NodeError: RL_ENVIRONMENT when it is something else, or names more than `MOST_TASKS`.
    """
    seeds: list[int] = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not low <= high < _SEEDS or (seeds and low <= seeds[-1]):
            raise _refused(f"holds {part[:40]!r}, which is no seed or range of seeds above those before it")
        if len(seeds) + high - low >= MOST_TASKS:
            raise _refused(f"names more than {MOST_TASKS:,} tasks")
        seeds += range(low, high + 1)
    return tuple(seeds)


def _refused(why: str) -> NodeError:
    return NodeError(Code.RL_ENVIRONMENT, f"sifted: tasks {why}.")
