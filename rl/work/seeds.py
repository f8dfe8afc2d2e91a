"""Seeds that a worker cannot choose: functions of the policy version's beacon, the position and who works.

The beacon is that of the value that certified the version (``diloco/rounds/beacon.py``), so nobody knows a seed before
the version exists, and anybody can recompute it afterwards.
"""

from blake3 import blake3

from protocol.units import Digest, PeerId

_TASK = "intellect-node 2026 rl task seed 1"
_TOKENS = "intellect-node 2026 rl token seed 1"


def task_seed(beacon: Digest, position: int) -> int:
    """The seed of a position's task (63 bits): the same for every worker."""
    digest = blake3(beacon + position.to_bytes(8), derive_key_context=_TASK).digest()
    return int.from_bytes(digest[:8]) >> 1


def token_seed(beacon: Digest, position: int, worker: PeerId, index: int) -> bytes:
    """The seed of the noise that one rollout's tokens are drawn with (32 bytes).

    Args:
        beacon: Beacon of the policy version that the work was leased for.
        position: The position.
        worker: Who was leased it.
        index: The rollout's place in its group.
    """
    place = beacon + position.to_bytes(8) + index.to_bytes(4) + worker.encode()
    return blake3(place, derive_key_context=_TOKENS).digest()
