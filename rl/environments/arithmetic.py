"""Several turns: work out a sum, with a calculator."""

import ast
import operator
import re
from collections.abc import Callable, Sequence
from random import Random

from rl.environments import settings
from rl.environments.interface import Config, Environment, Message, Messages, Task

_CALL = re.compile(r"<calc>([^<>]{1,200})</calc>")
_ANSWER = re.compile(r"<answer>\s*(-?\d{1,40})\s*</answer>")
_LARGEST = 10**40
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class Arithmetic:
    """The model may ask ``<calc>3*7</calc>`` as often as there are turns, and ends with ``<answer>21</answer>``."""

    name = "arithmetic"
    version = "1"

    def __init__(self, terms: int, largest: int) -> None:
        self._terms, self._largest = terms, largest

    def task(self, seed: int) -> Task:
        """A sum of products."""
        random = Random(seed)
        text = str(random.randint(1, self._largest))
        for _ in range(random.randint(2, self._terms) - 1):
            text += random.choice("+-*") + str(random.randint(1, self._largest))
        asked = f"{text}=? Ask <calc>...</calc>, then <answer>...</answer>."
        return Task(seed, (Message("user", asked),), {"value": str(calculate(text))})

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """What the calculator says, unless there is an answer or no question."""
        said = transcript[-1].content
        call = _CALL.search(said)
        if _ANSWER.search(said) or call is None:
            return None
        value = calculate(call.group(1))
        return Message("tool", "error" if value is None else str(value))

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        """1 for the right answer, 0 for another or none."""
        return tuple(
            float(_answer(transcript[-1].content) == task.answer["value"]) for transcript in transcripts
        )


def _answer(said: str) -> str | None:
    found = _ANSWER.search(said)
    return str(int(found.group(1))) if found else None


def calculate(text: str) -> int | None:
    """The value of whole numbers with + - * and brackets; None if `text` is something else or too large."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        value = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = -_value(node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    else:
        raise ValueError("not a sum")
    if abs(value) > _LARGEST:
        raise ValueError("too large")
    return value


def make(config: Config) -> Environment:
    """Settings: `terms`, the most of a sum (3), and `largest`, the largest of them (99)."""
    settings.only(config, "arithmetic", "terms", "largest")
    terms = settings.whole(config, "arithmetic", "terms", 3, 2, 10)
    return Arithmetic(terms, settings.whole(config, "arithmetic", "largest", 99, 1, 9999))
