"""What the genesis fixes about rounds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diloco.rounds.evidence import Proof
from diloco.rounds.records import Order
from diloco.rounds.statements import Close, Ready
from protocol.envelope import Sealed

if TYPE_CHECKING:  # it imports numerics, which who only follows rounds does not need
    from diloco.aggregate import Aggregation


@dataclass(frozen=True)
class Seat:
    """What an admission says about its holder, as far as rounds need it.

    Attributes:
        seated: Whether the holder may vote.
        digest: Hash of the admission; newcomers enter in its order.
        delegation: Number of the delegation by which it was signed; 0 for the root key.
    """

    seated: bool
    digest: bytes
    delegation: int = 0


@dataclass(frozen=True)
class Rules:
    """What the genesis fixes about rounds, and the verifiers that the pure functions need.

    Attributes:
        run: Run id.
        rounds: Rounds after which the run is complete; 0 for no end.
        chunk_sizes: Values per chunk of the grid.
        samples: Sample positions that a member is leased per round.
        samples_per_step: Samples of one inner step of a member.
        tokens_per_sample: Tokens in one sample.
        weight_cap: Most weight of one contributor, as a multiple of the roster's median.
        open_share: Most weight of all members without a seat together, as a share of the round's.
        max_voters: Most seats that vote.
        ghost_rounds: Values for which a newcomer follows before it contributes.
        unseal_ready: Verifies the envelope of a Ready and decodes it; raises ``NodeError``.
        unseal_close: Verifies the envelope of a Close and decodes it; raises ``NodeError``.
        unseal_order: Verifies the envelope of an operator's order and decodes it; raises ``NodeError``.
        seat_of: Verifies an admission for a peer; None when it is not one.
        check_evidence: Verifies encoded evidence; raises ``NodeError``.
        accepts: Whether the operator may give a parameter this value.
        delegation_of: Number of the delegation by which a verified order was signed; 0 for the root key.
        aggregation: How a chunk's contributions become one.
        fragments: Parts of the chunk grid that take turns: each round decides the update of one (it is its slot).
        timed: Whether training ends after a fixed time; then each member has its own lease, of at most ``samples``.
    """

    run: str
    rounds: int
    chunk_sizes: tuple[int, ...]
    samples: int
    samples_per_step: int
    tokens_per_sample: int
    weight_cap: int
    open_share: float
    max_voters: int
    ghost_rounds: int
    unseal_ready: Callable[[bytes], Sealed[Ready]]
    unseal_close: Callable[[bytes], Sealed[Close]]
    unseal_order: Callable[[bytes], Sealed[Order]]
    seat_of: Callable[[bytes, str], Seat | None]
    check_evidence: Callable[[bytes], Proof]
    accepts: Callable[[str, str], bool]
    delegation_of: Callable[[Sealed[Order]], int] = lambda order: 0
    aggregation: "Aggregation" = "mean"
    fragments: int = 1
    timed: bool = False

    def slot(self, round_number: int) -> range:
        """The chunks of the grid whose update a round decides; the base covers all of them."""
        count, turn = len(self.chunk_sizes), round_number % self.fragments
        return range(turn * count // self.fragments, (turn + 1) * count // self.fragments)
