"""Several turns, and a reward that depends on the group: find a number by asking whether it is higher or lower."""

import re
from collections.abc import Sequence
from random import Random

from rl.environments import settings
from rl.environments.interface import Config, Environment, Message, Messages, Task

_NUMBER = re.compile(r"\d{1,9}")


class NumberGuessing:
    """Each turn of the model is a guess; the answer is ``higher``, ``lower`` or the end.

    Found is worth 1, and the half of a group that found it with the fewest guesses gets half as much again. Not found
    is worth 0.
    """

    name = "number-guessing"
    version = "1"

    def __init__(self, largest: int, guesses: int) -> None:
        self._largest, self._guesses = largest, guesses

    def task(self, seed: int) -> Task:
        """A number."""
        number = Random(seed).randint(1, self._largest)
        asked = f"Guess my number from 1 to {self._largest}."
        return Task(seed, (Message("user", asked),), {"number": number})

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """Where the number lies."""
        guess, number = _guess(transcript[-1]), task.answer["number"]
        assert isinstance(number, int)
        if guess == number or len(_guesses(transcript)) >= self._guesses:
            return None
        if guess is None:
            return Message("user", "Say a number.")
        return Message("user", "higher" if guess < number else "lower")

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """By who found it, and who was quick."""
        number = task.answer["number"]
        taken = [
            len(guesses) if (guesses := _guesses(transcript)) and guesses[-1] == number else None
            for transcript in transcripts
        ]
        found = sorted(count for count in taken if count is not None)
        quick = found[(len(found) - 1) // 2] if found else 0
        return tuple(0.0 if count is None else 1.5 if count <= quick else 1.0 for count in taken)


def _guess(message: Message) -> int | None:
    found = _NUMBER.search(message.content)
    return int(found.group()) if found else None


def _guesses(transcript: Messages) -> list[int | None]:
    return [_guess(message) for message in transcript if message.role == "assistant"]


def make(config: Config) -> Environment:
    """Settings: `largest` (16) and `guesses`, how many there are (8)."""
    settings.only(config, "number-guessing", "largest", "guesses")
    largest = settings.whole(config, "number-guessing", "largest", 16, 2, 999_999_999)
    return NumberGuessing(largest, settings.whole(config, "number-guessing", "guesses", 8, 1, 64))
