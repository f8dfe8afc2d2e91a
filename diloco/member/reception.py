"""The handlers by which other members reach this one."""

from typing import Any, Protocol

from diloco.member.auditing import Auditing
from diloco.member.chain import Chain
from diloco.member.exchange import Exchange
from diloco.member.holding import Holding
from diloco.member.presence import Presence
from diloco.rounds.records import Order
from diloco.rounds.statements import AskReset, Close, Pass, Proposal, Ready, Reassign, Vote
from diloco.rounds.values import Decided
from protocol.envelope import Sealed
from protocol.rpc import Context, Endpoint
from protocol.units import PeerId


class Listener(Protocol):
    """Who takes what arrives."""

    def arrived(self, sealed: Sealed[Any]) -> None:
        """A verified statement about a round came."""
        ...

    def ordered(self, sealed: Sealed[Order]) -> None:
        """The operator's order came."""
        ...

    def decided(self, message: Decided, sender: PeerId) -> None:
        """A peer showed a decided value."""
        ...


class Reception:
    """Registers all handlers of a member at its endpoint."""

    def __init__(
        self,
        endpoint: Endpoint,
        holding: Holding,
        chain: Chain,
        presence: Presence,
        exchange: Exchange,
        auditing: Auditing,
        listener: Listener,
    ) -> None:
        self._exchange, self._listener = exchange, listener
        for handler in (
            self.on_ready,
            self.on_proposal,
            self.on_close,
            self.on_vote,
            self.on_pass,
            self.on_ask_reset,
            self.on_reassign,
            self.on_decided,
            self.on_order,
            presence.on_heartbeat,
            presence.on_goodbye,
            chain.on_ask_ledger,
            holding.on_pull_contribution,
            holding.on_pull_reduced,
            holding.on_pull_named,
            holding.on_pull_signed,
            auditing.on_pull_exhibits,
            auditing.on_accusation,
        ):
            endpoint.handle(handler)

    def _take(self, context: Context) -> None:
        if context.sealed is not None:
            self._listener.arrived(context.sealed)

    async def on_ready(self, message: Ready, context: Context) -> None:
        """Take a Ready."""
        self._take(context)

    async def on_proposal(self, message: Proposal, context: Context) -> None:
        """Take a proposal."""
        self._take(context)

    async def on_close(self, message: Close, context: Context) -> None:
        """Take a Close."""
        self._take(context)

    async def on_vote(self, message: Vote, context: Context) -> None:
        """Take a vote."""
        self._take(context)

    async def on_pass(self, message: Pass, context: Context) -> None:
        """Take a Pass."""
        self._take(context)

    async def on_ask_reset(self, message: AskReset, context: Context) -> None:
        """Take a wish for a reset."""
        self._take(context)

    async def on_reassign(self, message: Reassign, context: Context) -> None:
        """Take a reassignment."""
        if context.sealed is not None:
            self._exchange.reassigned(context.sealed)

    async def on_decided(self, message: Decided, context: Context) -> None:
        """Take a decided value."""
        self._listener.decided(message, context.sender)

    async def on_order(self, message: Order, context: Context) -> None:
        """Take an operator's order."""
        if context.sealed is not None:
            self._listener.ordered(context.sealed)
