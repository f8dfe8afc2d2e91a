"""Who tells whom: pure functions of decided values, so that every member knows what the others do.

What is undecided concerns the voters alone, and what others say of it those who lead; in a small run everybody hears
it, and so collects the reduced bytes while they are made and not only once they are decided. A decided value goes down
a tree over everybody, whose order is drawn from the value's digest: each member passes it on to a few. Signs of life go
between voters, and between every other member and a few of them. So the control traffic of one member does not grow
with the number of members.
"""

from collections.abc import Collection, Iterator

from diloco.rounds.electorate import draw_order
from diloco.rounds.planning import leaders
from diloco.rounds.rules import Rules
from diloco.rounds.values import Value

FAN = 3
"""To how many members each member passes a decided value on."""

FEW = 32
"""Up to so many members all of them hear what voters say of an undecided round: about as many as may vote."""

WATCHERS = 4
"""How many voters a member that has no vote exchanges signs of life with."""


def voters(tip: Value) -> set[str]:
    """Who decides the round after ``tip``."""
    return {elector.peer for elector in tip.electorate}


def taking_part(tip: Value) -> set[str]:
    """Who takes part in the round after ``tip``: voters, members without a vote, and newcomers that follow."""
    return voters(tip) | set(tip.members) | {ghost.peer for ghost in tip.ghosts}


def hearers(rules: Rules, tip: Value, peer: str, known: Collection[str], attempt: int) -> set[str]:
    """Who hears what a peer says of the round after ``tip``.

    In a small run everybody does. In a large one a voter tells the voters. The Ready of a member without a vote is of
    use to who leads, and to nobody else: the leader of the attempt under way hears it, and the next one.

    Args:
        rules: The run's rules.
        tip: The last decided value.
        peer: Who speaks.
        known: Everybody who takes part or may want to.
        attempt: The highest attempt of the round that it has heard of.
    """
    electorate = voters(tip)
    if len(known) <= FEW and len(everybody := electorate | set(known)) <= FEW:
        return everybody - {peer}
    if peer in electorate:
        return electorate - {peer}
    order = leaders(rules, tip)
    return {order[(attempt + ahead) % len(order)] for ahead in (0, 1)}


def watchers(tip: Value, peer: str, *, wide: bool = False) -> set[str]:
    """The voters to whom a peer gives signs of life unasked; they answer.

    Args:
        tip: The last decided value.
        peer: A voter, a member, or one that wants to become one.
        wide: It wants to hear of all voters: it drains, or may have to begin a new epoch.
    """
    electorate = voters(tip)
    if not wide and peer not in electorate:
        electorate = set(draw_order(f"watch/{peer}", b"", electorate)[:WATCHERS])
    return electorate - {peer}


class Spread:
    """The tree by which one decided value spreads: voters first, who all know it early, then everybody else.

    Args:
        tip: The value before.
        value: The decided value.
        digest: Its digest.
    """

    def __init__(self, tip: Value, value: Value, digest: bytes) -> None:
        first = voters(tip)
        others = taking_part(value) | set(tip.members)
        self.order = draw_order("spread", digest, first) + draw_order("spread", digest, others - first)

    def children(self, place: int) -> range:
        """The places in ``order`` to which the member at one passes the value on."""
        return range(min(FAN * place + 1, len(self.order)), min(FAN * place + FAN + 1, len(self.order)))

    def of(self, peer: str) -> Iterator[int]:
        """The places to which a peer passes the value on; none for one that the values do not name."""
        if peer in self.order:
            yield from self.children(self.order.index(peer))
