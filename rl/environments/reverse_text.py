"""Single turn: write a short text backwards, between tags."""

from collections.abc import Sequence
from random import Random

from rl.environments import settings
from rl.environments.interface import Config, Environment, Message, Messages, Task

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ReverseText:
    """The answer to ``<t>abc</t>`` is ``<t>cba</t>``; the reward of that is 1, and of everything else 0."""

    name = "reverse-text"
    version = "1"

    def __init__(self, shortest: int, longest: int) -> None:
        self._shortest, self._longest = shortest, longest

    def task(self, seed: int) -> Task:
        """A word of random letters."""
        random = Random(seed)
        word = "".join(random.choices(_LETTERS, k=random.randint(self._shortest, self._longest)))
        return Task(seed, (Message("user", f"<t>{word}</t>"),), {"text": f"<t>{word[::-1]}</t>"})

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """There is one turn."""
        return None

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """Each for itself."""
        want = str(task.answer["text"])
        return tuple(float(transcript[-1].content == want) for transcript in transcripts)


def make(config: Config) -> Environment:
    """Settings: `shortest` and `longest`, the length of a text (3 and 6)."""
    settings.only(config, "reverse-text", "shortest", "longest")
    shortest = settings.whole(config, "reverse-text", "shortest", 3, 1, 200)
    longest = settings.whole(config, "reverse-text", "longest", max(6, shortest), shortest, 200)
    return ReverseText(shortest, longest)
