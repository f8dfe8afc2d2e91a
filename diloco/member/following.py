"""Following the chain: what others show of it and what peers that are ahead are asked for, as events."""

import asyncio
from collections.abc import Callable

from diloco.member.chain import Chain
from diloco.member.forking import Forking
from diloco.member.presence import Presence
from diloco.member.setting import Setting, Tasks
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Decision, Event, ResetCame
from diloco.rounds.state import State
from diloco.rounds.values import Decided
from protocol.errors import Code, NodeError
from protocol.units import PeerId

_MOST_ASKED = 3  # peers that are asked for certificates at the same time
_PAUSE = 0.2  # seconds before a peer is asked again


class Following:
    """Turns verified links of the chain into events.

    Args:
        setting: The member's setting.
        tasks: Where asking runs.
        chain: This member's chain.
        forking: Takes what does not follow it.
        presence: Who is ahead.
        state: The round machine's state now; None before the member has begun.
        post: Gives the machine an event.
    """

    def __init__(
        self,
        setting: Setting,
        tasks: Tasks,
        chain: Chain,
        forking: Forking,
        presence: Presence,
        *,
        state: Callable[[], State | None],
        post: Callable[[Event], None],
    ) -> None:
        self._setting, self._tasks, self._chain = setting, tasks, chain
        self._forking, self._presence = forking, presence
        self._state, self._post = state, post
        self._asking: set[PeerId] = set()

    def decided(self, message: Decided, sender: PeerId) -> None:
        """A peer showed a decided value.

        Raises:
            NodeError: It is a start record, which this member waits for, and does not hold.
        """
        state = self._state()
        if state is None:
            if self._chain.tip is None and message.start:
                self._chain.ledger.append(self._chain.read(None, message))
            return
        if message.previous and message.previous != state.tip.digest:
            if (message.epoch, message.round) > (state.epoch, state.round):
                self.catch_up(sender)
            else:
                self._forking.compare(state, message)
            return
        try:
            self.take(self._chain.read(state.tip, message))
        except NodeError as error:
            if error.code != Code.RND_CHAIN:
                self._setting.emit("decided.refused", code=str(error.code), reason=error.sentence)
            else:  # older or newer than the tip: no news, unless it shows that the chain has forked
                self._forking.compare(state, message)

    def take(self, certified: Certified) -> None:
        """A verified link of the chain is there."""
        reset = bool(certified.start)
        self._post(
            ResetCame(certified, root=self._chain.signed_by_root(certified)) if reset else Decision(certified)
        )

    def catch_up_all(self) -> None:
        """Ask those that say they are ahead."""
        state = self._state()
        if state is None:
            return
        for peer, beat in self._presence.heard.items():
            ahead = beat.epoch > state.epoch or (
                not state.halted and (beat.epoch, beat.round) > (state.epoch, state.round)
            )
            if ahead and peer not in self._presence.dead:
                self.catch_up(peer)

    def catch_up(self, peer: PeerId) -> None:
        """Ask a peer that is ahead for the certificates since; few at a time, so that a silent one holds up nobody."""
        if len(self._asking) < _MOST_ASKED and peer not in self._asking and self._state() is not None:
            self._asking.add(peer)
            self._tasks.spawn(self._ask(peer), "catching up")

    async def _ask(self, peer: PeerId) -> None:
        try:
            state = self._state()
            assert state is not None
            for certified in await self._chain.ask(peer, state.tip):
                self.take(certified)
        except NodeError as error:
            self._setting.emit("chain.refused", peer=peer, code=str(error.code), reason=error.sentence)
            await self._forking.look(peer)
        finally:
            await asyncio.sleep(_PAUSE)
            self._asking.discard(peer)
