"""Any environment of the package ``verifiers`` in which one model talks (docs/rl.md, environments)."""

import asyncio
import importlib.metadata
import importlib.util
import json
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from protocol.errors import Code, NodeError
from rl.environments import settings
from rl.environments.interface import Config, Environment, Message, Messages, Task

if TYPE_CHECKING:
    from rl.environments.verifiers_episode import Episode

VERSION = "0.4.0"
"""The one version that this is written for: what an episode is differs between them."""

_MOST_TASKS = 1_000_000
_WAITING = 64
_REMEMBERED = 4096


class Verifiers:
    """One of its environments; the task of a seed is the one at that place of its taskset, which is gone around.

    A rollout is an episode that waits for each turn of the model. Who comes with a transcript that no waiting episode
    has reached plays it from its start: so the environment must say the same to the same words, as every one must.

    Args:
        data: The package's block ``[env]``.
        most: So many tasks are taken of the taskset.
    """

    name = "verifiers"

    def __init__(self, data: dict[str, Any], most: int) -> None:
        import verifiers.v1 as vf

        from rl.environments import verifiers_harness
        from rl.environments.verifiers_episode import Episodes

        verifiers_harness.register()
        config = vf.resolve_env_config(_with_defaults(data, verifiers_harness.ID))
        env = vf.load_environment(config)
        self._tasks = list(islice(env.taskset, most))
        if not self._tasks:
            raise NodeError(Code.RL_ENVIRONMENT, f"The taskset {config.taskset.id[:100]} has no task.")
        package = _version(config.taskset.id)
        self.version = f"1-{VERSION}-{_digest(package + config.model_dump_json(), self._tasks)}"
        self._episodes = Episodes(env)
        self._openings: dict[int, Messages] = {}
        self._waiting: OrderedDict[str, Episode] = OrderedDict()
        self._rewards: OrderedDict[str, float] = OrderedDict()
        self.task(0)  # so that refused settings are known at once

    def task(self, seed: int) -> Task:
        """What the environment says first in the task of a seed."""
        place = seed % len(self._tasks)
        if place not in self._openings:
            self._openings[place] = self._episodes.call(self._opening(place)).result()
        return Task(seed, self._openings[place])

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """What it says to the model's last turn; several messages, as of tools, are one."""
        return await asyncio.wrap_future(self._episodes.call(self._reply(task.seed, _said(task, transcript))))

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """The rewards, each an episode's own."""
        scored = (self._episodes.call(self._score(task.seed, _said(task, each))) for each in transcripts)
        return tuple(await asyncio.gather(*map(asyncio.wrap_future, scored)))

    async def close(self) -> None:
        """End the episodes that wait, with their tools and folders."""
        await asyncio.wrap_future(self._episodes.call(self._close()))

    async def _close(self) -> None:
        while self._waiting:
            await self._waiting.popitem()[1].close()
        await self._episodes.close()

    async def _opening(self, place: int) -> Messages:
        episode = await self._episodes.begin(self._tasks[place])
        await self._wait(_key(place, ()), episode)
        return episode.opening

    async def _reply(self, seed: int, said: tuple[str, ...]) -> Message | None:
        place = seed % len(self._tasks)
        key = _key(place, said)
        if key in self._rewards:
            return None
        if key not in self._waiting:
            await self._settle(key, await self._at(place, said))
        return self._waiting[key].heard if key in self._waiting else None

    async def _score(self, seed: int, said: tuple[str, ...]) -> float:
        place = seed % len(self._tasks)
        key = _key(place, said)
        if key not in self._rewards:
            episode = self._waiting.pop(key, None) or await self._at(place, said)
            if not episode.over:
                await episode.end()
            await self._settle(key, episode)
        return self._rewards[key]

    async def _at(self, place: int, said: tuple[str, ...]) -> "Episode":
        """An episode in which the model has said this."""
        episode = self._waiting.pop(_key(place, said[:-1]), None)
        if episode is not None:
            await episode.say(said[-1])
            return episode
        episode = await self._episodes.begin(self._tasks[place])
        for turn in said:
            if episode.over:
                raise NodeError(
                    Code.RL_ENVIRONMENT_FAILED, "The transcript goes on where its episode has ended."
                )
            await episode.say(turn)
        return episode

    async def _settle(self, key: str, episode: "Episode") -> None:
        if not episode.over:
            await self._wait(key, episode)
            return
        self._rewards[key] = episode.reward
        while len(self._rewards) > _REMEMBERED:
            self._rewards.popitem(last=False)

    async def _wait(self, key: str, episode: "Episode") -> None:
        former = self._waiting.pop(key, None)
        self._waiting[key] = episode
        dropped = [former] if former is not None else []
        while len(self._waiting) > _WAITING:
            dropped.append(self._waiting.popitem(last=False)[1])
        for each in dropped:
            await each.close()


def make(config: Config) -> Environment:
    """Settings: `taskset`, its id; `tasks`, how many of it are taken; `env`, the package's own block of that name."""
    settings.only(config, "verifiers", "taskset", "tasks", "env")
    taskset = settings.text(config, "verifiers", "taskset")
    most = settings.whole(config, "verifiers", "tasks", 10_000, 1, _MOST_TASKS)
    data: dict[str, Any] = settings.table(config, "verifiers", "env")
    data["taskset"] = {**settings.table(data, "verifiers", "taskset"), "id": taskset}
    found = importlib.metadata.version("verifiers") if importlib.util.find_spec("verifiers") else "none"
    if found != VERSION:
        raise NodeError(
            Code.RL_ENVIRONMENT,
            f"This environment needs the package verifiers {VERSION}, and here is {found}.",
            fix="Install intellect-node with its extra: pip install 'intellect-node[verifiers]'.",
        )
    return Verifiers(data, most)


def _with_defaults(data: dict[str, Any], harness: str) -> dict[str, Any]:
    """Agents run in this process, unless the settings or the taskset say what runs them."""
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.utils.loaders import default_harness_id, env_config_type

    taskset = data["taskset"]["id"]
    own = default_harness_id(taskset) == taskset
    for seat in agent_config_fields(env_config_type(taskset, data.get("id") or "")()):
        given = dict(data.get(seat) or {})
        given.setdefault("runtime", {"type": "subprocess"})
        if not own:
            given.setdefault("harness", {"id": harness})
        data[seat] = given
    return data


def _said(task: Task, transcript: Messages) -> tuple[str, ...]:
    """The model's turns; a task may begin with words of an assistant that are not its own."""
    return tuple(each.content for each in transcript[len(task.messages) :] if each.role == "assistant")


def _key(place: int, said: tuple[str, ...]) -> str:
    return blake3(json.dumps([place, *said]).encode()).hexdigest()


def _version(taskset: str) -> str:
    """Of the package that has the taskset and is called like it, as those of the hub are; its rewards are in it."""
    try:
        return importlib.metadata.version(taskset.rsplit("/", 1)[-1].split("@", 1)[0])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""


def _digest(config: str, tasks: Sequence[Any]) -> str:
    hasher = blake3(config.encode())
    for task in tasks:
        hasher.update(task.hash.encode())
    return hasher.hexdigest(8)
