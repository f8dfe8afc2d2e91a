"""The frozen contribution on disk: a node that restarts offers it again, and trains nothing twice (rule 2).

One file, which appears whole or not at all: the length of a head, the head (what is said of the contribution, and what
it was trained on, as JSON), the encoded chunks, and the hash of all that.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path

from blake3 import blake3

from diloco import merkle
from diloco.reduce.contribution import Frozen
from diloco.rounds.events import Contribution
from diloco.rounds.recovery import Kept
from diloco.rounds.values import Lease, Span
from protocol.files import write_whole

_LENGTH = struct.Struct("<I")
_HASH = 32
_MOST_HEAD = 1 << 20


class ContributionStore:
    """The last frozen contribution of one member.

    Args:
        path: The file.
        sizes: Encoded bytes per chunk of the grid.
    """

    def __init__(self, path: Path, sizes: Sequence[int]) -> None:
        self._path, self._sizes = path, tuple(sizes)

    def write(self, lease: Lease, round_number: int, frozen: Frozen) -> None:
        """Store a contribution durably in place of the one before.

        Raises:
            NodeError: ``STO_FULL``, ``STO_UNWRITABLE`` or ``STO_CORRUPT``.
        """
        facts = frozen.facts
        said = {
            "peer": lease.peer,
            "runs": [(lease.start, lease.count), *((span.start, span.count) for span in lease.more)],
            "size": lease.size,
            "round": round_number,
            "tokens": facts.tokens,
            "samples": facts.samples,
            "norms": facts.norms,
        }
        head = json.dumps(said).encode()
        hasher = blake3(head)
        for chunk in frozen.chunks:
            hasher.update(chunk)
        write_whole(self._path, (_LENGTH.pack(len(head)), head, *frozen.chunks, hasher.digest()))

    def read(self) -> tuple[Kept, Frozen] | None:
        """The last contribution; None where there is none, or it is damaged: then it is trained again."""
        try:
            data = self._path.read_bytes()
            (length,) = _LENGTH.unpack_from(data)
            begin = _LENGTH.size + length
            if length > _MOST_HEAD or len(data) != begin + sum(self._sizes) + _HASH:
                return None
            if blake3(data[_LENGTH.size : -_HASH]).digest() != data[-_HASH:]:
                return None
        except (OSError, struct.error):
            return None
        chunks: list[bytes] = []
        for size in self._sizes:
            chunks.append(data[begin : begin + size])
            begin += size
        said = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        (start, count), *more = said["runs"]
        spans = tuple(Span(start=first, count=size) for first, size in more)
        lease = Lease(peer=said["peer"], start=start, count=count, more=spans, size=said["size"])
        leaves = tuple(merkle.leaf(index, chunk) for index, chunk in enumerate(chunks))
        facts = Contribution(said["tokens"], said["samples"], merkle.root(leaves), tuple(said["norms"]))
        return Kept(lease, said["round"], facts), Frozen(tuple(chunks), leaves, facts)
