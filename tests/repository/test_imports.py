"""What the import contracts of pyproject.toml can see, and that each imported library is declared."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_every_folder_of_tests_is_a_package_so_that_the_contracts_cover_it() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert (
        sorted(str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists())
        == []
    )


@pytest.mark.parametrize("library", ["hivemind", "libp2p"])
def test_a_contract_over_packages_and_tests_keeps_the_library_in_one_place(library: str) -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [one for one in linter["contracts"] if one.get("forbidden_modules") == [library]]
    assert set(contract["source_modules"]) == set(linter["root_packages"])
    assert linter["include_external_packages"] is True


PACKAGES = ("diloco", "node", "protocol", "rl", "shardcast", "toploc")
# Packages that several distributions share, or that come with one under another name.
SHARED = {"google": "protobuf"}


def imported_by(folder: Path) -> dict[str, str]:
    """Top-level names that the folder's files import anywhere, each with one file that does."""
    names: dict[str, str] = {}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module]
            for module in modules:
                names.setdefault(module.split(".")[0], str(path.relative_to(ROOT)))
    return names


def declared(*groups: str) -> set[str]:
    """Names of the distributions that pyproject.toml declares, in the base and in the given extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for group in groups for line in project["optional-dependencies"][group]),
    ]
    return {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower().replace("_", "-") for line in lines}


def undeclared(names: dict[str, str], known: set[str]) -> list[str]:
    owners = importlib.metadata.packages_distributions()
    missing = []
    for name, file in sorted(names.items()):
        if name in sys.stdlib_module_names or name in (*PACKAGES, "tests"):
            continue
        distributions = (
            {SHARED[name]}
            if name in SHARED
            else {one.lower().replace("_", "-") for one in owners.get(name, [name])}
        )
        if not distributions & known:
            missing.append(f"{file} imports {name}")
    return missing


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_is_declared(package: str) -> None:
    assert (
        undeclared(
            imported_by(ROOT / package),
            declared("rl", "coordinator", "tui", "gossip", "testing", "verifiers"),
        )
        == []
    )


def test_the_tests_import_only_what_is_declared() -> None:
    extras = declared("rl", "coordinator", "tui", "gossip", "dev", "fuzz", "eval", "verifiers")
    assert undeclared(imported_by(ROOT / "tests"), extras) == []


def test_every_declared_library_has_one_tested_version() -> None:
    pinned = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in pinned)
    names = [line.split("==")[0].lower().replace("_", "-") for line in pinned]
    assert len(set(names)) == len(names)
    assert declared("gossip", "fuzz", "dev", "verifiers") <= set(names)
