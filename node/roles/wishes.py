"""What the operator asks of the node with the operator's key, and what is said about it."""

from dataclasses import replace
from typing import Any

from diloco.member.member import Member
from node.roles.coordinator import Coordinator, Voice
from node.roles.wish import LONGEST, Done, Wish, number_of
from protocol.errors import Code, NodeError
from protocol.identity import public_key_of
from protocol.units import PeerId

_ORDERS = {
    "ban": "{peer} is banned from {when} on.",
    "unban": "{peer} may come again.",
    "kick": "{peer} has to leave with the next decided round; it may come again.",
    "seat": "{peer} votes once a value lists it.",
    "unseat": "{peer} has no vote from {when} on.",
    "pause": "Nobody trains from {when} on.",
    "resume": "Training goes on with the round after the next decided one.",
    "finish": "The run ends with the next decided round.",
    "revoke": "Delegations up to {value} are revoked from {when} on.",
    "checkpoint": "Members write a checkpoint after the round whose value names the order.",
    "audit": "Every voter checks every reduced chunk of the round before that whose value names the order.",
    "parameter": "{name} is {value} from {when} on.",
}
_ABOUT_A_PEER = ("ban", "unban", "kick", "seat", "unseat")
_OTHERS = ("admit", "invite", "uninvite", "drop", "reset")

LISTS = ("invitations", "planned")
"""What can be asked for, and changes nothing."""


def carry_out(coordinator: Coordinator, member: Member | Voice, wish: Wish) -> Done:
    """Do what was asked.

    Args:
        coordinator: Has the operator's key.
        member: The member on this node, or who else gives orders to the voters.
        wish: What is wanted.

    Raises:
        NodeError: ``CFG_USAGE`` and what the coordinator says against it.
    """
    if wish.do in _ORDERS:
        return _ordered(coordinator, member, wish)
    if wish.round >= 0:
        raise NodeError(Code.CFG_USAGE, f"{wish.do} cannot wait for a round.")
    match wish.do:
        case "admit":
            coordinator.invite(PeerId(wish.peer))
            return Done(f"{wish.peer} may join.")
        case "invite":
            return _invited(coordinator, wish)
        case "uninvite":
            ended = coordinator.tokens.end(number_of(wish.value), coordinator.now())
            return Done(f"Invitation {ended.number} lets nobody in any more.", number=ended.number)
        case "drop":
            dropped = coordinator.planned.drop(number_of(wish.value))
            return Done(f"The order that waited under number {dropped.number} is not given.")
        case "reset":
            if isinstance(member, Member):
                epoch, number = coordinator.reset(member, wish.reason)
                return Done(f"Epoch {epoch} begins with round {number}.")
            raise NodeError(
                Code.CFG_USAGE, "This coordinator holds no outer state from which an epoch could begin.",
                fix="Run a member with the operator's key: intellect-node run RUN.toml --dir DIR, then admin reset.",
            )  # fmt: skip
    raise NodeError(
        Code.CFG_USAGE, f"There is no order {wish.do[:40]!r}.", fix=f"Use {', '.join((*_OTHERS, *_ORDERS))}."
    )


def _ordered(coordinator: Coordinator, voice: Member | Voice, wish: Wish) -> Done:
    """Give an order, or have it wait for its round."""
    do = wish.do
    if wish.seconds and (do != "ban" or not 0 < wish.seconds <= LONGEST):
        raise NodeError(Code.CFG_USAGE, "Only a ban may end by itself, after ten years at most.")
    if do in _ABOUT_A_PEER:
        public_key_of(PeerId(wish.peer))
    sentence = _ORDERS[do].format(
        peer=wish.peer, name=wish.name, value=wish.value or "what the genesis says",
        when="the next decided round" if wish.round < 0 else f"round {wish.round}",
    )  # fmt: skip
    if wish.round >= 0:
        if wish.seconds or wish.round <= coordinator.decided() + 1:
            raise NodeError(
                Code.CFG_USAGE, f"{do} cannot wait for round {wish.round}.",
                fix=f"Name a round after {coordinator.decided() + 1}, and no time.",
            )  # fmt: skip
        coordinator.check_order(do, wish.name, wish.value)
        waits = coordinator.planned.add(replace(wish, round=-1), round_number=wish.round)
        return Done(f"It is ordered for round {wish.round}, and waits under number {waits.number}. {sentence}",
                    number=waits.number)  # fmt: skip
    fields = {"peer": wish.peer} if do in _ABOUT_A_PEER else {"name": wish.name, "value": wish.value}
    order = coordinator.order(voice, do, wish.reason, **fields)
    if do in ("ban", "unban"):
        coordinator.planned.drop_about(wish.peer)
    if wish.seconds:
        end = Wish("unban", "The time of the ban is over.", wish.peer)
        coordinator.planned.add(end, at=coordinator.now() + wish.seconds)
        sentence += f" It may come again in {_span(wish.seconds)}."
    return Done(f"Order {order}: {sentence}", order)


def _invited(coordinator: Coordinator, wish: Wish) -> Done:
    """Make an invitation; its token is told to the operator and nowhere else."""
    made, token = coordinator.tokens.make(
        coordinator.now(), uses=wish.uses, seconds=wish.seconds, note=wish.name
    )
    peers = "one peer" if made.uses == 1 else f"{made.uses} peers"
    return Done(f"Invitation {made.number} lets {peers} in.", secret=token, number=made.number)


def listed(coordinator: Coordinator, what: str) -> list[dict[str, Any]]:
    """Invitations, without what is kept of their tokens, or orders that wait.

    Args:
        coordinator: Keeps them.
        what: One of ``LISTS``.
    """
    now = coordinator.now()
    if what == "invitations":
        return [
            {"number": each.number, "note": each.note, "uses": each.uses, "used": list(each.used),
             "expires_at": each.expires_at, "open": each.is_open(now)}
            for each in coordinator.tokens.all()
        ]  # fmt: skip
    return [
        {"number": each.number, "action": each.wish.do, "peer": each.wish.peer, "name": each.wish.name,
         "value": each.wish.value, "reason": each.wish.reason, "at": each.at, "round": each.round}
        for each in coordinator.planned.all()
    ]  # fmt: skip


def lines(coordinator: Coordinator, what: str) -> str:
    """The same for people, a line each."""
    rows, now = listed(coordinator, what), coordinator.now()
    if what == "invitations":
        found = [
            f"{row['number']}: {len(row['used'])} of {row['uses']} used, "
            + (f"{_span(row['expires_at'] - now)} left" if row["open"] else "closed")
            + (f", {row['note']}" if row["note"] else "")
            for row in rows
        ]
    else:
        found = [
            f"{row['number']}: {row['action']} {row['peer'] or row['name']} {row['value']}".rstrip()
            + (f", from round {row['round']}" if row["round"] >= 0 else f", in {_span(row['at'] - now)}")
            for row in rows
        ]
    return "\n".join(found) or "None."


def _span(seconds: float) -> str:
    """A time for people, rounded up."""
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{-(-seconds // size):.0f} {word}"
    return f"{max(seconds, 0):.0f} s"
