"""The reduce of one chunk, and what its exactness gives: replicas that stay bit-identical."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco.aggregate import FEWEST, Aggregation, RunningMean, aggregate, longest, reduce_chunk
from diloco.codec import CODECS, Codec, Floats, codec
from diloco.digest import state_digest
from diloco.layout import Grid
from diloco.norm import squared_norm
from diloco.outer_step import outer_step
from protocol.errors import NodeError

FP32, INT8 = codec("fp32"), codec("int8")
each_codec = pytest.mark.parametrize("one", CODECS.values(), ids=CODECS)
weights = st.lists(st.integers(1, 2**40), min_size=1, max_size=9)


def heavy_tailed(n: int, seed: int) -> Floats:
    return (1e-3 * np.random.default_rng(seed).standard_t(3, n)).astype(np.float32)


@each_codec
@pytest.mark.parametrize("weight", [1, 3, 12345, 2**60])
def test_one_peer_gets_exactly_what_it_sent(one: Codec, weight: int) -> None:
    data = one.encode(heavy_tailed(1000, 1))
    assert aggregate(one, [data], [weight], 1000).tobytes() == one.decode(data, 1000).tobytes()
    assert reduce_chunk(one, [data], [weight], 1000) == data


@each_codec
@settings(max_examples=40, deadline=None)
@given(weights=weights, seed=st.integers(0, 2**32))
def test_equal_contributions_give_exactly_that_whatever_the_weights(
    one: Codec, weights: list[int], seed: int
) -> None:
    data = one.encode(heavy_tailed(600, seed))
    assert reduce_chunk(one, [data] * len(weights), weights, 600) == data


@each_codec
@pytest.mark.parametrize("survivors", [4, 3, 2, 1])
@pytest.mark.failure_mode(2)
def test_constant_one_from_however_many_survive_gives_exactly_one(one: Codec, survivors: int) -> None:
    data = one.encode(np.ones(1000, np.float32))
    reduced = reduce_chunk(one, [data] * survivors, [4096, 4096, 1000, 77][:survivors], 1000)
    assert (one.decode(reduced, 1000) == 1.0).all()


@settings(max_examples=60, deadline=None)
@given(weights=weights)
def test_the_mean_is_the_weighted_mean(weights: list[int]) -> None:
    inputs = [heavy_tailed(300, seed) for seed in range(len(weights))]
    got = aggregate(FP32, [FP32.encode(each) for each in inputs], weights, 300)
    exact = np.average([each.astype(np.float64) for each in inputs], axis=0, weights=np.array(weights, float))
    largest = max(np.abs(each).max() for each in inputs)
    assert np.abs(got - exact).max() <= 4 * len(weights) * 2.0**-24 * largest


def test_the_same_contributions_in_roster_order_give_the_same_bytes_in_another_order_others() -> None:
    data = [INT8.encode(heavy_tailed(5000, seed)) for seed in range(8)]
    tokens = [1000 + 17 * seed for seed in range(8)]
    forth = reduce_chunk(INT8, data, tokens, 5000)
    assert reduce_chunk(INT8, [bytes(bytearray(each)) for each in data], tokens, 5000) == forth
    assert reduce_chunk(INT8, data[::-1], tokens[::-1], 5000) != forth


def test_a_refused_contribution_leaves_the_mean_of_the_others() -> None:
    good = [INT8.encode(heavy_tailed(1000, seed)) for seed in range(3)]
    bad = good[1][:-1] + b"\x80"
    running = RunningMean(INT8, 1000)
    for data in (bad, good[0], bad, good[2]):
        try:
            running.add(data, 10)
        except NodeError:
            assert data is bad
    assert running.weight == 20
    assert running.result().tobytes() == aggregate(INT8, [good[0], good[2]], [10, 10], 1000).tobytes()


def test_no_contribution_and_no_weight_have_no_mean() -> None:
    data = FP32.encode(np.ones(4, np.float32))
    with pytest.raises(ValueError, match="mean of nothing"):
        aggregate(FP32, [], [], 4)
    for weight in (0, -1):
        with pytest.raises(ValueError, match="must be positive"):
            aggregate(FP32, [data], [weight], 4)
    with pytest.raises(ValueError, match="shorter"):
        aggregate(FP32, [data, data], [1], 4)


ROBUST: tuple[Aggregation, ...] = ("trimmed_mean", "median")
robust = pytest.mark.parametrize("how", ROBUST)
small_weights = st.lists(st.integers(1, 7), min_size=FEWEST, max_size=9)


@settings(max_examples=40, deadline=None)
@given(weights=small_weights)
def test_the_median_and_the_trimmed_mean_count_a_weight_as_so_many_equal_contributions(
    weights: list[int],
) -> None:
    """The oracle writes every contribution out as often as it weighs, and sorts."""
    inputs = [heavy_tailed(300, seed) for seed in range(len(weights))]
    data = [FP32.encode(each) for each in inputs]
    written_out = np.sort(np.repeat(np.array(inputs, np.float64), weights, axis=0), axis=0)
    cut = sum(weights) // 5
    tolerance = {"rtol": 1e-6, "atol": 1e-9}
    median = aggregate(FP32, data, weights, 300, how="median")
    assert np.allclose(median, np.median(written_out, axis=0), **tolerance)
    trimmed = aggregate(FP32, data, weights, 300, how="trimmed_mean")
    assert np.allclose(trimmed, written_out[cut : sum(weights) - cut].mean(axis=0), **tolerance)


@robust
@each_codec
def test_equal_contributions_of_any_weight_give_exactly_that_value_by_value_too(
    one: Codec, how: Aggregation
) -> None:
    data = one.encode(heavy_tailed(600, 3))
    assert reduce_chunk(one, [data] * 6, [4096, 77, 1, 2**40, 12345, 3], 600, how=how) == data


@robust
def test_many_contributors_are_sorted_otherwise_and_give_the_same(
    how: Aggregation,
) -> None:
    inputs = [np.round(heavy_tailed(300, seed) * 1000).astype(np.float32) for seed in range(40)]
    weights = [1 + seed % 5 for seed in range(40)]
    got = aggregate(FP32, [FP32.encode(each) for each in inputs], weights, 300, how=how)
    written_out = np.sort(np.repeat(np.array(inputs, np.float64), weights, axis=0), axis=0)
    cut = sum(weights) // 5
    oracle = {
        "median": np.median(written_out, axis=0),
        "trimmed_mean": written_out[cut : sum(weights) - cut].mean(axis=0),
    }
    assert np.allclose(got, oracle[how], rtol=1e-6, atol=1e-9)


@robust
def test_one_contributor_of_five_moves_nothing_beyond_the_range_of_the_others(how: Aggregation) -> None:
    inputs = [heavy_tailed(40_000, seed) for seed in range(4)]  # more than one part is sorted
    liar = np.full(40_000, 60_000.0, np.float32)
    data = [FP32.encode(each) for each in (*inputs, liar)]
    got = aggregate(FP32, data, [10] * 5, 40_000, how=how)
    assert (got <= np.max(inputs, axis=0)).all()
    assert (got >= np.min(inputs, axis=0)).all()
    assert aggregate(FP32, data, [10] * 5, 40_000).min() > 1000  # which the plain mean does not give


@robust
def test_with_fewer_than_five_contributors_it_is_the_plain_mean(how: Aggregation) -> None:
    data = [INT8.encode(heavy_tailed(600, seed)) for seed in range(5)]
    four = reduce_chunk(INT8, data[:4], [1, 2, 3, 4], 600, how=how)
    assert four == reduce_chunk(INT8, data[:4], [1, 2, 3, 4], 600)
    assert reduce_chunk(INT8, data, [1, 2, 3, 4, 5], 600, how=how) != reduce_chunk(
        INT8, data, [1, 2, 3, 4, 5], 600
    )


@robust
@each_codec
def test_whoever_computes_it_gets_the_same_bytes(one: Codec, how: Aggregation) -> None:
    """Also from bytes at another place in memory, as an auditor has them."""
    n = 40_000
    data = [one.encode(heavy_tailed(n, seed)) for seed in range(7)]
    shifted = [memoryview(b"x" + each)[1:] for each in data]
    weights, clips = [3, 1, 4, 1, 5, 9, 2], [1.0, 0.5, 1.0, 0.25, 1.0, 1.0, 0.75]
    owner = reduce_chunk(one, data, weights, n, clips=clips, how=how)
    assert reduce_chunk(one, shifted, weights, n, clips=clips, how=how) == owner


@robust
def test_what_no_codec_makes_is_refused_before_anything_is_sorted(how: Aggregation) -> None:
    data = [INT8.encode(heavy_tailed(600, seed)) for seed in range(5)]
    with pytest.raises(NodeError):
        aggregate(INT8, [*data[:4], data[4][:-1] + b"\x80"], [1] * 5, 600, how=how)
    for weights in ([1, 1, 1, 1, 0], [2**61] * 5):
        with pytest.raises(ValueError, match="must be positive"):
            aggregate(INT8, data, weights, 600, how=how)


@each_codec
@pytest.mark.parametrize("how", ["mean", *ROBUST])
def test_a_clip_factor_scales_a_contribution_and_nothing_else(one: Codec, how: Aggregation) -> None:
    inputs = [one.decode(one.encode(heavy_tailed(600, seed)), 600) for seed in range(6)]
    clips = [1.0, 0.5, 1.0, 0.125, 1.0, 0.25]  # powers of two: scaling rounds nothing
    scaled = [FP32.encode(each * np.float32(clip)) for each, clip in zip(inputs, clips, strict=True)]
    weights = [5, 6, 7, 8, 9, 10]
    got = aggregate(one, [one.encode(each) for each in inputs], weights, 600, clips=clips, how=how)
    expected = aggregate(FP32, scaled, weights, 600, how=how)
    if one.name == "int8":  # encoding what was decoded may move a scale's last bit
        assert np.allclose(got, expected, rtol=1e-6, atol=0)
    else:
        assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("how", ["mean", *ROBUST])
@settings(max_examples=30, deadline=None)
@given(weights=st.lists(st.integers(1, 100), min_size=1, max_size=9), seed=st.integers(0, 2**32))
def test_no_aggregate_is_longer_than_what_its_contributions_allow(
    how: Aggregation, weights: list[int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    scales = 10.0 ** random.integers(-3, 1, len(weights))
    inputs = [(random.standard_t(3, 200) * scale).astype(np.float32) for scale in scales]
    if seed % 2:  # nothing cancels
        inputs = [np.abs(each) for each in inputs]
    clips = [float(2.0 ** -random.integers(0, 4)) for _ in weights]
    got = aggregate(FP32, [FP32.encode(each) for each in inputs], weights, 200, clips=clips, how=how)
    norms = [float(np.linalg.norm(each.astype(np.float64))) for each in inputs]
    assert squared_norm(got) ** 0.5 <= longest(norms, weights, clips=clips, how=how) * (1 + 1e-5)


@pytest.mark.failure_mode(1)
@pytest.mark.parametrize("peers", range(2, 9))
def test_replicas_are_bit_identical_after_20_rounds_of_heavy_tailed_pseudo_gradients(peers: int) -> None:
    """Each peer keeps a state of its own; owners reduce their chunks; all decode the bytes that came back."""
    n, rounds, grid = 3000, 20, Grid(3000, 512)
    states = [(np.ones(n, np.float32), np.zeros(n, np.float32)) for _ in range(peers)]
    for round in range(rounds):
        gradients = [heavy_tailed(n, 1000 * peer + round) for peer in range(peers)]
        tokens = [4096 - 100 * peer for peer in range(peers)]
        for part in grid.slices():
            length = part.stop - part.start
            encoded = [INT8.encode(gradient[part]) for gradient in gradients]
            reduced = reduce_chunk(INT8, encoded, tokens, length)
            for params, momentum in states:
                gradient = INT8.decode(reduced, length)
                outer_step(params[part], momentum[part], gradient, 0.7, 0.9, params[part], momentum[part])
        assert len({state_digest(round + 1, *state, grid) for state in states}) == 1
    assert not np.array_equal(states[0][0], np.ones(n, np.float32))


def test_the_squared_norm_has_the_bits_of_its_sixteen_lanes() -> None:
    values = heavy_tailed(1000, 5)
    lanes = np.zeros(16)
    for index, value in enumerate(values):
        lanes[index % 16] += np.float64(value) * np.float64(value)
    total = 0.0
    for lane in lanes:
        total += float(lane)
    assert squared_norm(values) == total
    assert squared_norm(values[:3]) == pytest.approx(float(np.sum(values[:3].astype(float) ** 2)))
