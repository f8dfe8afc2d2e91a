"""The benchmark runner: what is selected, what is written, what is judged."""

import json
import math
from pathlib import Path

import pytest

from tests.bench import runner
from tests.bench.measurement import Measurement
from tests.bench.targets import Target, judge, load_targets

NAMES = ("allreduce_loopback", "codec_int4", "codec_int8", "protocol_envelope")
BENCHMARK = """
from tests.bench.measurement import Measurement


def run() -> Measurement:
    figures, peers = {"encode_gb_per_s": 2.0}, {"memcpy_gb_per_s": 8.0}
    return Measurement(figures=figures, peers=peers, ratios={"vs_memcpy": 0.25})
"""


def folder_with(tmp_path: Path, targets: str) -> Path:
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "codec_test.py").write_text(BENCHMARK)
    (folder / "measurement.py").write_text("raise AssertionError('this is no benchmark')")
    (folder / "targets.toml").write_text(targets)
    return folder


def test_only_selects_a_name_an_area_or_everything() -> None:
    assert runner.select(NAMES, "") == NAMES
    assert runner.select(NAMES, "codec_int8") == ("codec_int8",)
    assert runner.select(NAMES, "codec") == ("codec_int4", "codec_int8")
    with pytest.raises(ValueError, match="no benchmark is called 'codecs'"):
        runner.select(NAMES, "codecs")


def test_files_without_an_area_are_no_benchmarks(tmp_path: Path) -> None:
    assert runner.benchmarks(folder_with(tmp_path, "")) == ("codec_test",)


def test_every_benchmark_here_has_a_run_function_and_known_targets() -> None:
    for name in runner.benchmarks():
        assert "def run(" in (runner.FOLDER / f"{name}.py").read_text()
    assert set(load_targets()) <= set(runner.benchmarks())


def test_a_result_holds_all_that_is_promised(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "[codec_test]\nvs_memcpy = { min = 0.2 }\nencode_gb_per_s = { max = 1 }\n")
    written = json.loads(runner.write_one("codec_test", folder, tmp_path / "results").read_text())
    assert written["name"] == "codec_test"
    assert written["figures"] == {"encode_gb_per_s": 2.0}
    assert written["peers"] == {"memcpy_gb_per_s": 8.0}
    assert written["ratios"] == {"vs_memcpy": 0.25}
    assert written["command"] == "make bench ONLY=codec_test"
    assert written["machine"]["cores"] >= 1
    assert {verdict["name"]: verdict["met"] for verdict in written["targets"]} == {
        "vs_memcpy": True,
        "encode_gb_per_s": False,
    }
    assert runner.table([written]).row_count == 3


def test_a_target_for_a_number_that_is_not_reported_is_an_error() -> None:
    with pytest.raises(ValueError, match="names speed"):
        judge(Measurement(figures={"a": 1.0}), (Target("speed", min=1),))


def test_not_a_number_never_meets_a_target() -> None:
    assert not Target("a", min=0).met_by(math.nan)
    assert Target("a", min=0, max=1).met_by(1.0)
    assert not Target("a", min=0, max=1).met_by(1.1)


def test_a_target_without_a_bound_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "targets.toml").write_text("[codec_test]\nvs_memcpy = { minimum = 1 }\n")
    with pytest.raises(ValueError, match="vs_memcpy must be a table"):
        load_targets(tmp_path / "targets.toml")


def test_one_name_cannot_mean_two_numbers() -> None:
    with pytest.raises(ValueError, match="used twice: speed"):
        Measurement(figures={"speed": 1.0}, peers={"speed": 2.0})
