"""What a member tells others: statements to the voters, decided values down their tree, certificates to the late."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any

from diloco.member.chain import Chain
from diloco.member.mail import Mail
from diloco.member.setting import Setting, Tasks
from diloco.member.spreading import Spreading
from diloco.rounds import routing
from diloco.rounds.certificate import Certified
from diloco.rounds.state import State
from diloco.rounds.values import Decided
from protocol.envelope import Sealed, seal
from protocol.errors import NodeError
from protocol.units import PeerId

_MOST_ANSWERED = 8  # decided values that answer one stale statement
_ANSWER_PAUSE = 1.0  # seconds between answers to one peer
_PATIENCE = timedelta(seconds=5)


class Outgoing:
    """A member's words, and whom they are for (docs/rounds.md, who tells whom).

    Args:
        setting: The member's setting.
        tasks: Where sending runs.
        chain: Where decided values are.
        dead: Whether a peer is believed dead.
        attempt: The highest attempt of the current round that others are in, as far as signs of life tell.
        state: The round machine's state now; None before the member has begun.

    Attributes:
        wide: Exchange signs of life with all voters, also without a vote: one who may have to begin a new epoch.
    """

    def __init__(
        self,
        setting: Setting,
        tasks: Tasks,
        chain: Chain,
        *,
        dead: Callable[[PeerId], bool],
        attempt: Callable[[], int],
        state: Callable[[], State | None],
    ) -> None:
        self._setting, self._chain, self._state, self._attempt = setting, chain, state, attempt
        self._mail = Mail(setting, tasks)
        self._spreading = Spreading(setting, tasks, dead)
        self._answered: dict[PeerId, float] = {}
        self.wide = False

    def seal(self, body: Any) -> Sealed[Any]:
        """Sign a statement."""
        return seal(self._setting.endpoint.identity, self._setting.run, body)

    # ---- the undecided round

    def say(self, sealed: Sealed[Any]) -> None:
        """Give a statement of the undecided round to whom it is for, and repeat it until the round is decided."""
        self._mail.say(sealed, self.hearers())

    def repeat(self) -> None:
        """Give again what may have been missed."""
        self._mail.repeat(self.hearers())

    def again(self, peer: PeerId) -> None:
        """A peer came, or moved to another round or attempt: what it heard before may have been of no use to it."""
        self._mail.again(peer)
        if peer in self.hearers():
            self._mail.repeat([peer])

    def settle(self) -> None:
        """The round is decided."""
        self._mail.settle()

    def hearers(self) -> set[PeerId]:
        """Who needs what this member says of the undecided round."""
        state = self._state()
        if state is None:
            return set()
        attempt = max(state.attempt, self._attempt())
        named = routing.hearers(self._setting.rules, state.value, self._setting.me, self.everyone(), attempt)
        return {PeerId(peer) for peer in named} - {self._setting.me}

    def voters(self) -> set[PeerId]:
        """Who decides the current round, without this member."""
        state = self._state()
        named = routing.voters(state.value) if state is not None else set()
        return {PeerId(peer) for peer in named} - {self._setting.me}

    # ---- what is decided

    def decided(self, before: Certified, certified: Certified) -> Decided:
        """Pass a decided value on; returns it as it travels."""
        brief = self._chain.brief(before, certified)
        spread = routing.Spread(before.value, certified.value, certified.digest)
        self._spreading.pass_on(spread, self.seal(brief))
        return brief

    async def hand_over(self, before: Certified, certified: Certified) -> None:
        """Give a decided value to all who could decide it: the last word of one who may have been the first to know."""
        sealed = self.seal(self._chain.brief(before, certified))
        peers = {PeerId(peer) for peer in routing.voters(before.value)} - {self._setting.me}
        posts = (self._setting.endpoint.post(peer, sealed, timeout=_PATIENCE) for peer in peers)
        for error in await asyncio.gather(*posts, return_exceptions=True):
            if error is not None and not isinstance(error, NodeError):
                raise error

    def answer(self, peer: PeerId, epoch: int, round_number: int) -> None:
        """Send a peer that speaks of a decided round what was decided since, at most once a second."""
        now = self._setting.clock()
        if now - self._answered.get(peer, -_ANSWER_PAUSE) < _ANSWER_PAUSE:
            return
        self._answered[peer] = now
        before = self._chain.ledger.get(round_number - 1)
        digest = before.digest if before is not None else b""
        for decided in self._chain.since(epoch, round_number - 1, _MOST_ANSWERED, digest):
            self._mail.tell(peer, self.seal(decided))

    # ---- everybody, and signs of life

    def everyone(self) -> set[PeerId]:
        """Voters, members, and admitted peers that may want to enter, without this member."""
        state = self._state()
        named: Iterable[str] = () if state is None else routing.voters(state.value) | set(state.value.members)
        return ({PeerId(peer) for peer in named} | set(self._setting.peers())) - {self._setting.me}

    def tell(self, peer: PeerId, sealed: Sealed[Any]) -> None:
        """Give one peer a statement, once."""
        self._mail.tell(peer, sealed)

    def tell_everyone(self, sealed: Sealed[Any]) -> None:
        """Give a statement to everybody whose address is known."""
        for peer in self.everyone():
            self._mail.tell(peer, sealed)

    def circle(self) -> Collection[PeerId]:
        """To whom this member gives signs of life unasked."""
        state = self._state()
        if state is None:
            return ()
        wide = self.wide or state.leaving
        return {PeerId(peer) for peer in routing.watchers(state.value, self._setting.me, wide=wide)}

    def expects(self, peer: PeerId) -> bool:
        """Whether a peer that is silent ought to give this member signs of life."""
        state = self._state()
        return (
            state is None or peer in self.circle() or self._setting.me in routing.watchers(state.value, peer)
        )
