"""Positions that move from one trainer to another: which are wanted unforeseen, and which files hold them. Pure."""

from collections.abc import Collection, Sequence

from rl.orchestration.books import Wanted
from rl.orchestration.rows import File
from rl.orchestration.state import State


def moved(before: Sequence[Wanted], state: State) -> tuple[int, ...]:
    """The positions that this trainer needs, did not foresee and has no file of: another one may have them made.

    Args:
        before: What it needed by the value before; nothing where it had none.
        state: Its state by the newest value.
    """
    foreseen = {each.position for each in before}
    last = before[-1].round if before else None
    held = state.holders()
    return tuple(
        each.position
        for each in state.wanted
        if each.position not in foreseen
        and (last is None or each.round <= last)
        and not isinstance(held.get(each.position), File)
    )


def holding(state: State, positions: Collection[int]) -> tuple[bytes, ...]:
    """Digests of the files here that hold any of some positions; accepted ones first, then those of newer policies."""
    wanted = set(positions)
    files = [
        file
        for file in state.kept.files.values()
        if file.state in ("accepted", "waiting")
        and not file.planted
        and any(group.position in wanted for group in file.groups)
    ]
    files.sort(key=lambda file: (file.state != "accepted", -file.version, file.key))
    return tuple(file.digest for file in files)
