"""The operator's root key, and what it leaves to another key: named tasks, for a time, until it is revoked.

What a delegate signs carries its delegation, so whoever can verify the root's signature can verify the delegate's.
"""

from dataclasses import dataclass

from protocol.envelope import unseal
from protocol.errors import NodeError
from protocol.identity import Verifier, verify
from protocol.messages import field, message
from protocol.units import PeerId, RunId

SCOPES = ("admit", "seat", "ban", "order", "anchor", "reset")
"""What may be left to a delegate: admitting, giving seats, banning, other orders, naming anchors, resets."""

MOST_BYTES = 1024
"""Of a delegation's envelope."""


@message("run.delegation", version=1, max_bytes="512 B", rate="1/s", audience="anyone")
class Delegation:
    """The root key's word that another key may sign for it.

    Attributes:
        delegate: Whose key.
        scopes: For what, see ``SCOPES``.
        number: Delegations are numbered; revoking one revokes those before it.
        expires_at: Unix seconds after which nothing new that the delegate signs is taken.
    """

    delegate: str = field(1, max_bytes=64)
    scopes: tuple[str, ...] = field(2, max_items=8, max_bytes=16)
    number: int = field(3)
    expires_at: int = field(4)


@dataclass(frozen=True)
class Authority:
    """By what right something was signed.

    Attributes:
        number: Of the delegation; 0 for the root key itself.
        expires_at: Unix seconds; 0 for never.
    """

    number: int = 0
    expires_at: int = 0

    def expired(self, now: float) -> bool:
        """Whether nothing new may come of it."""
        return bool(self.expires_at) and now > self.expires_at


def authority(
    sender: PeerId, delegation: bytes, scope: str, *, root: PeerId, run: RunId, verifier: Verifier = verify
) -> Authority | None:
    """By what right a sender signs something for the run's operator; None if by none.

    Args:
        sender: Who signed, verified.
        delegation: The delegation that it shows (envelope bytes); empty for the root key.
        scope: What was signed, one of ``SCOPES``.
        root: The operator's root key.
        run: The run.
        verifier: Verifies signatures.
    """
    if sender == root:
        return Authority()
    if not delegation or len(delegation) > MOST_BYTES:
        return None
    try:
        sealed = unseal(delegation, run=run, expect=Delegation, verifier=verifier)
    except NodeError:
        return None
    said = sealed.message
    if sealed.sender != root or said.delegate != sender or scope not in said.scopes or said.number < 1:
        return None
    return Authority(said.number, said.expires_at)
