"""Admissions: who may take part in a run, and with a seat or without; signed by the operator's key."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from blake3 import blake3

from diloco.rounds.certificate import Certified
from diloco.rounds.rules import Seat
from diloco.rounds.values import Value
from protocol.delegation import Authority, authority
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
        expires_at: Unix seconds after which it no longer lets anyone enter; who is in stays in. 0 for never.
        anchor_epoch: Epoch of the anchor.
        delegation: The sender's delegation (envelope bytes); empty where the root key signs.
    """

    peer: str = field(1, max_bytes=64)
    roles: tuple[str, ...] = field(2, max_items=16)
    seat: bool = field(3)
    anchor_round: int = field(4, kind="sint64", default=-2)
    anchor_value: bytes = field(5, default=b"", max_bytes=32)
    expires_at: int = field(6, default=0)
    anchor_epoch: int = field(7, default=0)
    delegation: bytes = field(8, default=b"", max_bytes=1024)


TOLERANCE = timedelta(minutes=10)
"""So far clocks may differ when an expiry is judged."""


@dataclass(frozen=True)
class Anchor:
    """A certified value that the operator has signed: a chain that contradicts it is not the run's.

    Attributes:
        epoch: Its epoch.
        round: Its round; -1 for the start record.
        digest: Its digest.
    """

    epoch: int
    round: int
    digest: bytes

    def reached(self, tip: Value) -> bool:
        """Whether a chain with this tip has come to the anchor; a later epoch, which the operator signed, voids it."""
        return (tip.epoch, tip.round) >= (self.epoch, self.round)

    def contradicts(self, certified: Certified) -> bool:
        """Whether a value stands in the anchor's place and is another one."""
        here = (certified.value.epoch, certified.value.round) == (self.epoch, self.round)
        return here and certified.digest != self.digest


def anchor_in(admission: Admission) -> Anchor | None:
    """The anchor that an admission names; none before the run has begun."""
    if not admission.anchor_value:
        return None
    return Anchor(admission.anchor_epoch, admission.anchor_round, admission.anchor_value)


def lets_enter(
    sealed: Sealed[Admission], run: RunId, operator: PeerId, now: float, *, verifier: Verifier = verify
) -> bool:
    """Whether a verified admission lets its peer enter: neither it nor the right of its signer has expired.

    Args:
        sealed: The admission, as :func:`read_admission` gives it.
        run: The run.
        operator: The run's operator.
        now: Unix seconds as the peers see them.
        verifier: Checks signatures.
    """
    end = sealed.message.expires_at
    if end and now > end + TOLERANCE.total_seconds():
        return False
    right = right_of(sealed, run, operator, verifier=verifier)
    return right is None or not right.expired(now)


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
    right = right_of(sealed, run, operator, verifier=verifier)
    if right is None or sealed.message.peer != peer or sealed.recipient is not None:
        raise NodeError(
            Code.RND_NOT_ADMITTED, f"The admission shown by {peer} is not one of this run's operator for it."
        )
    return sealed


def right_of(
    sealed: Sealed[Admission], run: RunId, operator: PeerId, *, verifier: Verifier = verify
) -> Authority | None:
    """By what right an admission was signed: a delegate's needs one for each of its parts."""
    said = sealed.message
    scopes = ["admit"] + ["seat"] * said.seat + ["anchor"] * bool(said.anchor_value)
    found = [
        authority(sealed.sender, said.delegation, scope, root=operator, run=run, verifier=verifier)
        for scope in scopes
    ]
    return None if None in found else found[0]


def seats(
    run: RunId, operator: PeerId, *, verifier: Verifier = verify
) -> Callable[[bytes, str], Seat | None]:
    """A pure function from admission bytes and peer to the seat they give; None when they give nothing.

    Who is admitted for something else than training has no part in rounds.

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
        if "trainer" not in sealed.message.roles:
            return None
        right = right_of(sealed, run, operator, verifier=verifier)
        return Seat(sealed.message.seat, blake3(raw).digest(), right.number if right else 0)

    return seat_of
