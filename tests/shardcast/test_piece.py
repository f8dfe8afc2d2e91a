"""A shard that is coming."""

import pytest
from blake3 import blake3

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


def test_a_piece_is_stored_when_it_is_whole_and_right_and_never_else() -> None:
    put: list[tuple[Shard, bytes]] = []
    right = Shard(3, 0, 8, blake3(b"abcdefgh").digest())
    piece = Piece(right, put=lambda shard, data: put.append((shard, bytes(data))))
    piece.take("a", 0, memoryview(b"abc"))
    piece.store()
    assert (piece.stored, put) == (False, []), "it is not whole"
    piece.take("a", 3, memoryview(b"defgh"))
    piece.store()
    assert (piece.stored, put) == (True, [(right, b"abcdefgh")])
    wrong = Piece(right, put=lambda shard, data: put.append((shard, bytes(data))))
    wrong.take("a", 0, memoryview(b"abcdefgX"))
    wrong.store()
    assert (wrong.stored, len(put)) == (False, 1)


def test_a_piece_says_why_it_could_not_be_stored() -> None:
    def put(shard: Shard, data: memoryview) -> None:
        raise NodeError(Code.STO_FULL, "There is no room.")

    piece = Piece(Shard(0, 0, 8, blake3(b"abcdefgh").digest()), put=put)
    piece.take("a", 0, memoryview(b"abcdefgh"))
    piece.store()
    assert isinstance(piece.stored, NodeError) and piece.stored.code is Code.STO_FULL
