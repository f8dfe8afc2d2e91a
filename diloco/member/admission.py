"""Admissions: who may take part in a run, and with a seat or without; signed by the operator's key."""

from collections.abc import Callable
from functools import lru_cache

from blake3 import blake3

from diloco.rounds.rules import Seat
from protocol.envelope import Sealed, seal, unseal
from protocol.errors import Code, NodeError
from protocol.identity import Signer, Verifier, verify
from protocol.messages import field, message
from protocol.units import PeerId, RunId


@message("run.admission", version=1, max_bytes="4 KiB", rate="1/s", audience="anyone")
class Admission:
    """The operator's word that a peer may take part.

    Attributes:
        peer: Who is admitted.
        roles: What it may do: ``trainer`` and others.
        seat: Whether it votes once it has entered.
        anchor_round: A certified round when it was issued; -1 for the start record, -2 where there was none yet.
        anchor_value: Digest of that round's value: a chain that contradicts it is not this run's.
        expires_at: Unix seconds after which it no longer lets anyone enter; who is in stays in.
    """

    peer: str = field(1, max_bytes=64)
    roles: tuple[str, ...] = field(2, max_items=16)
    seat: bool = field(3)
    anchor_round: int = field(4, kind="sint64", default=-2)
    anchor_value: bytes = field(5, default=b"", max_bytes=32)
    expires_at: int = field(6, default=0)


def admit(operator: Signer, run: RunId, admission: Admission) -> bytes:
    """Sign an admission; its envelope bytes travel in the directory record and in a newcomer's Ready."""
    return seal(operator, run, admission).raw


def read_admission(
    raw: bytes, run: RunId, operator: PeerId, peer: PeerId, *, verifier: Verifier = verify
) -> Sealed[Admission]:
    """Verify an admission for a peer.

    Raises:
        NodeError: One of the envelope, or ``RND_NOT_ADMITTED`` when it is for someone else or not the operator's.
    """
    sealed = unseal(raw, run=run, expect=Admission, verifier=verifier)
    if sealed.sender != operator or sealed.message.peer != peer or sealed.recipient is not None:
        raise NodeError(
            Code.RND_NOT_ADMITTED, f"The admission shown by {peer} is not one of this run's operator for it."
        )
    return sealed


def seats(
    run: RunId, operator: PeerId, *, verifier: Verifier = verify
) -> Callable[[bytes, str], Seat | None]:
    """A pure function from admission bytes and peer to the seat they give; None when they give nothing.

    Expiry is not looked at: it bars entry at the directory, and a clock must not decide what a value says.
    """

    @lru_cache(maxsize=4096)
    def seat_of(raw: bytes, peer: str) -> Seat | None:
        if not raw:
            return None
        try:
            sealed = read_admission(raw, run, operator, PeerId(peer), verifier=verifier)
        except NodeError:
            return None
        return Seat(sealed.message.seat, blake3(raw).digest())

    return seat_of
