"""What is known of a worker: it begins as new, earns its standing by audited files, and loses it by what is found.

Standing decides how much a worker may hold (``rl/work/leases.py``) and how much of its work is audited
(``rl/validation/draw.py``). Pure.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Standing(StrEnum):
    """How far a worker is believed."""

    NEW = "new"
    ESTABLISHED = "established"
    SUSPICIOUS = "suspicious"
    BANNED = "banned"


@dataclass(frozen=True)
class Merits:
    """How standing is earned.

    Attributes:
        to_establish: Audited files without a fault, one after the other, that make a new worker established.
        to_clear: The same for a suspicious one.
    """

    to_establish: int = 3
    to_clear: int = 8


@dataclass(frozen=True)
class Record:
    """One worker's record.

    Attributes:
        standing: See :class:`Standing`.
        clean: Audited files without a fault since the standing last changed.
        reason: Why it is suspicious or banned; a sentence.
    """

    standing: Standing = Standing.NEW
    clean: int = 0
    reason: str = ""


def after_clean_audit(record: Record, merits: Merits) -> Record:
    """The record after a file was audited and nothing was found."""
    clean = record.clean + 1
    match record.standing:
        case Standing.NEW if clean >= merits.to_establish:
            return Record(Standing.ESTABLISHED)
        case Standing.SUSPICIOUS if clean >= merits.to_clear:
            return Record(Standing.ESTABLISHED)
        case Standing.BANNED:
            return record
    return replace(record, clean=clean)


def after_doubt(record: Record, reason: str) -> Record:
    """The record after something unusual that proves nothing: all that the worker does is audited for a while."""
    return record if record.standing is Standing.BANNED else Record(Standing.SUSPICIOUS, 0, reason)


def after_fault(reason: str) -> Record:
    """The record after a verdict that no appeal has overturned: nothing more is leased or taken."""
    return Record(Standing.BANNED, 0, reason)
