"""Policies: fitted to honest work, measured, written and read."""

import json

import pytest

from tests.toploc.worlds import pair
from toploc import Pair, Policy, Projection, build_fingerprints, calibrate
from toploc.calibration import rate


@pytest.fixture(scope="module")
def policy():
    honest = {"batch": [pair(seed) for seed in range(40)], "kernel": [pair(seed) for seed in range(100, 130)]}
    dishonest = {
        "shifted": [pair(seed, shift=0.03) for seed in range(200, 210)],
        "below the resolution": [pair(seed, shift=0.0001) for seed in range(200, 210)],
    }
    return calibrate(honest, dishonest, model="made up")


def test_a_policy_holds_its_measured_error_rates(policy):
    assert set(policy.false_positives) == {"batch", "kernel"}
    assert policy.false_positives["batch"].count == 0
    assert policy.false_positives["batch"].total == 40
    assert 0.05 < policy.false_positives["batch"].high < 0.1
    assert policy.false_negatives["shifted"].count == 0
    assert policy.false_negatives["below the resolution"].count == 10


def test_levels_rise_in_length_and_need_less_deviation(policy):
    assert [level.chunks for level in policy.levels] == [1, 2, 3, 4]
    assert [level.runs for level in policy.levels] == [280, 140, 70, 70]
    assert policy.levels[0].scale[0] > policy.levels[3].scale[0]


def test_the_false_positive_rate_falls_with_the_score(policy):
    level = policy.levels[-1]
    rates = [level.false_positive_rate(score / 10) for score in range(-4, 60)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 1.0
    assert level.false_positive_rate(1.0) <= 1.01e-4
    assert level.false_positive_rate(1.0, runs=10) <= 1.01e-4
    assert all(more > once for more, once in zip(level.limits(10), level.limits(1), strict=True))


def test_a_policy_survives_its_file(policy, tmp_path):
    file = tmp_path / "policy.json"
    policy.save(file)
    assert Policy.load(file) == policy
    assert json.loads(file.read_text())["schema"] == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda held: held.update(schema=2),
        lambda held: held.update(surprise=1),
        lambda held: held.pop("thresholds"),
        lambda held: held["levels"].reverse(),
        lambda held: held.update(topk=0),
        lambda held: held.update(levels=[1]),
        lambda held: held.update(false_positives=[]),
        lambda held: held.update(decode_batching_size=1.5),
        lambda held: held.update(sign_mismatches=None),
        lambda held: held.update(repeats=[float("nan"), 1]),
        lambda held: held["thresholds"].update(exp_mismatches=float("nan")),
        lambda held: held["levels"][0].update(limit=[float("nan")] * 8),
        lambda held: held["levels"][0].update(limit=[1e300] * 8),
        lambda held: held["levels"][0].update(scale=[0.0] * 8),
        lambda held: held["levels"][0].update(centre=[0.0] * 7),
        lambda held: held["false_negatives"]["shifted"].update(total="10"),
        lambda held: held.update(projection={"seed": 1, "dimensions": 4, "step_exponent": 0}),
    ],
)
def test_a_file_that_is_no_policy_is_refused(policy, spoil):
    held = json.loads(policy.to_json())
    spoil(held)
    with pytest.raises(ValueError):
        Policy.from_json(json.dumps(held))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 500_000, "x" * 2_000_000])
def test_text_that_is_no_policy_is_refused(text):
    with pytest.raises(ValueError):
        Policy.from_json(text)


def test_too_little_honest_work_is_refused():
    with pytest.raises(ValueError, match="19 honest pairs in a half are too few"):
        calibrate({"batch": [pair(seed) for seed in range(39)]}, model="made up")


def test_work_that_is_not_of_one_text_is_no_honest_work():
    pairs = [pair(seed) for seed in range(40)]
    crossed = [Pair(pairs[seed - 1].proofs, pairs[seed].activations) for seed in range(40)]
    with pytest.raises(ValueError, match="nothing in common"):
        calibrate({"batch": crossed}, model="made up")
    projection = Projection(step_exponent=-4)
    made = [Pair(build_fingerprints(p.activations, 32, projection, True), p.activations) for p in pairs]
    other = Projection("another seed", step_exponent=-4)
    with pytest.raises(ValueError, match="nothing in common"):
        calibrate({"batch": made}, model="made up", projection=other)


@pytest.mark.parametrize("wrong", [{"target": 0}, {"target": 1}, {"target": float("nan")}, {"longest": 0}])
def test_what_no_policy_can_aim_at_is_refused(wrong):
    with pytest.raises(ValueError, match="target"):
        calibrate({"batch": []}, model="made up", **wrong)


def test_published_cut_offs_exist_for_two_types():
    assert Policy.published("bfloat16").thresholds.exp_mismatches == 38
    assert Policy.published("float32").thresholds.mant_err_mean == 256
    with pytest.raises(ValueError, match="bfloat16, float32"):
        Policy.published("float64")


@pytest.mark.parametrize(
    "count, total, low, high",
    [(0, 208, 0.0, 0.01758), (5, 50, 0.03328, 0.21814), (64, 64, 0.94400, 1.0), (0, 0, 0.0, 1.0)],
)
def test_intervals_are_those_of_clopper_and_pearson(count, total, low, high):
    measured = rate(count, total)
    assert measured.low == pytest.approx(low, abs=1e-4)
    assert measured.high == pytest.approx(high, abs=1e-4)
