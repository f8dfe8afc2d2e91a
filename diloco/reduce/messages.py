"""What members pull from one another during a round."""

from protocol.messages import field, message, request


@message("reduce.header", version=1, max_bytes="2 KiB", rate="2000/s", audience="member")
class Header:
    """An owner's signed word on one reduced chunk: the statement that makes a wrong byte evidence.

    Attributes:
        epoch: Epoch of the round.
        round: The round.
        attempt: The attempt it was reduced in.
        ownership: Number of the reassignment under which the sender owns it, 0 for the first partition.
        chunk: Index in the chunk grid.
        included: Bit i set: contributor i of the roster is in it.
        digest: BLAKE3 of the encoded mean (32 bytes).
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    ownership: int = field(4)
    chunk: int = field(5)
    included: bytes = field(6, max_bytes=512)
    digest: bytes = field(7, max_bytes=32)


@message("reduce.frame", version=1, max_bytes="8 MiB", rate="5000/s", audience="member", plane="bulk")
class Frame:
    """One encoded chunk.

    Attributes:
        chunk: Index in the chunk grid.
        data: Encoded bytes.
        proof: For a contribution: Merkle path to the root in its sender's Ready.
        header: For a reduced chunk: the owner's ``Header`` (envelope bytes).
    """

    chunk: int = field(1)
    data: bytes = field(2, max_bytes="7 MiB")
    proof: tuple[bytes, ...] = field(3, default=(), max_items=64)
    header: bytes = field(4, default=b"", max_bytes=4096)


@request(
    "reduce.pull-contribution", version=1, max_bytes="256 KiB", rate="200/s", timeout="10 min",
    replies=Frame, stream=True, plane="bulk",
)  # fmt: skip
class PullContribution:
    """Asks a contributor for chunks of its frozen contribution to a round, in this order."""

    epoch: int = field(1)
    round: int = field(2)
    chunks: tuple[int, ...] = field(3, max_items=65536)


@request(
    "reduce.pull-reduced", version=1, max_bytes="256 KiB", rate="200/s", timeout="10 min",
    replies=Frame, stream=True, plane="bulk",
)  # fmt: skip
class PullReduced:
    """Asks for reduced chunks of an attempt, in this order.

    Attributes:
        wait: Whether the answer waits for chunks that are still being reduced; otherwise they are skipped.
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    chunks: tuple[int, ...] = field(4, max_items=65536)
    wait: bool = field(5, default=True)


@request(
    "reduce.pull-named", version=1, max_bytes="4 MiB", rate="200/s", timeout="10 min",
    replies=Frame, stream=True, plane="bulk",
)  # fmt: skip
class PullNamed:
    """Asks for reduced chunks of a round by their digests; what the peer does not hold is skipped.

    Attributes:
        digests: BLAKE3 digests, 32 bytes each, of the chunks in ``chunks``.
    """

    epoch: int = field(1)
    round: int = field(2)
    chunks: tuple[int, ...] = field(3, max_items=65536)
    digests: tuple[bytes, ...] = field(4, max_items=65536)
