"""The operator's word at a member: orders and resets, heard or given by the node that holds the key."""

from collections.abc import Callable, Iterable

from diloco.member.chain import Chain
from diloco.member.following import Following
from diloco.member.outgoing import Outgoing
from diloco.member.setting import Setting, order_right
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Event, OrderCame
from diloco.rounds.records import Order
from diloco.rounds.state import State
from diloco.rounds.values import Value
from diloco.store.ledger import to_message
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError


def named(held: Iterable[Sealed[Order]], value: Value) -> frozenset[str]:
    """Kinds of the orders that a value names, of those that this member had heard."""
    digests = {taken.digest for taken in value.orders}
    return frozenset(order.message.kind for order in held if order.digest in digests)


class Obeying:
    """Verifies the operator's word, gives it to the round machine, and passes on what begins here.

    Args:
        setting: The member's setting.
        chain: This member's chain.
        following: Takes a reset as a link of it.
        outgoing: Where it is told.
        state: The round machine's state now; None before the member has begun.
        post: Gives the machine an event.
    """

    def __init__(
        self,
        setting: Setting,
        chain: Chain,
        following: Following,
        outgoing: Outgoing,
        *,
        state: Callable[[], State | None],
        post: Callable[[Event], None],
    ) -> None:
        self._setting, self._chain, self._following, self._outgoing = setting, chain, following, outgoing
        self._state, self._post = state, post

    def ordered(self, sealed: Sealed[Order]) -> None:
        """The operator's order came; anyone may pass it on."""
        setting, state = self._setting, self._state()
        right = order_right(sealed, setting.run, setting.genesis.operator, verifier=setting.endpoint.verifier)
        if state is None or right is None or right.expired(setting.wall()):
            return
        if sealed.message.number > state.value.order_number:
            self._post(OrderCame(sealed))

    def give_order(self, sealed: Sealed[Order]) -> None:
        """Take an order and give it to the voters."""
        self.ordered(sealed)
        for peer in self._outgoing.voters():
            self._outgoing.tell(peer, sealed)

    def standing(self) -> tuple[Certified, bytes]:
        """The value after which a new epoch would begin, and the state digest after it.

        Raises:
            NodeError: ``RND_CHAIN`` when this member's own state is not there yet.
        """
        state = self._state()
        forked = self._chain.ledger.rival() is not None  # what both sides have is known without a state
        if state is None or (state.base is None and not forked):
            raise NodeError(
                Code.RND_CHAIN, "This node has no state from which a new epoch could begin.",
                fix="Wait until `intellect-node status` says that it trains or waits.",
            )  # fmt: skip
        return self._chain.standing(state.tip, state.base or b"")

    def give_reset(self, raw: bytes) -> None:
        """Take a reset and give it to all members.

        Raises:
            NodeError: It does not follow this member's chain.
        """
        state = self._state()
        assert state is not None
        certified = self._chain.read_reset(state.tip, raw)
        self._following.take(certified)
        self._outgoing.tell_everyone(self._outgoing.seal(to_message(certified)))
