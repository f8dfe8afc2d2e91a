"""`intellect-node sift`, with the processes that it starts."""

import json
import tomllib
from pathlib import Path

import pytest

from node import cli
from node.runfile import parse
from rl.environments import load

RUN = """
[run]
name = "sifting"

[data]
source = "none"

[model]
hidden = 32
layers = 1
heads = 4
kv_heads = 2
intermediate = 64
vocab = 260
context = 64

[rl]
environment = "acme-lengths"
config = { least = 2 }
max_tokens = 8
group_size = 4
"""

ENVIRONMENT = '''
"""Odd tasks are always lost, and in even ones the length of what is said counts."""
from rl.environments import Message, Task


class Lengths:
    name, version = "acme-lengths", "1"

    def __init__(self, least):
        self.least = least

    def task(self, seed):
        return Task(seed, (Message("user", f"Task {seed}"),))

    async def reply(self, task, transcript):
        return None

    async def score(self, task, transcripts):
        if task.seed == 3:
            raise RuntimeError("broken task")
        return tuple(0.0 if task.seed % 2 else float(len(each[-1].content)) for each in transcripts)


def make(config):
    return Lengths(config["least"])
'''


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that is installed, here and in processes that are started."""
    packages = tmp_path / "packages"
    info = packages / "acme_lengths-1.0.dist-info"
    info.mkdir(parents=True)
    (packages / "acme_lengths.py").write_text(ENVIRONMENT)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme_lengths\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[intellect_node.environments]\nacme-lengths = acme_lengths:make\n"
    )
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", f"{packages}:{Path.cwd()}")


def test_the_lines_it_prints_make_a_run_of_the_tasks_that_are_worth_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    assert cli.main(["sift", str(path), "--tasks", "7", "--first", "1", "--to", str(tmp_path / "lines")]) == 0
    out, err = capsys.readouterr()
    assert "3 of 7 tasks are kept, 3 range, 1 failed." in err and "broken task" in err
    assert (tmp_path / "lines").read_text() == out
    lines = tomllib.loads(out)
    assert lines["config"]["tasks"] == "2,4,6"
    plain = 'environment = "acme-lengths"\nconfig = { least = 2 }\n'
    assert plain in RUN
    section = parse(RUN.replace(plain, out)).rl
    environment = load(section.environment, section.config)
    assert [environment.task(number).seed for number in range(4)] == [2, 4, 6, 2]


def test_where_no_task_is_worth_it_it_says_so_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(RUN.replace("[rl]", "[rl]\nhighest_mean = 0.001"))
    assert cli.main(["sift", str(path), "--tasks", "2", "--rollouts", "3", "--json"]) == 1
    out, err = capsys.readouterr()
    assert "0 of 2 tasks are kept" in err
    found = json.loads(out)
    assert found["kept"] == "" and [each["found"] for each in found["tasks"]] == ["too-easy", "range"]
    assert [len(each["rewards"]) for each in found["tasks"]] == [3, 3]


def test_a_run_that_learns_from_text_has_no_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[run]\nname = 'text'\n")
    assert cli.main(["sift", str(path)]) == 2
    assert "learns from text" in capsys.readouterr().err
