import pytest
from reasoning_gym.factory import DATASETS

from protocol.errors import Code, NodeError
from rl.environments import Message, load
from rl.environments.hosting import HostedEnvironment

CONFIGS = {"composite": {"datasets": [{"name": "gcd", "weight": 1.0, "config": {}}]}}
NEEDS_ITS_ORDER = ("isomorphic_strings", "polynomial_multiplication", "ransom_note")


@pytest.mark.parametrize("dataset", sorted(DATASETS))
async def test_every_dataset_gives_tasks_and_judges_answers(dataset: str) -> None:
    environment = load("reasoning-gym", {"dataset": dataset, "config": CONFIGS.get(dataset, {})})
    task = environment.task(2**62 + 5)
    assert task.messages[0].content and task == environment.task(2**62 + 5)
    entry, _ = environment._entry(task.seed)
    answers = ("nothing of the kind", f"I think <answer>{entry['answer']}</answer>")
    wrong, right = await environment.score(
        task, [(*task.messages, Message("assistant", answer)) for answer in answers]
    )
    assert 0 <= wrong <= 1 and 0 <= right <= 1
    if isinstance(entry["answer"], str):
        assert right == 1 and await environment.reply(task, task.messages) is None


async def test_datasets_that_depend_on_the_order_of_sets_agree_between_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for dataset in NEEDS_ITS_ORDER:
        tasks = []
        for hash_seed in ("1", "77"):
            monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
            async with HostedEnvironment("reasoning-gym", {"dataset": dataset}) as environment:
                tasks.append([await environment.task(seed) for seed in range(10)])
        assert tasks[0] == tasks[1]


def test_an_unknown_dataset_and_a_refused_setting_are_told() -> None:
    with pytest.raises(NodeError, match="leg_counting") as unknown:
        load("reasoning-gym", {"dataset": "no_such"})
    with pytest.raises(NodeError, match="colour"):
        load("reasoning-gym", {"dataset": "leg_counting", "config": {"colour": 3}})
    with pytest.raises(NodeError, match="dataset is a text"):
        load("reasoning-gym", {})
    assert unknown.value.code is Code.RL_ENVIRONMENT
