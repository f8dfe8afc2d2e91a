"""What a client asks of a way by which shards come, gRPC or HTTP."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from shardcast.piece import Piece


@dataclass(frozen=True, slots=True)
class Arrival:
    """A piece grew.

    Attributes:
        index: The shard's.
        missing: The holder does not have this shard and went on with the next.
        whole: All its bytes are there, and the carrier had it stored.
    """

    index: int
    missing: bool = False
    whole: bool = False


class Carrier(Protocol):
    """A way to fetch the shards of one object from its holders.

    Attributes:
        lanes: How many draws from one holder may be under way at once.
        batch: How many shards one draw may have.
    """

    lanes: int
    batch: int

    def draw(
        self, holder: str, pieces: Sequence[Piece]
    ) -> AbstractAsyncContextManager[AsyncIterator[Arrival]]:
        """Ask a holder for the missing bytes of the pieces, in this order, put them there as they come, and store them.

        The call ends when the context is left, however it is left.

        Raises:
            NodeError: While iterating: SHC_BAD_SHARD for a holder that sends something else; SHC_BUSY or NET_RATE for
                one that is to be asked again later; others as they come.
        """
        ...
