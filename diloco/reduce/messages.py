"""What members pull from one another during a round."""

from protocol.messages import field, message, part, request


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
        basis: Digest of the ``Basis`` on which it rests (32 bytes).
    """

    epoch: int = field(1)
    round: int = field(2)
    attempt: int = field(3)
    ownership: int = field(4)
    chunk: int = field(5)
    included: bytes = field(6, max_bytes=512)
    digest: bytes = field(7, max_bytes=32)
    basis: bytes = field(8, default=b"", max_bytes=32)


@part
class Input:
    """One contributor of a reduce.

    Attributes:
        peer: Who.
        weight: Its weight.
        clip: Factor of its contribution.
        commitment: Merkle root of its contribution (32 bytes).
    """

    peer: str = field(1, max_bytes=64)
    weight: int = field(2)
    clip: float = field(3)
    commitment: bytes = field(4, max_bytes=32)


@message("reduce.basis", version=1, max_bytes="1 MiB", rate="20/s", audience="member")
class Basis:
    """What determines every reduced chunk of an attempt, apart from who is in it. Never sent by itself.

    Attributes:
        inputs: The roster, in its order.
    """

    inputs: tuple[Input, ...] = field(1, max_items=4096)


@message("reduce.accusation", version=1, max_bytes="1 KiB", rate="20/s", audience="member")
class Accusation:
    """The sender holds evidence against a member and shows it to whoever pulls it.

    Attributes:
        accused: Who signed the statement that the evidence is about.
        statement: BLAKE3 of that statement's envelope (32 bytes).
        chunk: The chunk that it is about.
    """

    accused: str = field(1, max_bytes=64)
    statement: bytes = field(2, max_bytes=32)
    chunk: int = field(3)


@message("reduce.exhibit", version=1, max_bytes="8 MiB", rate="5000/s", audience="member", plane="bulk")
class Exhibit:
    """A piece of what shows whether a member's signature tells the truth.

    First comes one with the statement, then one for each contribution that it is about, in roster order.

    Attributes:
        statement: The signed ``Header`` or ``Ready`` (envelope bytes).
        basis: For a header: the encoded ``Basis``.
        chunk: For a contribution: index in the chunk grid.
        data: Its encoded bytes.
        proof: Merkle path to its sender's commitment.
    """

    statement: bytes = field(1, default=b"", max_bytes="4200 KiB")
    basis: bytes = field(2, default=b"", max_bytes="1 MiB")
    chunk: int = field(3, default=0)
    data: bytes = field(4, default=b"", max_bytes="7 MiB")
    proof: tuple[bytes, ...] = field(5, default=(), max_items=64, max_bytes=32)


@request(
    "reduce.pull-exhibits", version=1, max_bytes="1 KiB", rate="200/s", timeout="10 min",
    replies=Exhibit, stream=True, plane="bulk",
)  # fmt: skip
class PullExhibits:
    """Asks the owner of a chunk for what it averaged, or an accuser for its evidence.

    Attributes:
        statement: BLAKE3 of the statement's envelope (32 bytes).
        chunk: The chunk.
    """

    statement: bytes = field(1, max_bytes=32)
    chunk: int = field(2)


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


@request(
    "reduce.pull-signed", version=1, max_bytes="256 KiB", rate="200/s", timeout="10 min",
    replies=Frame, stream=True, plane="bulk",
)  # fmt: skip
class PullSigned:
    """Asks for signed reduced chunks of any attempt that rest on a basis; what the peer does not hold is skipped.

    Attributes:
        basis: Digest of the ``Basis`` (32 bytes).
    """

    basis: bytes = field(1, max_bytes=32)
    chunks: tuple[int, ...] = field(2, max_items=65536)
