"""What the import contracts of pyproject.toml can see, and what each error's import may cost."""

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
