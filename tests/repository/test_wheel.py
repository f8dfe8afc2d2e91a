"""What `pip install` brings: our packages, the command, nothing else."""

import zipfile
from pathlib import Path

import pytest

from tests.repository.wheel import PACKAGES, build, complaints, contents


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_all_of_our_packages_and_nothing_else(wheel: Path) -> None:
    assert complaints(contents(wheel)) == []


def test_the_wheel_brings_the_command_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert "intellect-node = node.cli:main" in archive.read(entry_points).decode()
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_foreign_and_missing_files_are_complaints() -> None:
    said = complaints(("tests/conftest.py", "protocol/__init__.py"))
    assert "tests/conftest.py is not of our packages." in said
    assert {f"The package {package} is missing." for package in PACKAGES if package != "protocol"} <= set(
        said
    )
