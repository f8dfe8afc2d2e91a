"""What a simulated run is made of: its size, its rules, its links, and signatures by a keyed hash."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from blake3 import blake3

from diloco.rounds import evidence
from diloco.rounds.records import Order
from diloco.rounds.rules import Rules, Seat
from diloco.rounds.state import Timing
from diloco.rounds.statements import Close, Evidence, Ready
from protocol.envelope import Sealed, seal, unseal
from protocol.messages import decode
from protocol.units import PeerId, RunId

RUN = RunId("ab" * 32)
OPERATOR = PeerId("operator")


TIMING = Timing(
    floor=timedelta(seconds=1),
    most=timedelta(seconds=8),
    attempt=timedelta(seconds=4),
    longest=timedelta(seconds=40),
    grace=timedelta(milliseconds=500),
    lost=timedelta(seconds=10),
)


@dataclass(frozen=True)
class Shape:
    """The size of a run and of the world around it.

    Attributes:
        voters: Members with a seat at the start.
        others: Members without one.
        rounds: Rounds of the run; 0 for no end.
        chunks: Chunks of the grid.
        chunk_bytes: Encoded size of one.
        samples: Sample positions of a lease.
        train: Seconds that a lease takes.
        latency: Mean seconds of a message.
        bandwidth: Bytes per second that a member sends.
        silence: Seconds after which a silent peer is believed dead.
        drain: Most seconds that a leaver stays.
        ghost_rounds: Values for which a newcomer only follows.
        fragments: Parts of the grid that take turns.
        coordinators: At so many of the first voters there is a coordinator that resets by itself.
        tick: Seconds between two ticks of a member with a seat.
        slow_tick: ... and of one without.
        timing: Deadlines of the machine.
    """

    voters: int
    others: int = 0
    rounds: int = 0
    chunks: int = 6
    chunk_bytes: int = 200_000
    samples: int = 8
    train: float = 1.5
    latency: float = 0.03
    bandwidth: float = 4e6
    silence: float = 5.0
    drain: float = 40.0
    ghost_rounds: int = 0
    fragments: int = 1
    coordinators: int = 0
    tick: float = 0.5
    slow_tick: float = 0.5
    timing: Timing = TIMING


@dataclass(frozen=True)
class KeyedSigner:
    """Signs with a hash keyed by the peer's name: as good as a signature where nobody forges."""

    peer_id: PeerId

    def sign(self, data: bytes) -> bytes:
        """32 bytes that ``keyed_verify`` accepts."""
        return blake3(self.peer_id.encode() + data).digest()


def keyed_verify(peer: PeerId, data: bytes, signature: bytes) -> bool:
    """Whether ``peer``'s signer made the signature."""
    return blake3(peer.encode() + data).digest() == signature


def says(name: str, body: Any) -> Sealed[Any]:
    """Sign a statement of this run."""
    return seal(KeyedSigner(PeerId(name)), RUN, body)


class Opened:
    """Envelopes that were verified once. The same bytes are not verified again."""

    MOST = 20_000

    def __init__(self) -> None:
        self._known: dict[bytes, Sealed[Any]] = {}

    def keep(self, sealed: Sealed[Any]) -> None:
        """Remember one that was made here."""
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[sealed.raw] = sealed

    def open(self, cls: type[Any]) -> Callable[[bytes], Sealed[Any]]:
        """A function that opens envelopes of one kind of statement."""

        def opened(raw: bytes) -> Sealed[Any]:
            sealed = self._known.get(raw)
            if sealed is None or type(sealed.message) is not cls:
                sealed = unseal(raw, run=RUN, expect=cls, verifier=keyed_verify)
                self.keep(sealed)
            return sealed

        return opened


def admission_of(name: str, seated: bool) -> bytes:
    """What stands for an admission here."""
    return b"%s %s" % (b"seat" if seated else b"open", name.encode())


def seat_of(raw: bytes, peer: str) -> Seat | None:
    """Read an admission."""
    for seated in (True, False):
        if raw == admission_of(peer, seated):
            return Seat(seated, blake3(raw).digest())
    return None


def rules_of(shape: Shape, opened: Opened) -> Rules:
    """The rules of a run of this shape."""
    return Rules(
        run=RUN,
        rounds=shape.rounds,
        chunk_sizes=(shape.chunk_bytes,) * shape.chunks,
        samples=shape.samples,
        samples_per_step=2,
        tokens_per_sample=16,
        weight_cap=4,
        open_share=1 / 3,
        max_voters=31,
        ghost_rounds=shape.ghost_rounds,
        unseal_ready=opened.open(Ready),
        unseal_close=opened.open(Close),
        unseal_order=opened.open(Order),
        seat_of=seat_of,
        check_evidence=lambda raw: evidence.check(
            decode(Evidence, raw), lambda statement: unseal(statement, run=RUN, verifier=keyed_verify)
        ),
        fragments=shape.fragments,
        accepts=lambda name, text: name == "round.inner_steps" and text in ("", "2", "6"),
    )
