import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.errors import Code, NodeError
from rl.rollouts.files import store, write
from rl.rollouts.limits import Limits
from rl.rollouts.parquet import encode
from rl.rollouts.reading import Reader
from rl.rollouts.signing import Signed
from tests.rl.rollouts.making import ANA, BEN, groups, plain, provenance


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    reader = Reader(Limits())
    yield reader
    await reader.close()


async def code_of(reader: Reader, path: Path) -> Code:
    with pytest.raises(NodeError) as caught:
        await reader.read(path)
    return caught.value.code


def lying(data: bytes, tokens: int) -> bytes:
    """A file whose footer says that there are 5 tokens, where its pages hold many.

    Numbers in the footer are zigzag varints, which may be padded to any length.
    """

    def varint(number: int, length: int = 0) -> bytes:
        number, digits = 2 * number, []
        while number or len(digits) < length or not digits:
            digits.append(number & 0x7F)
            number >>= 7
        return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])

    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    honest = varint(tokens)
    assert data[start:].count(honest) >= 4
    return data[:start] + data[start:].replace(honest, varint(5, len(honest)))


async def test_good_files_among_truncated_wrong_and_lying_ones_are_all_read(
    reader: Reader, tmp_path: Path
) -> None:
    good = encode(provenance(), groups(7, 8))
    big = encode(provenance(), groups(7, size=1, prompt=1, sampled=3_000_000))
    bad = [
        good[:-9],
        b"PAR1" + bytes(50) + b"PAR1",
        b"",
        lying(big, 3_000_001),
        good.replace(b'"schema":1', b'"schema":2'),
    ]
    for number, data in enumerate(bad):
        worse, path = tmp_path / f"bad-{number}.parquet", tmp_path / f"good-{number}.parquet"
        store(worse, data, Signed.make(ANA, data))
        assert await code_of(reader, worse) in (Code.RL_FILE_UNREADABLE, Code.RL_FILE_TOO_LARGE), number
        write(path, provenance(), groups(7, 8), ANA)
        held, found, signed = await reader.read(path)
        assert (held, plain(found), signed.signer) == (provenance(), plain(groups(7, 8)), ANA.peer_id)


async def test_a_file_that_needs_more_memory_than_allowed_is_refused_and_the_next_one_read(
    tmp_path: Path,
) -> None:
    reader = Reader(Limits(transcript=1 << 23), memory=128 << 20)
    data = encode(provenance(), groups(7, size=1, prompt=1, sampled=4_000_000))
    store(tmp_path / "bomb.parquet", data, Signed.make(ANA, data))
    write(tmp_path / "good.parquet", provenance(), groups(7), ANA)
    try:
        assert await code_of(reader, tmp_path / "bomb.parquet") is Code.RL_FILE_TOO_LARGE
        await reader.read(tmp_path / "good.parquet")
    finally:
        await reader.close()


async def test_a_reader_that_hangs_costs_one_file_and_a_bounded_time(tmp_path: Path) -> None:
    reader = Reader(Limits(), seconds=0.5)
    path = tmp_path / "good.parquet"
    write(path, provenance(), groups(7), ANA)
    try:
        child = await reader._start()
        os.kill(child.pid, signal.SIGSTOP)
        assert await code_of(reader, path) is Code.RL_FILE_TOO_LARGE
        reader._seconds = 60
        await reader.read(path)
    finally:
        await reader.close()


async def test_a_reader_that_was_killed_between_two_files_costs_none(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / "good.parquet"
    write(path, provenance(), groups(7), ANA)
    await reader.read(path)
    assert reader._child is not None
    reader._child.kill()
    await reader.read(path)


async def test_a_file_in_anothers_name_is_refused(reader: Reader, tmp_path: Path) -> None:
    data = encode(provenance(), groups(7))
    store(tmp_path / "a.parquet", data, Signed.make(BEN, data))
    assert await code_of(reader, tmp_path / "a.parquet") is Code.RL_FILE_SIGNATURE
