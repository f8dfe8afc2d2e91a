import json
import os
import random
import subprocess
import sys
from dataclasses import asdict

import pytest

from rl.environments import Environment, Message, Messages, load
from rl.environments.arithmetic import calculate

NAMES = ("arithmetic", "number-guessing", "python-programs", "reverse-text")

TASKS = """
import json, sys
from dataclasses import asdict
from rl.environments import load
name, config, seeds = json.loads(sys.argv[1])
environment = load(name, config)
print(json.dumps([asdict(environment.task(seed)) for seed in seeds]))
"""


def tasks_elsewhere(name: str, config: dict[str, object], seeds: list[int], hash_seed: str) -> object:
    ran = subprocess.run(
        [sys.executable, "-c", TASKS, json.dumps([name, config, seeds])],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_with_other_hash_seeds_make_the_same_tasks(name: str) -> None:
    seeds = [0, 1, 2**63 - 1, *(random.randrange(2**63) for _ in range(20))]
    one, other = (tasks_elsewhere(name, {}, seeds, hash_seed) for hash_seed in ("1", "4242"))
    assert one == other
    here = load(name, {})
    assert [asdict(here.task(seed)) for seed in seeds] == [
        {**task, "messages": tuple(task["messages"])} for task in one
    ]
    assert len({json.dumps(task["messages"]) for task in one}) > (4 if name != "number-guessing" else 0)


def said(task_messages: Messages, *contents: str) -> Messages:
    return (*task_messages, *(Message("assistant", content) for content in contents))


async def test_a_text_backwards_is_worth_one_and_everything_else_nothing() -> None:
    environment = load("reverse-text", {"shortest": 4, "longest": 4})
    task = environment.task(7)
    word = task.messages[0].content.removeprefix("<t>").removesuffix("</t>")
    right = f"<t>{word[::-1]}</t>"
    wrong = right[:3] + "!" + right[4:]
    rewards = await environment.score(
        task, [said(task.messages, text) for text in (right, wrong, "", right + "x")]
    )
    assert rewards == (1.0, 0.0, 0.0, 0.0)


async def talk(environment: Environment, seed: int, answer: object) -> Messages:
    task = environment.task(seed)
    messages = task.messages
    while True:
        messages = (*messages, Message("assistant", answer(messages)))
        reply = await environment.reply(task, messages)
        if reply is None:
            return messages
        messages = (*messages, reply)


async def test_the_calculator_helps_to_the_right_answer() -> None:
    environment = load("arithmetic", {})

    def answer(messages: Messages) -> str:
        if messages[-1].role == "tool":
            return f"<answer>{messages[-1].content}</answer>"
        return f"<calc>{messages[0].content.partition('=')[0]}</calc>"

    for seed in range(20):
        messages = await talk(environment, seed, answer)
        assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
        assert await environment.score(environment.task(seed), [messages]) == (1.0,)
        wrong = (*messages[:-1], Message("assistant", "<answer>-1234567</answer>"))
        assert await environment.score(environment.task(seed), [wrong, messages]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3*4", 14),
        (" (2 - 5) * -3 ", 9),
        ("9**9**9**9", None),
        ("1/0", None),
        ("__import__('os')", None),
        ("True+1", None),
        ("1.5+1", None),
        ("*".join(["9" * 30] * 3), None),
        ("(" * 90 + "1" + ")" * 90, 1),
        ("-" * 199 + "1", -1),
        ("", None),
    ],
)
def test_the_calculator_does_sums_and_nothing_else(text: str, value: int | None) -> None:
    assert calculate(text) == value


async def test_guessing_goes_on_until_the_number_is_found_or_guesses_are_used_up() -> None:
    environment = load("number-guessing", {"largest": 100, "guesses": 7})

    def halves(messages: Messages) -> str:
        low, high = 1, 100
        for guess, answer in zip(messages[1::2], messages[2::2], strict=True):
            low, high = (
                (int(guess.content) + 1, high)
                if answer.content == "higher"
                else (low, int(guess.content) - 1)
            )
        return str((low + high) // 2)

    for seed in range(10):
        task = environment.task(seed)
        found = await talk(environment, seed, halves)
        never = await talk(environment, seed, lambda _: "no idea")
        assert int(found[-1].content) == task.answer["number"]
        assert sum(message.role == "assistant" for message in never) == 7
        at_once = said(task.messages, str(task.answer["number"]))
        rewards = await environment.score(task, [found, never, at_once, never])
        assert rewards == (1.0 if len(found) > 2 else 1.5, 0.0, 1.5, 0.0)


async def test_a_generated_program_is_rewarded_for_what_it_computes() -> None:
    environment = load("python-programs", {"cases": 8})
    task = environment.task(3)
    given, wanted = task.answer["given"], task.answer["wanted"]
    table = dict(zip(map(repr, given), wanted, strict=True))
    right = f"```python\nTABLE = {table!r}\ndef f(xs):\n    return TABLE[repr(xs)]\n```"
    half = f"TABLE = {table!r}\nN = []\ndef f(xs):\n    N.append(1)\n    return TABLE[repr(xs)] if len(N) < 5 else None"
    texts = (right, half, "def f(xs):\n    while True: pass", "import socket\ndef f(xs): return 1 /", "")
    rewards = await environment.score(task, [said(task.messages, text) for text in texts])
    assert rewards == (1.0, 0.5, 0.0, 0.0, 0.0)
