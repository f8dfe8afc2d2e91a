"""Every bound of the engine in one place."""

from dataclasses import dataclass
from datetime import timedelta

MAX_ID_BYTES = 128
MAX_VERSIONS = 4
"""Policy versions whose weights are in memory at once; an update waits until there is room."""


@dataclass(frozen=True)
class Limits:
    """What one engine takes on.

    Attributes:
        slots: Sequences that run at once.
        waiting: Requests that may wait for a slot.
        held_bytes: Keys and values of conversations between two turns.
        held_for: How long such a conversation is held.
    """

    slots: int = 16
    waiting: int = 1024
    held_bytes: int = 2**30
    held_for: timedelta = timedelta(minutes=5)
