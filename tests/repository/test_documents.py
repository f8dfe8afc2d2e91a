"""The documents say what the code does: commands, run files, file maps, examples, references."""

import ast
import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from node.cli import GUIDE, app
from node.extensions import system_messages
from node.runfile import parse
from protocol.errors import CATALOGUE
from protocol.messages.registry import REGISTRY
from tests.repository.documents import PAGES, ROOT, blocks, commands, page, rows, section

COMMAND = typer.main.get_command(app)
CODE = ("diloco", "node", "protocol", "rl", "shardcast")
by_name = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


def understood(words: list[str]) -> str:
    """Why the command line would refuse these arguments; empty where it would not. Nothing is run."""
    command: Any = COMMAND
    try:
        while hasattr(command, "commands") and words and not words[0].startswith("-"):
            command = command.commands.get(words[0])
            if command is None:
                return f"there is no command {words[0]}"
            words = words[1:]
        if words:  # the bare name of a command is a mention
            command.make_context("intellect-node", list(words))
    except Exception as error:
        if type(error).__name__ == "Exit":
            return ""  # --version and --help
        words_of_error = getattr(error, "format_message", None)
        if words_of_error is None:
            raise
        return str(words_of_error())
    return ""


@by_name
def test_every_command_that_a_page_shows_is_understood(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = list(commands(path.read_text(encoding="utf-8"), "intellect-node"))
    assert {" ".join(words): why for words in shown if (why := understood(words))} == {}


def test_the_commands_of_the_guide_and_of_the_fixes_are_understood(
    capsys: pytest.CaptureFixture[str],
) -> None:
    guide = re.findall(r"  (intellect-node [^\n]+)$", GUIDE, re.MULTILINE)
    fixes = [entry.fix for entry in CATALOGUE.values()]
    text = "```\n" + "\n".join(guide) + "\n```\n" + "\n".join(fixes)
    shown = list(commands(text, "intellect-node"))
    assert len(shown) >= 5
    assert {" ".join(words): why for words in shown if (why := understood(words))} == {}


def test_commands_that_are_not_understood_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert understood(["admin", "forgive", "12D3KooW"])
    assert understood(["status", "--verbosely"])
    assert understood(["demo", "--rounds", "1"])
    assert list(
        commands("`intellect-node run …`\n```\nintellect-node status --dir x  # why\n```\n", "intellect-node")
    ) == [["status", "--dir", "x"]]


@by_name
def test_every_make_command_that_a_page_shows_is_in_the_makefile(path: Path) -> None:
    makefile = page("Makefile")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE))
    for words in commands(path.read_text(encoding="utf-8"), "make"):
        assert {word for word in words if "=" not in word} <= targets, words
        assert {word.split("=")[0] for word in words if "=" in word} <= variables, words
        given = dict(word.split("=", 1) for word in words if "=" in word)
        if words[0] == "demo" and "ARGS" in given:
            assert understood(["demo", *given["ARGS"].split()]) == ""


@by_name
def test_every_run_file_that_a_page_shows_can_be_read(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8"), "toml"):
        parse(block, path.name)


def test_the_readme_shows_a_run_file() -> None:
    assert blocks(page("README.md"), "toml")


@by_name
def test_every_example_in_python_can_be_read(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8"), "python"):
        ast.parse(block)


def test_the_example_of_a_message_runs() -> None:
    (block,) = blocks(page("docs/architecture.md"), "python")
    import_module("protocol.testing")
    system_messages()  # what is imported first within the isolation is forgotten after it
    with REGISTRY.isolated():
        exec(compile(block, "architecture.md", "exec"), {"__name__": "example"})


def modules(package: str) -> set[str]:
    """Files of a package that hold code, relative to it."""
    folder = ROOT / package
    return {str(path.relative_to(folder)) for path in folder.rglob("*.py") if path.name != "__init__.py"}


@pytest.mark.parametrize("package", ["protocol", "shardcast", "diloco", "rl", "node"])
def test_the_file_map_of_the_architecture_names_every_file(package: str) -> None:
    told = section(page("docs/architecture.md"), f"### {package}/")
    named = [name for row in rows(told) for name in re.findall(r"`([^`]+\.py)`", row[0])]
    assert len(named) == len(set(named)), "a file is named twice"
    assert set(named) == modules(package), "docs/architecture.md, every file"


def test_the_architecture_names_the_import_order_of_the_contract() -> None:
    assert "`node > rl > diloco > shardcast, toploc > protocol`" in page("docs/architecture.md")
    assert 'layers = ["node", "rl", "diloco", "shardcast : toploc", "protocol"]' in page("pyproject.toml")


def test_the_files_of_a_node_are_those_that_the_code_makes() -> None:
    told = section(page("docs/architecture.md"), "## Files of a node")
    named = [name for row in rows(told) for name in re.findall(r"`([^`]+)`", row[0])]
    code = "\n".join(
        path.read_text(encoding="utf-8") for package in CODE for path in (ROOT / package).rglob("*.py")
    )
    stems = [re.split(r"[*/]", name)[0] for name in named]
    assert [stem for stem in stems if f'"{stem}' not in code and f"'{stem}" not in code] == []


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *CODE, "tests"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name.endswith(b".py")]
    return [path for path in paths if path.is_file()]


def test_documents_that_the_code_names_exist() -> None:
    missing = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        missing += [
            f"{path.relative_to(ROOT)}: {name}"
            for name in re.findall(r"(?<![\w/])docs/[\w.-]+\.(?:md|toml)", text)
            if not (ROOT / name).exists()
        ]
        # Written in pieces, so that this file does not name what it looks for.
        missing += [
            f"{path.relative_to(ROOT)}: {name}"
            for name in re.findall("(?<![A-Z_])(?:DES" + "IGN|ROU" + "NDS)(?= [§r]|, r)", text)
        ]
    assert missing == []
