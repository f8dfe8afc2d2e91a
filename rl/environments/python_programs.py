"""Generated code: write a Python function that agrees with examples. It runs in the sandbox, never in this process."""

import json
from collections.abc import Sequence
from datetime import timedelta
from random import Random

from rl.environments import sandbox, settings
from rl.environments.interface import Config, Environment, Json, Message, Messages, Task

_KINDS = (
    ("the sum of the list xs plus {k}", lambda xs, k: sum(xs) + k),
    ("how many numbers in the list xs are above {k}", lambda xs, k: sum(x > k for x in xs)),
    ("the list xs with {k} added to each number", lambda xs, k: [x + k for x in xs]),
    ("the list xs sorted, each number times {k}", lambda xs, k: [x * k for x in sorted(xs)]),
)

# Reads {"cases": [xs, ...]}, prints the results after the marker; what the program prints itself comes before.
_HARNESS = """
import json, sys
_cases = json.load(sys.stdin)
_scope = {{"__name__": "answer"}}
exec({program!r}, _scope)
_got = [_scope["f"](xs) for xs in _cases]
print()
print({marker!r} + json.dumps(_got))
"""


class PythonPrograms:
    """The answer is a program that defines ``f(xs)``; the reward is the share of hidden examples that it gets right."""

    name = "python-programs"
    version = "1"

    def __init__(self, cases: int, limits: sandbox.Limits) -> None:
        self._cases, self._limits = cases, limits

    def task(self, seed: int) -> Task:
        """A function in words, and hidden examples."""
        random = Random(seed)
        words, function = random.choice(_KINDS)
        k = random.randint(1, 9)
        given: list[Json] = []
        wanted: list[Json] = []
        for _ in range(self._cases):
            xs = [random.randint(-20, 20) for _ in range(random.randint(0, 8))]
            given.append(list(xs))
            wanted.append(function(xs, k))
        asked = (
            f"Write a Python function f(xs) that returns {words.format(k=k)}. Answer with the program alone."
        )
        return Task(seed, (Message("user", asked),), {"given": given, "wanted": wanted})

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """There is one turn."""
        return None

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """Each for itself, one after the other."""
        return tuple([await self._reward(task, transcript[-1].content) for transcript in transcripts])

    async def _reward(self, task: Task, said: str) -> float:
        program = said.strip().removeprefix("```python").removeprefix("```").removesuffix("```")
        marker = f"results-{task.seed}:"
        source = _HARNESS.format(program=program, marker=marker)
        outcome = await sandbox.run(source, json.dumps(task.answer["given"]).encode(), self._limits)
        _, found, printed = outcome.output.decode(errors="replace").rpartition(f"\n{marker}")
        wanted = task.answer["wanted"]
        assert isinstance(wanted, list)
        try:
            got = json.loads(printed) if outcome.end == "done" and found else None
        except (ValueError, RecursionError):
            got = None
        if not isinstance(got, list) or len(got) != len(wanted):
            return 0.0
        return [a == b for a, b in zip(got, wanted, strict=True)].count(True) / len(wanted)


def make(config: Config) -> Environment:
    """Settings: `cases`, hidden examples per task (8), and `seconds` of a core that a program may use (2)."""
    settings.only(config, "python-programs", "cases", "seconds")
    cases = settings.whole(config, "python-programs", "cases", 8, 1, 100)
    cpu = timedelta(seconds=settings.whole(config, "python-programs", "seconds", 2, 1, 60))
    return PythonPrograms(cases, sandbox.Limits(wall=5 * cpu, cpu=cpu))
