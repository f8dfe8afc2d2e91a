"""An environment of which only some tasks are asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, NodeError
from rl.environments import Message, load
from rl.environments.sifted import MOST_TASKS, ranges, read_ranges


@given(st.sets(st.one_of(st.integers(0, 40), st.integers(0, 2**63 - 1)), min_size=1))
def test_a_list_of_seeds_is_read_as_it_was_written(seeds: set[int]) -> None:
    assert read_ranges(ranges(sorted(seeds))) == tuple(sorted(seeds))


def test_neighbours_are_written_as_one_range() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


@pytest.mark.parametrize(
    "text",
    ["x", "3-1", "1,1", "5,2-3", "-4", "1-2-3", "", "1,,2", f"0-{MOST_TASKS}", str(2**63), "9" * 100_000],
)
def test_what_is_no_list_of_seeds_is_refused_before_it_takes_room(text: str) -> None:
    with pytest.raises(NodeError, match="sifted: tasks") as caught:
        load("sifted", {"environment": "reverse-text", "tasks": text})
    assert caught.value.code is Code.RL_ENVIRONMENT


async def test_its_tasks_are_those_of_the_list_and_the_rest_is_the_other_ones() -> None:
    inner = load("reverse-text", {"longest": 4})
    settings = {"environment": "reverse-text", "config": {"longest": 4}, "tasks": "3,8-9"}
    sifted = load("sifted", settings)  # type: ignore[arg-type]
    assert [sifted.task(seed) for seed in (0, 1, 2, 3, 2**62)] == [
        inner.task(seed) for seed in (3, 8, 9, 3, (3, 8, 9)[2**62 % 3])
    ]
    task = sifted.task(1)
    right = (*task.messages, Message("assistant", str(task.answer["text"])))
    assert await sifted.reply(task, right) is None and await sifted.score(task, [right]) == (1.0,)


def test_another_list_is_another_version() -> None:
    versions = {
        load(
            "sifted", {"environment": "reverse-text", "config": {"longest": longest}, "tasks": tasks}
        ).version
        for longest, tasks in ((4, "3"), (4, "4"), (4, "3-4"))
    }
    assert len(versions) == 3


def test_settings_of_the_other_one_are_its_own() -> None:
    with pytest.raises(NodeError, match="reverse-text has no setting colour"):
        load("sifted", {"environment": "reverse-text", "config": {"colour": 1}, "tasks": "1"})
    with pytest.raises(NodeError, match="No environment is called"):
        load("sifted", {"environment": "nothing", "tasks": "1"})
