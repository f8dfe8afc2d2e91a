"""Text with units becomes values, and nothing else does."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.units import Address, Bytes, Rate, bandwidth, duration


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4 KiB", 4096),
        ("4KiB", 4096),
        ("1.5 MB", 1_500_000),
        ("512", 512),
        ("0 B", 0),
        ("2 GiB", 2**31),
        (7, 7),
    ],
)
def test_a_size_is_a_number_with_a_unit(text: str | int, count: int) -> None:
    assert Bytes.parse(text) == count


@pytest.mark.parametrize("text", ["", "KiB", "4 kib", "-1 B", "4 KiB/s", "1.5 B", "four", "4 K iB", -3])
def test_what_is_no_size_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError):
        Bytes.parse(text)


def test_a_bad_size_names_the_allowed_forms() -> None:
    with pytest.raises(ValueError, match="KiB"):
        Bytes.parse("4 blocks")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (4096, "4 KiB"), (1536, "1.5 KiB"), (2**30, "1 GiB")]
)
def test_a_size_prints_itself_for_people(count: int, text: str) -> None:
    assert f"{Bytes(count)}" == text


@given(st.integers(0, 2**50))
def test_a_plain_number_of_bytes_is_read_back_exactly(count: int) -> None:
    assert Bytes.parse(f"{count} B") == count


@pytest.mark.parametrize(
    ("text", "count"), [("20 Mb/s", 2_500_000), ("3 MB/s", 3_000_000), ("1 MiB/s", 2**20), (1000, 1000)]
)
def test_a_bandwidth_tells_bits_from_bytes(text: str | int, count: int) -> None:
    assert bandwidth(text) == count


@pytest.mark.parametrize("text", ["20 Mb", "fast", "20 Mbps", ""])
def test_what_is_no_bandwidth_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Mb/s"):
        bandwidth(text)


def test_a_rate_is_a_count_per_period_and_a_burst() -> None:
    assert Rate.parse("10/s") == Rate(10, timedelta(seconds=1), 10)
    assert Rate.parse("3/min burst 9") == Rate(3, timedelta(minutes=1), 9)
    assert Rate.parse("30/min").per_second == 0.5


@pytest.mark.parametrize("text", ["10/s", "3/min burst 9", "100/h"])
def test_a_rate_prints_what_it_was_read_from(text: str) -> None:
    assert str(Rate.parse(text)) == text


@pytest.mark.parametrize("text", ["", "10", "0/s", "1/day", "1/s burst 0", "-1/s", "1.5/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="10/s"):
        Rate.parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5 s", 5), ("250 ms", 0.25), ("2 min", 120), ("1.5 h", 5400), ("1 d", 86400)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["5", "", "s", "-5 s", "5 seconds", "99999999999999 d", "9" * 400 + " s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="250 ms"):
        duration(text)


def test_an_address_prints_as_host_and_port() -> None:
    assert str(Address("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(Address("::1", 80)) == "[::1]:80"
