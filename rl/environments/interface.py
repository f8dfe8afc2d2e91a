"""What an environment is: tasks from seeds, replies to what the model said, rewards for a whole group.

An environment is found by its entry point in the group ``intellect_node.environments``, which names a function
``(config) -> Environment``. It sees text only; tokens are the business of `rl.environments.transcript`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


Messages = tuple[Message, ...]


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        seed: What it was made from, 0 to 2^63 − 1.
        messages: How the conversation begins. The model speaks next.
        answer: What `score` and `reply` need to know and the model does not, as JSON.
    """

    seed: int
    messages: Messages
    answer: Mapping[str, Json] = field(default_factory=dict)


class Environment(Protocol):
    """A source of tasks, and their judge.

    Everything is a function of its arguments: another machine, in another process, computes the same tasks, replies and
    rewards. A validator relies on it. Several calls may run at once in one event loop. One that holds processes or
    files may have ``async def close()``, which is called before the process of `rl.environments.hosting` ends.

    Attributes:
        name: The entry point's name.
        version: Changes whenever a task, a reply or a reward does.
    """

    name: str
    version: str

    def task(self, seed: int) -> Task:
        """The task of a seed; pure."""
        ...

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """What the environment says to the model's last message, which ends `transcript`; None: no more."""
        ...

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """The rewards of a whole group, one finite number per transcript, in order.

        Args:
            task: What all of them were asked.
            transcripts: Each from the task's first message to the last one.
        """
        ...


Config = Mapping[str, Json]


class Remote(Protocol):
    """An environment behind a border, such as that of a process (`rl.environments.hosting`)."""

    @property
    def version(self) -> str:
        """As `Environment.version`."""
        ...

    async def task(self, seed: int) -> Task:
        """As `Environment.task`."""
        ...

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """As `Environment.reply`."""
        ...

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """As `Environment.score`."""
        ...
