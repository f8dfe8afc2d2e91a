"""How far a worker is believed: how much it may hold, and how much of its work is audited (``rl/validation/draw.py``).

The orchestrator says which of these a worker is (``rl/orchestration/state.py``).
"""

from enum import StrEnum


class Standing(StrEnum):
    """How far a worker is believed."""

    NEW = "new"
    ESTABLISHED = "established"
    SUSPICIOUS = "suspicious"
    BANNED = "banned"
