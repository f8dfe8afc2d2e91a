"""Leaving in good order (rule 14): the lease is cut short and given, a value names the leaver, a quorum has it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from diloco.member.messages import Goodbye
from diloco.member.outer import Outer
from diloco.member.presence import Presence
from diloco.member.setting import Setting
from diloco.member.telling import belongs
from diloco.member.training import Training
from diloco.rounds.events import Event, Leave
from diloco.rounds.state import State
from protocol.errors import NodeError
from protocol.units import PeerId

_LOOK = 0.1
_GOODBYE = timedelta(seconds=2)


async def leave(
    setting: Setting,
    presence: Presence,
    training: Training,
    outer: Outer,
    *,
    state: Callable[[], State | None],
    post: Callable[[Event], None],
) -> None:
    """Drain within the bound that the genesis sets, then say goodbye to everyone."""
    bound = setting.genesis.sections.deadline.drain.total_seconds()
    try:
        async with asyncio.timeout(bound):
            await _drain(presence, training, outer, state, post)
    except TimeoutError:
        setting.emit("drain.cut", reason=f"The last round was not decided within {bound:.0f} s.")
    await asyncio.gather(*(_goodbye(setting, peer) for peer in setting.peers()))
    setting.emit("goodbye")


async def _drain(
    presence: Presence,
    training: Training,
    outer: Outer,
    state: Callable[[], State | None],
    post: Callable[[Event], None],
) -> None:
    now = state()
    if now is None or now.finished:
        return
    post(Leave())
    training.cut_short()
    await asyncio.sleep(0)
    while (now := state()) is not None and belongs(now) and not now.finished:
        outer.work()
        await asyncio.sleep(_LOOK)
    assert now is not None
    wanted = now.round
    while (now := state()) is not None and not _acknowledged(now, presence, wanted):
        await asyncio.sleep(_LOOK)


def _acknowledged(state: State, presence: Presence, round_number: int) -> bool:
    """Whether a quorum of the electorate has the certificate and bytes of every round before ``round_number``.

    Where nobody stays in the electorate there is none to wait for: then all have to have them that live and stay.
    """
    if state.finished:
        return True
    have = {peer for peer, beat in presence.heard.items() if beat.round >= round_number}
    if state.value.stopped:
        return not presence.heard.keys() - presence.dead - set(state.value.left) - have
    return state.is_quorum(have | {state.me})


async def _goodbye(setting: Setting, peer: PeerId) -> None:
    try:
        await setting.endpoint.send(peer, Goodbye(reason="stopped by its operator"), timeout=_GOODBYE)
    except NodeError:
        return  # who cannot be told will find out
