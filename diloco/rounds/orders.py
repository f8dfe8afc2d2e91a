"""The operator's orders: which of them a value takes up, and what they change (rule 11)."""

from collections.abc import Mapping

from diloco.rounds.rules import Rules
from diloco.rounds.statements import Order, Ready, Taken, Value
from protocol.envelope import Sealed
from protocol.errors import NodeError

_MOST_TAKEN = 64  # operator orders that one value takes up; the others wait for the next


def take_orders(rules: Rules, tip: Value, readys: Mapping[str, Ready]) -> tuple[tuple[Taken, ...], set[str]]:
    """The operator orders that the listed Readys hold and no value has taken up; who is banned after them (rule 11).

    They act in order of number; of two with one number the one with the lower digest counts.
    """
    held: dict[int, Sealed[Order]] = {}
    for raw in sorted({raw for ready in readys.values() for raw in ready.orders}):
        try:
            order = rules.unseal_order(raw)
        except NodeError:
            continue
        number = order.message.number
        if number > tip.order_number and (number not in held or order.digest < held[number].digest):
            held[number] = order
    taken = sorted(held)[:_MOST_TAKEN]
    banned = set(tip.banned)
    for number in taken:
        order = held[number]
        if order.message.kind == "ban":
            banned.add(order.message.peer)
        elif order.message.kind == "unban":
            banned.discard(order.message.peer)
    return tuple(Taken(number=number, digest=held[number].digest) for number in taken), banned
