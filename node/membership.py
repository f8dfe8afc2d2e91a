"""Whom the records on the members' shelf make members of the run, and what the operator admitted each for."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from diloco.member.admission import lets_enter, read_admission
from protocol.directory import PeerRecord
from protocol.envelope import Sealed
from protocol.errors import NodeError
from protocol.identity import verify
from protocol.units import PeerId, RunId

_verify = lru_cache(maxsize=4096)(verify)
"""The same admissions are looked at each second: a signature is verified once."""


@dataclass(frozen=True)
class Sorted:
    """Records by peer.

    Attributes:
        members: Of members of the run.
        lapsed: Of those who need another admission to enter it again.
    """

    members: dict[PeerId, PeerRecord]
    lapsed: dict[PeerId, PeerRecord]


def sort(
    records: Iterable[Sealed[PeerRecord]],
    run: RunId,
    operator: PeerId,
    inside: frozenset[str] | None,
    now: float,
) -> Sorted:
    """Judge the records by the admissions that they show.

    Args:
        records: Of the members' shelf, verified.
        run: The run.
        operator: Its operator.
        inside: Who takes part already, whatever the clock says; None where everybody may.
        now: Unix seconds as the peers see them.
    """
    members: dict[PeerId, PeerRecord] = {}
    lapsed: dict[PeerId, PeerRecord] = {}
    for record in records:
        peer = record.sender
        if record.message.run != run:
            continue
        with suppress(NodeError):
            admission = read_admission(record.message.admission, run, operator, peer, verifier=_verify)
            stands = inside is None or peer in inside or lets_enter(
                admission, run, operator, now, verifier=_verify
            )  # fmt: skip
            (members if stands else lapsed)[peer] = record.message
    return Sorted(members, lapsed)


@lru_cache(maxsize=4096)  # asked for each message that is for one role alone
def given_roles(admission: bytes, run: RunId, operator: PeerId, peer: PeerId) -> tuple[str, ...]:
    """What the operator admitted a peer for, whatever its record says."""
    try:
        return read_admission(admission, run, operator, peer, verifier=_verify).message.roles
    except NodeError:
        return ()
