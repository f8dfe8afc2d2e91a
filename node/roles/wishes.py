"""What the operator's command line asks of the node with the operator's key, and what is said about it."""

from collections.abc import Mapping
from typing import Any

from diloco.member.member import Member
from node.roles.coordinator import Coordinator, Voice
from protocol.errors import Code, NodeError
from protocol.identity import public_key_of
from protocol.units import PeerId

_REASON = 200

_ORDERS = {
    "ban": "{peer} is banned from the next decided round on.",
    "unban": "{peer} may come again.",
    "kick": "{peer} has to leave with the next decided round; it may come again.",
    "seat": "{peer} votes once a value lists it.",
    "unseat": "{peer} has no vote from the next decided round on.",
    "pause": "Nobody trains from the next decided round on.",
    "resume": "Training goes on with the round after the next decided one.",
    "finish": "The run ends with the next decided round.",
    "revoke": "Delegations up to {value} are revoked from the next decided round on.",
    "parameter": "{name} is {value} from the next decided round on.",
}
_ABOUT_A_PEER = ("ban", "unban", "kick", "seat", "unseat")


def carry_out(
    coordinator: Coordinator, member: Member | Voice, question: Mapping[str, Any]
) -> tuple[str, int]:
    """Do what was asked.

    Args:
        coordinator: Has the operator's key.
        member: The member on this node, or who else gives orders to the voters.
        question: ``do`` and what it needs: ``peer``, ``reason``, ``name``, ``value``.

    Returns:
        What was done, in a sentence, and the number of the order that does it, 0 for none.

    Raises:
        NodeError: ``CFG_USAGE`` and what the coordinator says against it.
    """
    do = str(question.get("do", ""))
    fields = {name: str(question.get(name, "")) for name in ("peer", "name", "value")}
    peer, reason = PeerId(fields["peer"]), str(question.get("reason", ""))[:_REASON]
    if do == "admit":
        coordinator.invite(peer)
        return f"{peer} may join.", 0
    if do == "invite":
        return _invite(coordinator, fields["value"], fields["name"]), 0
    if do == "uninvite":
        ended = coordinator.tokens.end(_number(fields["value"]), coordinator.now())
        return f"Invitation {ended.number} lets nobody in any more.", 0
    if do == "reset":
        if not isinstance(member, Member):
            raise NodeError(
                Code.CFG_USAGE, "This coordinator holds no outer state from which an epoch could begin.",
                fix="Run a member with the operator's key: intellect-node run RUN.toml --dir DIR, then admin reset.",
            )  # fmt: skip
        epoch, number = coordinator.reset(member, reason)
        return f"Epoch {epoch} begins with round {number}.", 0
    if do not in _ORDERS:
        raise NodeError(
            Code.CFG_USAGE,
            f"There is no order {do!r}.",
            fix=f"Use admit, invite, uninvite, reset, {', '.join(_ORDERS)}.",
        )
    if do in _ABOUT_A_PEER:
        public_key_of(peer)
        number = coordinator.order(member, do, reason, peer=peer)
    else:
        number = coordinator.order(member, do, reason, name=fields["name"], value=fields["value"])
    fields["value"] = fields["value"] or "what the genesis says"
    return f"Order {number}: {_ORDERS[do].format_map(fields)}", number


def _invite(coordinator: Coordinator, value: str, note: str) -> str:
    """Make an invitation; its token is in the sentence and nowhere else."""
    uses, _, seconds = value.partition(" ")
    made, token = coordinator.tokens.make(
        coordinator.now(), uses=_number(uses), seconds=_number(seconds), note=note
    )
    peers = "one peer" if made.uses == 1 else f"{made.uses} peers"
    return f"Invitation {made.number} lets {peers} in. Its token is shown only now: {token}"


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise NodeError(Code.CFG_USAGE, f"{text[:20]!r} is not a number.")
    return int(text)
