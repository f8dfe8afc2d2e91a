"""The operator's orders: which of them a value takes up, and what stands after them (rule 11)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from diloco.rounds.records import Order
from diloco.rounds.rules import Rules
from diloco.rounds.statements import Ready
from diloco.rounds.values import Parameter, Taken, Value
from protocol.envelope import Sealed
from protocol.errors import NodeError

_MOST_TAKEN = 64  # operator orders that one value takes up; the others wait for the next
_MOST_NAMED = 4096  # peers in one of a value's lists


@dataclass
class Will:
    """What the operator wants after a value.

    Attributes:
        taken: Orders that the value takes up, by number.
        number: Highest number taken up so far in the run.
        banned: Who takes no part.
        kicked: Who has to leave with this value; it may come again.
        seated: Who has a seat that its admission does not give.
        unseated: Who lost its seat.
        paused: Whether nobody trains.
        finished: Whether the run ends with this value.
        parameters: Values that differ from the genesis, by name.
        revoked: Delegations up to this number are revoked.
    """

    taken: tuple[Taken, ...]
    number: int
    banned: set[str]
    seated: set[str]
    unseated: set[str]
    paused: bool
    parameters: dict[str, str]
    revoked: int = 0
    kicked: set[str] = field(default_factory=set)
    finished: bool = False

    @property
    def out(self) -> set[str]:
        """Who takes no part in the next round."""
        return self.banned | self.kicked


def take_orders(rules: Rules, tip: Value, readys: Mapping[str, Ready]) -> Will:
    """Take up the operator orders that the listed Readys hold and no value has taken up.

    They act in order of number; of two with one number the one with the lower digest counts.
    """
    held: dict[int, Sealed[Order]] = {}
    for raw in sorted({raw for ready in readys.values() for raw in ready.orders}):
        try:
            order = rules.unseal_order(raw)
        except NodeError:
            continue
        number = order.message.number
        if 0 < rules.delegation_of(order) <= tip.revoked:
            continue
        if number > tip.order_number and (number not in held or order.digest < held[number].digest):
            held[number] = order
    numbers = sorted(held)[:_MOST_TAKEN]
    will = Will(
        taken=tuple(Taken(number=number, digest=held[number].digest) for number in numbers),
        number=numbers[-1] if numbers else tip.order_number,
        banned=set(tip.banned),
        seated=set(tip.seated),
        unseated=set(tip.unseated),
        paused=tip.paused,
        parameters={parameter.name: parameter.value for parameter in tip.parameters},
        revoked=tip.revoked,
    )
    for number in numbers:
        _obey(rules, will, held[number].message, by_root=not rules.delegation_of(held[number]))
    return will


def _obey(rules: Rules, will: Will, order: Order, by_root: bool) -> None:
    """One order; one of an unknown kind, or that cannot be done, changes nothing."""
    peer = order.peer
    match order.kind:
        case "ban" if len(will.banned) < _MOST_NAMED:
            will.banned.add(peer)
        case "unban":
            will.banned.discard(peer)
        case "kick":
            will.kicked.add(peer)
        case "seat" if len(will.seated) < _MOST_NAMED:
            will.seated.add(peer)
            will.unseated.discard(peer)
        case "unseat" if len(will.unseated) < _MOST_NAMED:
            will.seated.discard(peer)
            will.unseated.add(peer)
        case "pause":
            will.paused = True
        case "resume":
            will.paused = False
        case "revoke" if (
            by_root and order.value.isascii() and order.value.isdigit() and len(order.value) < 19
        ):
            will.revoked = max(will.revoked, int(order.value))
        case "finish":
            will.finished = True
        case "parameter" if rules.accepts(order.name, order.value):
            will.parameters.pop(order.name, None)
            if order.value:
                will.parameters[order.name] = order.value


def strike_off(will: Will, tip: Value, liars: Collection[str]) -> None:
    """Ban voters that were convicted; others only leave, since a list of names that cost nothing has no end."""
    voters = {elector.peer for elector in tip.electorate}
    for peer in sorted(liars):
        (will.banned if peer in voters and len(will.banned) < _MOST_NAMED else will.kicked).add(peer)


def stands(parameters: Mapping[str, str]) -> tuple[Parameter, ...]:
    """Parameters as they stand in a value."""
    return tuple(Parameter(name=name, value=parameters[name]) for name in sorted(parameters))


def with_parameters(rules: Rules, parameters: Mapping[str, str]) -> Rules:
    """The rules of a round in which these parameters differ from the genesis."""
    steps = parameters.get("round.inner_steps")
    return rules if steps is None else replace(rules, samples=int(steps) * rules.samples_per_step)
