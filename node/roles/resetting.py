"""Resets that the coordinator gives by itself where the run file allows it; else it says that a person is needed."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from diloco.member.member import Member
from diloco.member.setting import Emit
from diloco.rounds.rescue import judge
from node.network import Network
from node.roles.coordinator import Coordinator
from protocol.errors import NodeError

_LOOK = timedelta(seconds=1)
_BY_HAND = (
    "A person has to decide: `intellect-node admin reset` begins a new epoch with the members that are here."
)


class Resetting:
    """Looks at the wishes for a reset (docs/rounds.md, rule 15).

    Args:
        coordinator: Has the operator's key.
        member: The member on this node.
        network: Has everybody's directory records.
        emit: The event log.
        wall: Unix seconds as the peers see them.
        automatic: Whether the run file allows resets that nobody ordered.
        lost_after: How long a voter sees no way to a decision before it asks.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        member: Member,
        network: Network,
        emit: Emit,
        wall: Callable[[], float],
        *,
        automatic: bool,
        lost_after: timedelta,
    ) -> None:
        self._coordinator, self._member, self._network = coordinator, member, network
        self._emit, self._wall, self._automatic = emit, wall, automatic
        self._lost_after = lost_after.total_seconds()
        self._given: float | None = None
        self._said = ""

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK.total_seconds())

    def look(self) -> None:
        """Give a reset where the rules allow it, once per ``lost_after``; say what keeps it from being given."""
        state = self._member.state
        verdict = None if state is None else judge(state, self._renewed())
        if verdict is None:
            self._say("")
            return
        again = self._given is not None and self._wall() - self._given < self._lost_after
        if not (verdict.grant and self._automatic) or again:
            self._say(f"{verdict.sentence} {_BY_HAND}")
            return
        try:
            self._coordinator.reset(self._member, f"by the coordinator itself: {verdict.sentence}"[:200])
            self._given = self._wall()
        except NodeError as error:  # its own state is not there yet
            self._say(f"{verdict.sentence} {error.sentence}")

    def _renewed(self) -> set[str]:
        since = self._wall() - self._lost_after
        return {peer for peer, record in self._network.members.items() if record.issued_at >= since}

    def _say(self, sentence: str) -> None:
        if sentence == self._said:
            return
        self._said = sentence
        if sentence:
            self._emit("reset.needed", sentence=sentence)
        else:
            self._emit("reset.not-needed")
