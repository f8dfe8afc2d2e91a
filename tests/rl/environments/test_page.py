import re
from pathlib import Path
from typing import Any

from node.runfile import parse
from rl.environments import Message, load

PAGE = (Path(__file__).parents[3] / "docs" / "rl.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Environments\n")[2].partition("\n## ")[0]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    assert found is not None
    return found.group(1)


async def test_the_environment_on_the_page_works() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)
    environment = names["make"]({})
    task = environment.task(37)
    said = [(*task.messages, Message("assistant", text)) for text in ("7", "8")]
    assert (
        await environment.score(task, said) == (1.0, 0.0) and await environment.reply(task, said[0]) is None
    )


def test_the_run_on_the_page_is_one_of_reinforcement_learning() -> None:
    section = parse(block("toml")).rl
    assert (
        section.present
        and section.turns == 4
        and load(section.environment, section.config).name == "arithmetic"
    )


def test_the_sifted_run_on_the_page_is_one() -> None:
    (lines,) = re.findall(r'^environment = "sifted"\n.*$', SECTION, re.MULTILINE)
    section = parse(f"[rl]\n{lines}\n").rl
    assert load(section.environment, section.config).task(5) == load("arithmetic", {"terms": 3}).task(9)


def test_the_built_in_environments_are_all_on_the_page() -> None:
    from rl.environments.registry import BUILT_IN

    for point in BUILT_IN:
        assert f"| `{point.name}` |" in SECTION
