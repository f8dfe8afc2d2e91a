from pathlib import Path

import pytest

from protocol.errors import Code, NodeError
from rl.environments import installed, load


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path that holds installed packages with environments."""

    def package(name: str, source: str, point: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[intellect_node.environments]\n{point} = {name}:make\n")

    package("acme_good", "def make(config):\n    return config['thing']\n", "acme-good")
    package("acme_broken", "import acme_is_not_there\n", "acme-broken")
    package("acme_exits", "raise SystemExit(3)\n", "acme-exits")
    package("acme_thief", "def make(config):\n    return 'mine'\n", "reverse-text")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_environment_of_an_installed_package_is_found(packages: Path) -> None:
    assert load("acme-good", {"thing": 7}) == 7


def test_one_that_fails_to_import_is_reported_and_harms_no_other(packages: Path) -> None:
    found = {one.name: one for one in installed()}
    assert found["acme-good"].problem is None and found["acme-good"].package == "acme_good 1.0"
    assert found["reverse-text"].problem is None
    for name, word in (("acme-broken", "acme_is_not_there"), ("acme-exits", "SystemExit")):
        problem = found[name].problem
        assert problem is not None and problem.code is Code.RL_ENVIRONMENT and word in problem.sentence


def test_a_package_cannot_take_the_name_of_a_built_in_one(packages: Path) -> None:
    assert load("reverse-text", {}) != "mine"


def test_an_unknown_name_and_a_refused_setting_say_what_there_is(packages: Path) -> None:
    with pytest.raises(NodeError, match="reverse-text") as unknown:
        load("no-such-thing", {})
    with pytest.raises(NodeError, match="KeyError"):
        load("acme-good", {})
    with pytest.raises(NodeError, match="shortest, longest"):
        load("reverse-text", {"colour": 3})
    with pytest.raises(NodeError, match="whole number"):
        load("reverse-text", {"shortest": 0})
    assert unknown.value.code is Code.RL_ENVIRONMENT
