"""What happens to the round machine (events) and what it asks for (effects). Both are plain frozen data."""

from dataclasses import dataclass

from diloco.rounds.certificate import Certified
from diloco.rounds.evidence import Proof
from diloco.rounds.records import Order
from diloco.rounds.roster import Plan
from diloco.rounds.statements import AskReset, Close, Pass, Proposal, Rate, Ready, Vote
from diloco.rounds.values import ReducedChunk
from protocol.envelope import Sealed

Statement = Ready | Proposal | Close | Vote | Pass | AskReset


@dataclass(frozen=True)
class Contribution:
    """A frozen contribution as the machine knows it; the bytes stay at the rim.

    Attributes:
        tokens: Tokens trained on; 0 when the member has nothing to give.
        samples: Sample positions trained on, from the start of the lease.
        commitment: Merkle root over the encoded chunks, empty when nothing.
        norms: Squared L2 norm per chunk.
    """

    tokens: int = 0
    samples: int = 0
    commitment: bytes = b""
    norms: tuple[float, ...] = ()


# ---- events


@dataclass(frozen=True)
class StateReady:
    """The outer state of a round is in memory and has this digest."""

    round: int
    base: bytes


@dataclass(frozen=True)
class Trained:
    """The contribution of the lease that starts there is frozen and encoded."""

    lease_start: int
    contribution: Contribution


@dataclass(frozen=True)
class Arrived:
    """A statement whose envelope has been verified, from a peer or from oneself."""

    sealed: Sealed[Statement]


@dataclass(frozen=True)
class Reduced:
    """The leader holds every reduced chunk of an attempt, durably."""

    epoch: int
    round: int
    attempt: int
    chunks: tuple[ReducedChunk, ...]


@dataclass(frozen=True)
class Held:
    """Every byte that a value names is held durably and passed this member's own checks."""

    value: bytes


@dataclass(frozen=True)
class Unheld:
    """The bytes that a value names cannot be had, or fail the checks."""

    value: bytes
    reason: str


@dataclass(frozen=True)
class Decision:
    """Someone showed a certified value that follows the tip; it has been verified."""

    certified: Certified


@dataclass(frozen=True)
class OrderCame:
    """An operator's order, its envelope verified; this member's next Ready shows it."""

    order: Sealed[Order]


@dataclass(frozen=True)
class ResetCame:
    """The operator began a new epoch; the reset has been verified.

    Attributes:
        certified: The reset.
        root: Whether the operator's root key signed it, and no delegate.
        behind: Links of the chain that lead to it from the last one that this member has, where it is on another
            side of a fork.
    """

    certified: Certified
    root: bool = True
    behind: tuple[Certified, ...] = ()


@dataclass(frozen=True)
class RivalCame:
    """Someone showed another certificate or another reset for a place in the chain; it has been verified."""

    certified: Certified


@dataclass(frozen=True)
class TwinSeen:
    """Another process with this member's key is alive.

    Attributes:
        boot: Its boot nonce.
        started: When it started, Unix milliseconds.
    """

    boot: bytes
    started: int


@dataclass(frozen=True)
class EvidenceCame:
    """Someone showed evidence; it has been verified."""

    proof: Proof


@dataclass(frozen=True)
class Observed:
    """What this member found out about others, in place of what it said before; its next Ready says it.

    Attributes:
        rates: How fast their contributions came.
        unshown: Owners that did not show what they had averaged.
        convicted: Peers against whom there is verified evidence.
    """

    rates: tuple[Rate, ...] = ()
    unshown: tuple[str, ...] = ()
    convicted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gone:
    """A peer is believed dead: connection refused, or silent for too long."""

    peer: str


@dataclass(frozen=True)
class Seen:
    """A peer gave a sign of life."""

    peer: str


@dataclass(frozen=True)
class Leave:
    """The operator of this node asks it to drain."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = (
    StateReady
    | Trained
    | Arrived
    | Reduced
    | Held
    | Unheld
    | Decision
    | OrderCame
    | ResetCame
    | RivalCame
    | TwinSeen
    | EvidenceCame
    | Observed
    | Gone
    | Seen
    | Leave
    | Tick
)

# ---- effects


@dataclass(frozen=True)
class Persist:
    """Write promise and vote to disk (fsync) before anything after it is carried out."""

    epoch: int
    round: int
    promised: int
    voted_attempt: int
    voted_value: bytes
    voted_close: bytes


@dataclass(frozen=True)
class Say:
    """Sign a statement and give it to all members, oneself included; repeat it until the round is decided."""

    body: Statement


@dataclass(frozen=True)
class Reduce:
    """Begin the reduce of a free proposal."""

    epoch: int
    round: int
    attempt: int
    leader: str
    plan: Plan


@dataclass(frozen=True)
class Abandon:
    """Stop the reduce of earlier attempts of this round."""


@dataclass(frozen=True)
class Fetch:
    """Get and check every byte a value names, then report ``Held`` or ``Unheld``.

    Attributes:
        value: Encoded value.
        plan: The plan it was recomputed from; None where this member has not seen the proposal that led to it.
    """

    value: bytes
    plan: Plan | None


@dataclass(frozen=True)
class Commit:
    """The round is decided: store the certificate, then apply.

    Attributes:
        certified: Value and votes.
        spent: Whether this member's contribution is in it, so that a new one is due.
    """

    certified: Certified
    spent: bool


@dataclass(frozen=True)
class Renew:
    """A new epoch begins here: store the reset, and restore the state that it names where this member has another.

    Attributes:
        certified: The reset.
        behind: What is to be stored before it, in place of this member's own links since they parted.
    """

    certified: Certified
    behind: tuple[Certified, ...] = ()


@dataclass(frozen=True)
class Halt:
    """The chain has forked: keep the rival, show both sides to everyone, decide nothing until a reset (rules 15, 17).

    Attributes:
        reason: ``two-certificates`` or ``two-resets``.
        rival: The other side.
    """

    reason: str
    rival: Certified


@dataclass(frozen=True)
class Stop:
    """A younger process has this member's key: this one ends and says so (rule 9)."""


@dataclass(frozen=True)
class Answer:
    """A peer spoke of a decided round: send it the certificates from that round on."""

    peer: str
    epoch: int
    round: int


@dataclass(frozen=True)
class CatchUp:
    """A peer spoke of a later round or epoch: ask it for the certificates since."""

    peer: str


@dataclass(frozen=True)
class Resync:
    """A quorum reports another base: fetch the state that has this digest, then report ``StateReady``."""

    base: bytes


@dataclass(frozen=True)
class Accuse:
    """Somebody signed what no honest member can have signed: keep the evidence and show it to everyone (rule 16)."""

    proof: Proof


@dataclass(frozen=True)
class Note:
    """Something worth a line in the event log."""

    kind: str
    fields: tuple[tuple[str, object], ...] = ()


Effect = (
    Persist
    | Say
    | Reduce
    | Abandon
    | Fetch
    | Commit
    | Renew
    | Answer
    | CatchUp
    | Resync
    | Accuse
    | Halt
    | Stop
    | Note
)
