"""A shard that is coming."""

import pytest

from protocol.errors import Code, NodeError
from shardcast.manifest import Shard
from shardcast.piece import Piece

SHARD = Shard(3, 0, 8, bytes(32))


def test_bytes_come_in_order_and_are_seen_as_far_as_they_came() -> None:
    piece = Piece(SHARD)
    piece.room[:3] = b"abc"
    piece.advance(3)
    piece.take("a", 3, memoryview(b"defgh"))
    assert (bytes(piece.data), piece.whole) == (b"abcdefgh", True)


@pytest.mark.parametrize(("offset", "data"), [(1, b"x"), (0, b""), (0, bytes(9))])
def test_other_bytes_than_the_next_are_refused(offset: int, data: bytes) -> None:
    piece = Piece(SHARD)
    with pytest.raises(NodeError) as error:
        piece.take("a", offset, memoryview(data))
    assert error.value.code is Code.SHC_BAD_SHARD
    assert piece.have == 0


def test_memory_goes_to_the_next_piece_but_never_while_somebody_looks_at_it() -> None:
    spare: list[bytearray] = []
    first = Piece(SHARD, spare)
    first.take("a", 0, memoryview(b"first!!!"))
    looking = first.data
    first.give_back()
    assert spare == [], "somebody looks at it"
    assert bytes(looking) == b"first!!!"
    second = Piece(SHARD, spare)
    second.take("a", 0, memoryview(b"second!!"))
    second.give_back()
    assert len(spare) == 1
    other = Piece(Shard(4, 8, 7, bytes(32)), spare)
    assert len(other.room) == 7 and len(spare) == 1, "another size needs other memory"
    third = Piece(SHARD, spare)
    assert len(third.room) == 8 and spare == []
