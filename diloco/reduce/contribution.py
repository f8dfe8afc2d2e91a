"""A member's frozen contribution to a round: encoded once, committed to, pulled by owners."""

from dataclasses import dataclass

from diloco import merkle
from diloco.codec import Codec, Floats
from diloco.layout import Grid
from diloco.norm import squared_norm
from diloco.reduce.messages import Frame
from diloco.rounds.events import Contribution


@dataclass(frozen=True)
class Frozen:
    """Encoded chunks with their commitment.

    Attributes:
        chunks: Encoded bytes per chunk of the grid.
        leaves: Merkle leaf per chunk.
        facts: What the Ready says about it.
    """

    chunks: tuple[bytes, ...]
    leaves: tuple[bytes, ...]
    facts: Contribution

    def frame(self, chunk: int) -> Frame:
        """One chunk with its proof."""
        return Frame(chunk=chunk, data=self.chunks[chunk], proof=merkle.proof(self.leaves, chunk))

    @property
    def nbytes(self) -> int:
        """Encoded size in bytes."""
        return sum(len(chunk) for chunk in self.chunks)


def freeze(gradient: Floats, grid: Grid, codec: Codec, *, tokens: int, samples: int) -> Frozen:
    """Encode a pseudo-gradient.

    Args:
        gradient: Outer minus inner parameters, flat fp32 of shape (grid.size,).
        grid: The run's chunk grid.
        codec: The run's codec.
        tokens: Tokens trained on.
        samples: Sample positions trained on.

    Raises:
        NodeError: ``TRN_NOT_FINITE``: a value is NaN, infinite or too large to be encoded.
    """
    chunks: list[bytes] = []
    norms: list[float] = []
    for part in grid.slices():
        data = codec.encode(gradient[part])
        chunks.append(data)
        norms.append(squared_norm(codec.decode(data, part.stop - part.start)))
    leaves = tuple(merkle.leaf(index, data) for index, data in enumerate(chunks))
    facts = Contribution(tokens, samples, merkle.root(leaves), tuple(norms))
    return Frozen(tuple(chunks), leaves, facts)
