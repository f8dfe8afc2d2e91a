"""A shard that is coming: its bytes so far, hashed as they come, and who sent them."""

from collections.abc import Callable

from blake3 import blake3

from protocol.errors import Code, NodeError
from shardcast import limits
from shardcast.manifest import Shard


class Piece:
    """One shard in memory, filled from its beginning.

    A carrier writes into `room`, says how far it came by `advance`, and calls `store` when it is whole; that may happen
    in another thread, one at a time. What lies below `have` never changes again, so others may read it meanwhile.

    Args:
        shard: What it is to become.
        spare: Memory of earlier pieces; new memory costs as much as filling it.
        put: Stores the bytes of a shard that is right.

    Attributes:
        shard: What it is to become.
        have: Bytes that are there.
        senders: Who sent them.
        counted: Bytes of which somebody took note, who may be behind.
        stored: Whether it is right and was stored, or why it could not be; None before `store`.
        verdict: Whether the hash agreed; None until that is known. False, too, for what was dropped unfinished.
    """

    __slots__ = (
        "_data",
        "_hash",
        "_put",
        "_spare",
        "counted",
        "have",
        "senders",
        "shard",
        "stored",
        "verdict",
    )

    def __init__(
        self,
        shard: Shard,
        spare: list[bytearray] | None = None,
        put: Callable[[Shard, memoryview], None] = lambda shard, data: None,
    ) -> None:
        self.shard = shard
        self._put = put
        self._hash = blake3()
        self._spare = spare if spare is not None else []
        self.have = self.counted = 0
        self.senders: set[str] = set()
        self.stored: bool | NodeError | None = None
        self.verdict: bool | None = None
        self._data = bytearray()

    @property
    def whole(self) -> bool:
        """Whether every byte is there, right or wrong."""
        return self.have == self.shard.size

    @property
    def data(self) -> memoryview:
        """The bytes that are there."""
        return memoryview(self._data)[: self.have]

    @property
    def room(self) -> memoryview:
        """Where the missing bytes go. The memory is taken when this is first asked for."""
        if len(self._data) != self.shard.size:
            fits = bool(self._spare) and len(self._spare[-1]) == self.shard.size
            self._data = self._spare.pop() if fits else bytearray(self.shard.size)
        return memoryview(self._data)[self.have :]

    def advance(self, count: int) -> None:
        """Say that the next `count` bytes are there."""
        self._hash.update(memoryview(self._data)[self.have : self.have + count])
        self.have += count

    def store(self) -> None:
        """Store the bytes if they are all there and right. Blocking; `stored` says what came of it."""
        right = self.whole and self._hash.digest() == self.shard.digest
        try:
            if right:
                self._put(self.shard, self.data)
            self.stored = right
        except NodeError as error:
            self.stored = error

    def give_back(self) -> None:
        """Leave the memory to later pieces, unless somebody still looks at it."""
        data, self._data = self._data, bytearray()
        try:
            data.append(data.pop())
        except (BufferError, IndexError):
            return
        if len(self._spare) < limits.PARALLEL:
            self._spare.append(data)

    def take(self, holder: str, offset: int, data: memoryview) -> None:
        """Copy bytes in that came elsewhere first.

        Raises:
            NodeError: SHC_BAD_SHARD, when they are not the next ones.
        """
        if offset != self.have or not 0 < len(data) <= self.shard.size - offset:
            raise wrong(holder, f"it sends other bytes of shard {self.shard.index} than were due")
        self.room[: len(data)] = data
        self.advance(len(data))


def wrong(holder: str, why: str) -> NodeError:
    """What is said of a holder that sends something wrong."""
    return NodeError(Code.SHC_BAD_SHARD, f"{holder} is left: {why}.", peer=holder)
