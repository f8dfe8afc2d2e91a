"""Reducing lost chunks again, where nobody holds the bytes that a voted value names (rule 3).

Contributions are frozen and their reduction is a pure function, so the same members give the same bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from blake3 import blake3

from diloco.reduce.contribution import Frozen
from diloco.reduce.evidence import basis_of
from diloco.reduce.gathering import Attempt, Gathering, Setting
from diloco.reduce.messages import Frame, Header
from diloco.rounds.roster import Plan, included
from diloco.rounds.statements import Ready
from diloco.rounds.values import Value
from protocol.envelope import Sealed
from protocol.units import RunId


async def rebuild(
    setting: Setting,
    value: Value,
    missing: Sequence[int],
    readys: Mapping[str, Ready],
    frozen: Frozen | None,
    patience: float,
) -> dict[int, bytes]:
    """Chunks of a value, reduced again and equal to what it names; without those of which a contribution is lost.

    Args:
        setting: The member's setting.
        value: The value.
        missing: Which chunks.
        readys: Of the round, with the contributors' commitments.
        frozen: This member's own contribution to the round, if it has one.
        patience: Seconds that each contributor has to send its chunks.
    """
    found: dict[int, bytes] = {}

    def done(frame: Frame, header: Header) -> None:
        if blake3(frame.data).digest() == value.chunks[frame.chunk].digest:
            found[frame.chunk] = frame.data

    by_members: dict[bytes, list[int]] = {}
    for chunk in missing:
        by_members.setdefault(value.chunks[chunk].included, []).append(chunk)
    for chunks in by_members.values():
        some = value.chunks[chunks[0]]
        roster = tuple(entry for place, entry in enumerate(value.roster) if included(some, place))
        if any(entry.peer not in readys or not readys[entry.peer].commitment for entry in roster):
            continue
        mine = frozen if any(entry.peer == setting.me for entry in roster) else None
        plan = Plan(value.base, roster, (), readys)
        attempt = Attempt(value.epoch, value.round, 0, setting.me, plan, patience)
        unsigned = replace(
            setting,
            seal=lambda header: _unsigned(setting.me, header),
            keep=lambda number, statement, chunk, exhibits: None,
        )
        await Gathering(unsigned, attempt, sorted(chunks), 0, mine, basis_of(plan), done, lambda: None).run()
    return found


def _unsigned(me: str, header: Header) -> Sealed[Header]:
    """Nobody asked for this member's word: it may own none of these chunks, and what it made is compared, not shown."""
    return Sealed(header, me, None, b"", 0, RunId(""), 1, b"")  # type: ignore[arg-type]
