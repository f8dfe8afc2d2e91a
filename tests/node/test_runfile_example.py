from pathlib import Path

from node.runfile import RunFile, load
from node.runfile_example import render

EXAMPLE = Path(__file__).parents[2] / "docs" / "run.example.toml"


def test_the_example_is_what_the_code_says() -> None:
    assert EXAMPLE.read_text() == render(), (
        "write it anew: python -m node.runfile_example > docs/run.example.toml"
    )


def test_the_example_gives_every_default() -> None:
    runfile = load(EXAMPLE)
    assert runfile.model_dump() == RunFile().model_dump()


def test_the_example_explains_every_key() -> None:
    runfile = load(EXAMPLE)
    for section, fields in RunFile().model_dump(mode="json").items():
        for key, value in fields.items() if isinstance(fields, dict) else ():
            assert value is None or f"{section}.{key}" in runfile.written
    for line, following in zip(
        EXAMPLE.read_text().split("\n"), EXAMPLE.read_text().split("\n")[1:], strict=False
    ):
        if " = " in following and not following.startswith("#"):
            assert line.startswith("# Takes ")
