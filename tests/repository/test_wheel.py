"""What `pip install` brings: our packages, the command, nothing else."""

import zipfile
from pathlib import Path

import pytest

from tests.repository.wheel import PACKAGES, ROOT, build, complaints, contents


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_all_of_our_packages_and_nothing_else(wheel: Path) -> None:
    assert complaints(contents(wheel)) == []


def test_the_wheel_brings_the_command_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert "intellect-node = node.__main__:main" in archive.read(entry_points).decode()
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_foreign_and_missing_files_are_complaints() -> None:
    said = complaints(("tests/conftest.py", "protocol/__init__.py"))
    assert "tests/conftest.py is not of our packages." in said
    assert {f"The package {package} is missing." for package in PACKAGES if package != "protocol"} <= set(
        said
    )


def test_the_image_is_built_from_all_of_our_packages() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for package in PACKAGES:
        assert f"COPY {package} {package}" in dockerfile
        assert f"!{package}" in ignored


def test_the_image_runs_the_command_as_a_user_without_rights() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    for target in ("cuda", "cpu"):
        stage = dockerfile.split(f" AS {target}\n", 1)[1].split("\nFROM ", 1)[0]
        assert "\nUSER node\n" in stage
        assert 'ENTRYPOINT ["intellect-node"]' in stage
