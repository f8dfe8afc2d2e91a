"""Codecs: round trips, exact bytes, refusals."""

import math
import struct
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from diloco.codec import CODECS, Codec, Floats, codec
from diloco.codec.limits import BLOCK, LARGEST, SMALLEST
from protocol.errors import Code, NodeError

INT8 = codec("int8")

each_codec = pytest.mark.parametrize("one", CODECS.values(), ids=CODECS)
values = arrays(
    np.float32,
    st.integers(1, 3 * BLOCK),
    elements=st.floats(-LARGEST, LARGEST, width=32, allow_nan=False, allow_infinity=False),
)


def heavy_tailed(n: int, seed: int = 0) -> Floats:
    return (1e-3 * np.random.default_rng(seed).standard_t(3, n)).astype(np.float32)


def reference_int8(values: Floats) -> bytes:
    """The format's definition in plain numpy scalars."""
    scales, levels = b"", b""
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        absmax = np.abs(block).max()
        if absmax < np.float32(SMALLEST):
            scales += struct.pack("<f", 0.0)
            levels += bytes(len(block))
            continue
        scales += struct.pack("<f", absmax / np.float32(127))
        inverse = np.float32(127) / absmax
        levels += np.rint(block * inverse).astype(np.int8).tobytes()
    return scales + levels


def scale_and_levels(data: bytes, n: int) -> tuple[Floats, np.ndarray]:
    blocks = -(-n // BLOCK)
    return np.frombuffer(data, "<f4", blocks), np.frombuffer(data, np.int8, n, 4 * blocks)


def refused(one: Codec, data: bytes, n: int) -> str:
    """The sentence with which all four ways of taking bytes in refuse these."""
    sentences = set()
    target = np.full(n, 7, np.float32)
    for take in (
        lambda: one.check(data, n),
        lambda: one.decode(data, n),
        lambda: one.decode_into(data, target),
        lambda: one.accumulate(target, data, 1.0),
        lambda: one.blend(target, data, 0.5),
    ):
        with pytest.raises(NodeError) as caught:
            take()
        assert caught.value.code == Code.TRN_CODEC
        sentences.add(caught.value.sentence)
    assert (target == 7).all(), "refused bytes changed the target"
    (sentence,) = sentences
    return sentence


@each_codec
@pytest.mark.parametrize("n", [1, 15, 255, 256, 257, 1000, 4096])
def test_encoded_bytes_have_the_length_that_was_said_and_decode(one: Codec, n: int) -> None:
    data = one.encode(heavy_tailed(n))
    assert len(data) == one.nbytes(n)
    one.check(data, n)
    assert one.decode(data, n).shape == (n,)


def test_int8_takes_one_byte_per_value_and_four_per_block() -> None:
    assert INT8.nbytes(2**20) == 2**20 + 4 * 2**12


@each_codec
@settings(max_examples=60, deadline=None)
@given(values=values)
def test_encoding_what_was_decoded_gives_the_same_bytes(one: Codec, values: Floats) -> None:
    data = one.encode(values)
    assert one.encode(one.decode(data, values.size)) == data


@settings(max_examples=100, deadline=None)
@given(values=values)
def test_int8_bytes_are_those_of_the_definition(values: Floats) -> None:
    assert INT8.encode(values) == reference_int8(values)


@settings(max_examples=100, deadline=None)
@given(values=values)
def test_int8_errs_by_at_most_half_a_scale(values: Floats) -> None:
    data = INT8.encode(values)
    scales, levels = scale_and_levels(data, values.size)
    assert levels.min() >= -127
    half = np.repeat(scales.astype(np.float64), BLOCK)[: values.size] / 2
    error = np.abs(INT8.decode(data, values.size).astype(np.float64) - values)
    assert (error <= half * (1 + 2**-15) + SMALLEST).all()


def test_fp32_keeps_every_bit_and_fp16_rounds_half_to_even() -> None:
    values = np.array([1.5, -0.0, 2.0**-149, 65504.0, 2049.0, 2051.0], np.float32)
    assert codec("fp32").decode(codec("fp32").encode(values), 6).tobytes() == values.tobytes()
    sixteen = codec("fp16").decode(codec("fp16").encode(values), 6)
    assert sixteen.tolist() == [1.5, -0.0, 0.0, 65504.0, 2048.0, 2052.0]
    assert math.copysign(1, sixteen[1]) == -1


def test_int8_rounds_halves_to_even() -> None:
    values = np.array([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
    _, levels = scale_and_levels(INT8.encode(values), values.size)
    assert levels.tolist() == [127, 0, 2, 2, 0, -2, -2]


def test_an_outlier_costs_only_its_own_block_precision() -> None:
    values = heavy_tailed(4 * BLOCK)
    spoiled = values.copy()
    spoiled[BLOCK + 3] = 1000.0
    clean, dirty = (INT8.decode(INT8.encode(one), one.size) for one in (values, spoiled))
    others = np.r_[0:BLOCK, 2 * BLOCK : 4 * BLOCK]
    assert (clean[others] == dirty[others]).all()


def test_blocks_of_zeros_and_of_vanishing_values_are_zeros() -> None:
    values = np.zeros(3 * BLOCK, np.float32)
    values[BLOCK : 2 * BLOCK] = 2.0**-140
    values[2 * BLOCK] = SMALLEST
    decoded = INT8.decode(INT8.encode(values), values.size)
    assert decoded[: 2 * BLOCK].tobytes() == bytes(8 * BLOCK)
    assert decoded[2 * BLOCK] == np.float32(SMALLEST)


@each_codec
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("position", [0, 300, 999])
def test_what_is_not_finite_is_never_encoded(one: Codec, bad: float, position: int) -> None:
    values = heavy_tailed(1000)
    values[position] = bad
    with pytest.raises(NodeError, match=f"position {position} is not finite") as caught:
        one.encode(values)
    assert caught.value.code == Code.TRN_NOT_FINITE


@each_codec
def test_what_is_absurdly_large_is_never_encoded(one: Codec) -> None:
    values = heavy_tailed(1000)
    values[600] = -np.nextafter(np.float32(LARGEST), np.float32(np.inf))
    with pytest.raises(NodeError, match="position 600 is larger"):
        one.encode(values)
    values[600] = -LARGEST
    one.check(one.encode(values), 1000)


@each_codec
@pytest.mark.parametrize(
    "wrong", [np.zeros(4, np.float64), np.zeros((2, 2), np.float32), np.zeros(8, np.float32)[::2]]
)
def test_only_flat_contiguous_fp32_is_encoded(one: Codec, wrong: np.ndarray) -> None:
    with pytest.raises(TypeError, match="flat contiguous float32"):
        one.encode(wrong)


@each_codec
def test_bytes_of_another_length_are_refused(one: Codec) -> None:
    data = one.encode(heavy_tailed(300))
    for wrong in (b"", data[:-1], data + b"\0"):
        assert f"but {len(wrong)} came" in refused(one, wrong, 300)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 65505.0, -70000.0])
def test_fp32_bytes_out_of_bounds_are_refused(bad: float) -> None:
    data = bytearray(codec("fp32").encode(heavy_tailed(300)))
    data[4 * 77 : 4 * 78] = struct.pack("<f", bad)
    assert "position 77" in refused(codec("fp32"), bytes(data), 300)


@pytest.mark.parametrize("bad", [b"\x00\x7c", b"\x00\xfc", b"\x01\x7e"], ids=["inf", "-inf", "nan"])
def test_fp16_bytes_that_are_not_finite_are_refused(bad: bytes) -> None:
    data = bytearray(codec("fp16").encode(heavy_tailed(300)))
    data[2 * 299 : 2 * 300] = bad
    assert "position 299" in refused(codec("fp16"), bytes(data), 300)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1e-3, -0.0, 516.0, 3e38, 1e-40, 1e-33])
def test_an_absurd_scale_is_refused(scale: float) -> None:
    data = bytearray(INT8.encode(heavy_tailed(1000)))
    data[4 * 2 : 4 * 3] = struct.pack("<f", scale)
    assert refused(INT8, bytes(data), 1000).startswith("Block 2 ")


def test_the_extreme_scales_that_an_encoder_makes_are_taken() -> None:
    for extreme in (SMALLEST, LARGEST):
        values = np.full(BLOCK, extreme, np.float32)
        INT8.check(INT8.encode(values), BLOCK)


def test_a_level_of_minus_128_is_refused() -> None:
    data = bytearray(INT8.encode(heavy_tailed(1000)))
    data[-1] = 0x80
    assert refused(INT8, bytes(data), 1000).startswith("Block 3 ")


def test_levels_beside_a_scale_of_zero_are_refused() -> None:
    data = bytearray(INT8.encode(np.zeros(1000, np.float32)))
    data[4 * 4 + 300] = 1
    assert refused(INT8, bytes(data), 1000).startswith("Block 1 ")


@settings(max_examples=100, deadline=None)
@given(data=st.binary(min_size=404, max_size=404))
def test_any_bytes_are_refused_or_decode_to_finite_values(data: bytes) -> None:
    for one, n in ((INT8, 400), (INT8, 396), (codec("fp16"), 202), (codec("fp32"), 101)):
        try:
            decoded = one.decode(data, n)
        except NodeError as error:
            assert error.code == Code.TRN_CODEC
        else:
            assert np.isfinite(decoded).all() and np.abs(decoded).max() <= LARGEST


@each_codec
def test_accumulate_rounds_product_and_sum_one_after_the_other(one: Codec) -> None:
    n, weight = 1237, np.float32(0.3)
    data, total = one.encode(heavy_tailed(n, 1)), heavy_tailed(n, 2)
    product = weight * one.decode(data, n)
    expected = total + product
    fused = (total.astype(np.float64) + np.float64(weight) * one.decode(data, n)).astype(np.float32)
    assert (expected != fused).any(), "the values cannot tell a fused operation"
    one.accumulate(total, data, weight)
    assert total.tobytes() == expected.tobytes()


@each_codec
def test_blend_rounds_each_operation_separately(one: Codec) -> None:
    n, ratio = 1237, np.float32(0.3)
    data, mean = one.encode(heavy_tailed(n, 1)), heavy_tailed(n, 2)
    difference = one.decode(data, n) - mean
    expected = mean + ratio * difference
    again = mean.copy()
    one.blend(mean, data, ratio)
    assert mean.tobytes() == expected.tobytes()
    clip = np.float32(0.7)
    clipped = again + ratio * (clip * one.decode(data, n) - again)
    one.blend(again, data, ratio, float(clip))
    assert again.tobytes() == clipped.tobytes() != expected.tobytes()


@each_codec
def test_a_part_decodes_as_it_does_in_the_whole(one: Codec) -> None:
    data = one.encode(heavy_tailed(1237))
    whole = one.decode(data, 1237)
    for start, stop in ((0, BLOCK), (BLOCK, 3 * BLOCK), (4 * BLOCK, 1237), (0, 1237)):
        part = np.empty(stop - start, np.float32)
        one.decode_part(memoryview(b"x" + data)[1:], 1237, start, part)
        assert part.tobytes() == whole[start:stop].tobytes()


@each_codec
def test_bytes_at_any_place_of_a_frame_decode_alike(one: Codec) -> None:
    data = one.encode(heavy_tailed(1000))
    expected = one.decode(data, 1000).tobytes()
    for shift in range(1, 5):
        frame = memoryview(bytearray(shift) + data)[shift:]
        assert one.decode(frame, 1000).tobytes() == expected
        total = np.zeros(1000, np.float32)
        one.accumulate(total, frame, 1.0)
        assert total.tobytes() == expected


@each_codec
def test_it_encodes_into_any_place_of_a_frame_and_nothing_beside_it(one: Codec) -> None:
    values = heavy_tailed(1000)
    size = one.nbytes(1000)
    for shift in range(5):
        frame = bytearray(b"\xee" * (size + 10))
        one.encode_into(values, memoryview(frame)[shift : shift + size])
        assert frame == b"\xee" * shift + one.encode(values) + b"\xee" * (10 - shift)


@each_codec
def test_it_refuses_to_encode_into_memory_that_does_not_fit(one: Codec) -> None:
    values = heavy_tailed(1000)
    size = one.nbytes(1000)
    for wrong in (bytearray(size - 1), bytearray(size + 1), memoryview(bytes(size))):
        with pytest.raises(ValueError, match=f"{size} writable bytes"):
            one.encode_into(values, wrong)


@each_codec
def test_threads_get_the_same_bytes(one: Codec) -> None:
    inputs = [heavy_tailed(50_000, seed) for seed in range(4)]
    expected = [one.encode(each) for each in inputs]
    got: dict[int, bytes] = {}

    def work(seed: int) -> None:
        got[seed] = one.encode(inputs[seed])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[seed] for seed in range(4)] == expected


def test_an_unknown_codec_is_named_with_those_there_are() -> None:
    with pytest.raises(NodeError, match="no codec 'int7'; there are fp32, fp16, int8"):
        codec("int7")
