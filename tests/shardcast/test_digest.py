"""The digest of a file: from its bytes or from the digests of its pieces, in whatever parts they come."""

import struct
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from shardcast import limits
from shardcast.digest import FileDigest, are_pieces, digest_of_pieces, file_digest

PIECE = limits.PIECE
SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 5]


def by_the_documented_rule(data: bytes) -> bytes:
    pieces = [blake3(data[at : at + 8 * 2**20]).digest() for at in range(0, len(data), 8 * 2**20)]
    return blake3(
        blake3(b"shardcast file 1").digest() + struct.pack("<Q", len(data)) + b"".join(pieces)
    ).digest()


@pytest.mark.parametrize("size", SIZES)
def test_it_follows_from_the_documented_rule_alone(tmp_path: Path, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    path = tmp_path / "file"
    path.write_bytes(data)
    assert file_digest(data) == file_digest(memoryview(data), max_threads=-1) == by_the_documented_rule(data)
    assert file_digest(path) == by_the_documented_rule(data)


def test_it_stays_what_it_was() -> None:
    assert file_digest(b"").hex() == "540f5440a670eba591ed274dc52988294ee16a76a66a797a4419a3836a9ca1e4"
    assert file_digest(b"abc").hex() == "b2de42ddfad4c8d7950159dc867774e1645fe96d5b2bc8a2502824dbcdf67fde"
    assert (
        file_digest(bytes(PIECE + 1)).hex()
        == "dd47cd7226d1b8936b71f2be5e8b48196ce142ca86f216594245c963310e8c95"
    )


@given(st.lists(st.integers(0, 3 * PIECE), max_size=4))
def test_the_parts_in_which_bytes_come_make_no_difference(cuts: list[int]) -> None:
    edges = sorted(cuts)
    whole = FileDigest()
    for start, end in zip([0, *edges], edges, strict=False):
        whole.update(memoryview(DATA)[start:end])
    assert whole.digest() == file_digest(memoryview(DATA)[: edges[-1] if edges else 0])


DATA = bytes(range(256)) * (3 * PIECE // 256)


def test_it_is_another_one_for_every_other_file_even_of_the_same_pieces() -> None:
    zero = blake3(b"").digest()
    digests = {file_digest(DATA[:size]) for size in SIZES} | {digest_of_pieces(1, [zero]), zero}
    assert len(digests) == len(SIZES) + 2


def test_shards_are_pieces_where_all_but_the_last_have_their_size() -> None:
    assert are_pieces([]) and are_pieces([5]) and are_pieces([PIECE]) and are_pieces([PIECE, PIECE, 5])
    for sizes in ([5, PIECE], [PIECE, PIECE + 1], [PIECE + 1], [PIECE // 2, PIECE // 2]):
        assert not are_pieces(sizes)
