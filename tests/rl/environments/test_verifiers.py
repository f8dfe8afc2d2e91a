"""Environments of the package verifiers, as ours."""

import importlib.util
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from protocol.errors import Code, NodeError
from rl.environments.hosting import HostedEnvironment, Limits
from rl.environments.interface import Environment, Message, Messages, Task
from rl.environments.registry import load
from rl.environments.verifiers import Verifiers

if importlib.util.find_spec("verifiers") is None:
    pytest.skip("the package verifiers is not installed (extra: verifiers)", allow_module_level=True)

TASKSETS = Path(__file__).parent / "tasksets"


@pytest.fixture(autouse=True)
def tasksets(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they were installed, here and in processes that are started."""
    monkeypatch.syspath_prepend(str(TASKSETS))
    monkeypatch.setenv("PYTHONPATH", f"{TASKSETS}:{Path.cwd()}")


Made = Callable[..., Environment]


@pytest_asyncio.fixture
async def made() -> AsyncIterator[Made]:
    """Makes environments, whose waiting episodes are ended."""
    every: list[Verifiers] = []

    def make(taskset: str, **config: object) -> Environment:
        environment = load("verifiers", {"taskset": taskset, **config})  # type: ignore[dict-item]
        assert isinstance(environment, Verifiers)
        every.append(environment)
        return environment

    yield make
    for environment in every:
        await environment.close()


async def told(environment: Environment, task: Task, *said: str) -> tuple[Messages, Message | None]:
    """The transcript when the model has said this, and what it is answered last."""
    transcript, reply = task.messages, None
    for number, text in enumerate(said, 1):
        transcript = (*transcript, Message("assistant", text))
        reply = await environment.reply(task, transcript)
        if reply is not None and number < len(said):
            transcript = (*transcript, reply)
    return transcript, reply


async def test_one_turn_is_asked_answered_and_scored_by_the_environments_own_rewards(made: Made) -> None:
    environment = made("saying-numbers")
    task = environment.task(7)
    assert task.messages == (Message("system", "Be brief."), Message("user", "Say 2."))
    assert environment.task(2).messages == task.messages and environment.task(3).messages != task.messages
    transcripts = []
    for said in ("2", "3", "two"):
        transcript, reply = await told(environment, task, said)
        assert reply is None
        transcripts.append(transcript)
    assert await environment.score(task, transcripts) == (1.5, 0.5, 0.0)


async def test_a_program_that_is_the_user_is_answered_until_it_has_heard_enough(made: Made) -> None:
    environment = made("guessing")
    task = environment.task(0)
    assert task.messages == (Message("user", "Guess a number from 1 to 100."),)
    transcript, reply = await told(environment, task, "50", "30")
    assert transcript[-2] == Message("user", "Lower.") and reply == Message("user", "Higher.")
    found = (*transcript, reply, Message("assistant", "42"))
    assert await environment.reply(task, found) is None
    # Who has used up its turns is scored where it stands, whether or not it was answered.
    unfinished, answered = transcript, (*transcript, reply)
    assert await environment.score(task, [found, unfinished, answered]) == (pytest.approx(1 / 3), 0.0, 0.0)


async def test_whoever_comes_with_the_transcript_is_told_the_same(made: Made) -> None:
    """A validator has not played it, and another of the group may be further."""
    worker, validator = made("guessing"), made("guessing")
    assert worker.version == validator.version
    task = worker.task(4)
    transcript, reply = await told(worker, task, "60", "5")
    assert await validator.reply(validator.task(4), transcript) == reply == Message("user", "Higher.")
    assert await worker.reply(task, transcript) == reply, "asked again"
    for said in ("7", "6"):
        ended = (*transcript, reply, Message("assistant", said))
        assert await worker.reply(task, ended) == await validator.reply(task, ended)
        assert await worker.score(task, [ended]) == await validator.score(task, [ended])


async def test_tools_are_announced_called_and_answered_in_text(made: Made) -> None:
    environment = made("adding-up", tasks=1)
    task = environment.task(25)
    assert task.messages[-1] == Message("user", "What is 25 + 17?")
    assert '"name": "sums_add"' in task.messages[0].content and "<tool_call>" in task.messages[0].content
    unknown = '<tool_call>{"name": "run", "arguments": {}}</tool_call>'
    call = 'I add. <tool_call>{"name": "sums_add", "arguments": {"a": 25, "b": 17}}</tool_call>'
    transcript, reply = await told(environment, task, unknown, call)
    assert transcript[-2] == Message("tool", "There is no tool 'run'.") and reply == Message("tool", "42")
    ended = (*transcript, reply, Message("assistant", "42"))
    assert await environment.reply(task, ended) is None
    assert await environment.score(task, [ended]) == (1.0,)


async def test_it_plays_in_a_process_of_its_own_as_on_a_node_and_leaves_nothing_behind(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    limits = Limits(timedelta(minutes=3), timedelta(minutes=1), timedelta(minutes=1))
    async with HostedEnvironment("verifiers", {"taskset": "guessing"}, limits) as hosted:
        task = await hosted.task(1)
        transcript, reply = await told(hosted, task, "3")  # type: ignore[arg-type]
        assert reply == Message("user", "Higher.")
        assert await hosted.reply(task, (*transcript, reply, Message("assistant", "7"))) is None
        assert hosted.version == made("guessing").version
        assert await hosted.reply(task, (*transcript, reply, Message("assistant", "9"))) is not None
        assert list(home.rglob("runtimes/subprocess/*")), "an episode waits"
    assert not list(home.rglob("runtimes/subprocess/*"))


async def test_a_reward_that_raises_fails_its_own_rollout_alone(made: Made) -> None:
    saying = made("saying-numbers")
    task = saying.task(1)
    with pytest.raises(NodeError, match="AssertionError") as caught:
        await told(saying, task, "break")
    assert caught.value.code is Code.RL_ENVIRONMENT_FAILED
    transcript, _ = await told(saying, task, "1")
    assert await saying.score(task, [transcript]) == (1.5,)


async def test_a_user_that_raises_fails_its_own_rollout_alone(made: Made) -> None:
    environment = made("guessing")
    task = environment.task(0)
    with pytest.raises(NodeError, match="invalid literal"):
        await told(environment, task, "what?")
    assert (await told(environment, task, "50"))[1] == Message("user", "Lower.")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "taskset is a text"),
        ({"taskset": "no-such-taskset"}, "no-such-taskset"),
        ({"taskset": "saying-numbers", "tasks": 0}, "tasks is a whole number"),
        ({"taskset": "saying-numbers", "colour": 1}, "no setting colour"),
        ({"taskset": "saying-numbers", "env": {"agent": {"speed": 1}}}, "speed"),
        ({"taskset": "saying-numbers", "env": {"id": "user-sim"}}, "several conversations"),
    ],
)
def test_what_cannot_be_played_is_refused_at_once(config: dict[str, object], words: str) -> None:
    with pytest.raises(NodeError, match=words) as caught:
        load("verifiers", config)  # type: ignore[arg-type]
    assert caught.value.code in (Code.RL_ENVIRONMENT, Code.RL_ENVIRONMENT_FAILED)


def test_another_version_of_the_package_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.3.9")
    with pytest.raises(
        NodeError, match=r"needs the package verifiers 0\.4\.0, and here is 0\.3\.9"
    ) as caught:
        load("verifiers", {"taskset": "saying-numbers"})
    assert "intellect-node[verifiers]" in caught.value.fix
