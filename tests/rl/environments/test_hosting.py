import asyncio
import importlib.metadata
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from protocol.errors import Code, NodeError
from protocol.units import Bytes
from rl.environments import Message, Task, load
from rl.environments.hosting import HostedEnvironment, Limits

SOURCE = """
import asyncio, os, time
from rl.environments import Message, Task

class Acme:
    name, version = "acme", "7"

    def task(self, seed):
        if seed == 13:
            raise RuntimeError("no such luck")
        if seed == 14:
            time.sleep(1e6)
        if seed == 15:
            bytearray(10 << 30)
        if seed == 16:
            os._exit(3)
        if seed == 17:
            return Task(seed, (), {})
        if seed == 18:
            raise SystemExit("out")
        order = "".join(sorted({"a", "b", "c", "d", "e", "f"}, key=hash))
        print("a line that nobody wants")
        return Task(seed, (Message("user", f"task {seed} {order}"),), {"seed": seed})

    async def reply(self, task, transcript):
        if transcript[-1].content == "wait":
            await asyncio.sleep(1e6)
        return None if transcript[-1].content == "end" else Message("tool", transcript[-1].content * 2)

    async def score(self, task, transcripts):
        last = transcripts[0][-1].content
        if last == "nan":
            return (float("nan"),) * len(transcripts)
        if last == "few":
            return (1.0,)
        return tuple(float(len(t)) for t in transcripts)

    async def close(self):
        with open(os.environ.get("ACME_CLOSED", os.devnull), "w") as file:
            file.write("closed")
        await asyncio.sleep(float(os.environ.get("ACME_LINGERS", "0")))

def make(config):
    if config.get("refuse"):
        raise ValueError("not like this")
    return Acme()
"""


@pytest.fixture
async def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedEnvironment]:
    (tmp_path / "acme_hosted.py").write_text(SOURCE)
    info = tmp_path / "acme_hosted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme_hosted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[intellect_node.environments]\nacme = acme_hosted:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])]))
    assert importlib.metadata.version("acme_hosted") == "1.0"
    limits = Limits(call=timedelta(seconds=3), memory=Bytes(2 << 30))
    async with HostedEnvironment("acme", {}, limits) as environment:
        yield environment


async def test_it_answers_as_the_environment_itself_does(acme: HostedEnvironment) -> None:
    assert acme.version == "7"
    task = await acme.task(5)
    assert task.messages[0].content.startswith("task 5 ") and task.answer == {"seed": 5}
    said = (*task.messages, Message("assistant", "ab"))
    assert await acme.reply(task, said) == Message("tool", "abab")
    assert await acme.reply(task, (*said, Message("assistant", "end"))) is None
    assert await acme.score(task, [said, task.messages]) == (2.0, 1.0)


async def test_the_built_in_ones_are_the_same_inside_and_outside() -> None:
    outside = load("arithmetic", {})
    async with HostedEnvironment("arithmetic", {}) as inside:
        assert [await inside.task(seed) for seed in range(20)] == [outside.task(seed) for seed in range(20)]


async def test_one_that_raises_is_reported_and_goes_on(acme: HostedEnvironment) -> None:
    for seed, word in ((13, "no such luck"), (17, "without messages"), (18, "SystemExit")):
        with pytest.raises(NodeError, match=word) as raised:
            await acme.task(seed)
        assert raised.value.code is Code.RL_ENVIRONMENT_FAILED
    assert (await acme.task(1)).seed == 1


@pytest.mark.parametrize(
    ("seed", "word"), [(14, "did not answer within 3 s"), (15, "MemoryError"), (16, "ended")]
)
async def test_one_that_hangs_or_eats_memory_or_dies_harms_its_own_task_alone(
    acme: HostedEnvironment, seed: int, word: str
) -> None:
    asked = [asyncio.ensure_future(acme.task(n)) for n in (1, 2, seed, 3, 4)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    failed = answers.pop(2)
    assert isinstance(failed, NodeError) and failed.code is Code.RL_ENVIRONMENT_FAILED
    assert word in failed.sentence
    assert [answer.seed for answer in answers if isinstance(answer, Task)] == [1, 2, 3, 4]
    assert (await acme.task(9)).seed == 9


async def test_a_reply_that_never_comes_is_given_up(acme: HostedEnvironment) -> None:
    task = await acme.task(1)
    with pytest.raises(NodeError, match="did not answer"):
        await acme.reply(task, (*task.messages, Message("assistant", "wait")))


@pytest.mark.parametrize("what", ["nan", "few"])
async def test_rewards_that_are_no_numbers_or_too_few_are_refused(acme: HostedEnvironment, what: str) -> None:
    task = await acme.task(1)
    said = (*task.messages, Message("assistant", what))
    with pytest.raises(NodeError, match="one finite number for each"):
        await acme.score(task, [said, said])


async def test_the_order_of_sets_is_the_same_on_every_machine(
    acme: HostedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "99")
    async with HostedEnvironment("acme", {}) as other:
        assert await other.task(1) == await acme.task(1)


async def test_one_that_cannot_be_made_says_why(acme: HostedEnvironment) -> None:
    with pytest.raises(NodeError, match="not like this") as refused:
        async with HostedEnvironment("acme", {"refuse": True}):
            pass
    assert refused.value.code is Code.RL_ENVIRONMENT


async def test_nothing_is_left_behind(acme: HostedEnvironment) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    async with HostedEnvironment("acme", {}):
        (mine,) = {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert not psutil.pid_exists(mine)


@pytest.mark.parametrize("lingers", ["0", "1e6"])
async def test_it_may_put_things_away_before_its_process_ends(
    acme: HostedEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lingers: str
) -> None:
    monkeypatch.setenv("ACME_CLOSED", str(tmp_path / "closed"))
    monkeypatch.setenv("ACME_LINGERS", lingers)
    end = timedelta(seconds=2 if float(lingers) else 60)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    async with HostedEnvironment("acme", {}, Limits(end=end)):
        (mine,) = {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert (tmp_path / "closed").read_text() == "closed" and not psutil.pid_exists(mine)
