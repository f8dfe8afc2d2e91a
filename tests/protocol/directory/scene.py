"""What the directory's tests share: a name, an admission, a way to make records."""

import time
from typing import Any

from protocol.directory import PeerRecord
from protocol.envelope import Sealed, seal
from protocol.identity import Identity
from protocol.messages import field, message
from protocol.units import PeerId, RunId

NAMESPACE = "tests"
RUN = RunId("ab" * 32)


@message("tests.admission", version=1, max_bytes="1 KiB", rate="1/s", audience="operator")
class Admission:
    peer: PeerId = field(1)


def record(
    identity: Identity, *, run: RunId | None = None, lifetime: float = 60, **fields: Any
) -> Sealed[PeerRecord]:
    now = fields.pop("now", time.time())
    said = {"peer": identity.peer_id, "run": run or "", "host": "127.0.0.1", "port": 4000}
    said |= {"issued_at": now, "expires_at": now + lifetime} | fields
    return seal(identity, run, PeerRecord(**said))


def admission(operator: Identity, peer: Identity) -> bytes:
    return seal(operator, RUN, Admission(peer=peer.peer_id)).raw
