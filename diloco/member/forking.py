"""Where a chain has two sides: finding the place, and stopping there with both of them shown (rules 15 and 17)."""

from collections.abc import Callable
from contextlib import suppress

from diloco.member.chain import Chain
from diloco.member.outgoing import Outgoing
from diloco.member.setting import Setting
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Event, ResetCame, RivalCame
from diloco.rounds.state import State
from diloco.rounds.values import Decided
from diloco.store.ledger import to_message
from protocol.errors import Code, NodeError
from protocol.units import PeerId


class Forking:
    """Compares what others show with this member's chain.

    Args:
        setting: The member's setting.
        chain: This member's chain.
        outgoing: Where both sides of a fork are told.
        state: The round machine's state now; None before the member has begun.
        post: Gives the machine an event.
    """

    def __init__(
        self,
        setting: Setting,
        chain: Chain,
        outgoing: Outgoing,
        *,
        state: Callable[[], State | None],
        post: Callable[[Event], None],
    ) -> None:
        self._setting, self._chain, self._outgoing = setting, chain, outgoing
        self._state, self._post = state, post

    def compare(self, state: State, message: Decided) -> None:
        """A decided value does not follow this member's tip: see whether it proves a fork."""
        with suppress(NodeError, ValueError):
            rival = self._chain.rival(state.tip, message)
            if rival is not None and not state.halted:
                self._post(RivalCame(rival))

    async def look(self, peer: PeerId) -> None:
        """A peer's chain does not follow this one: see where they part, and whether the root key has ended that."""
        state = self._state()
        if state is None:
            return
        with suppress(NodeError, ValueError):
            if not state.halted and (rival := await self._chain.fork_at(peer, state.tip)) is not None:
                self._post(RivalCame(rival))
        with suppress(NodeError, ValueError):
            *behind, reset = await self._chain.overtaken(peer, state.tip)
            self._post(ResetCame(reset, root=True, behind=tuple(behind)))

    def halt(self, reason: str, rival: Certified) -> None:
        """Keep both sides of a fork and show them to everyone."""
        ledger = self._chain.ledger
        ledger.keep_rival(rival)
        mine = ledger.origin() if rival.start else ledger.get(rival.value.round)
        self._setting.emit(
            "halted", code=str(Code.RND_FORKED), reason=reason, epoch=rival.value.epoch,
            round=rival.value.round, rival=rival.digest.hex(), mine=mine.digest.hex() if mine else "",
        )  # fmt: skip
        for side in (rival, mine):
            if side is not None:
                self._outgoing.tell_everyone(self._outgoing.seal(to_message(side)))
