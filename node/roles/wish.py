"""What an operator wants, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from protocol.errors import Code, NodeError

MAX_REASON = 200
"""Characters of a reason."""

LONGEST = 10 * 366 * 86_400
"""Seconds that a ban with an end may last."""

_LONGEST_TEXT = 400
_MOST = 2**53


@dataclass(frozen=True)
class Wish:
    """What an operator wants.

    Attributes:
        do: What; see ``node.roles.wishes``.
        reason: Why; everybody may read it.
        peer: About whom, where it is about somebody.
        name: Which parameter, for ``parameter``; for whom, for ``invite``.
        value: A parameter's new value, empty for that of the genesis; for ``revoke``, ``uninvite`` and ``drop`` the
            number of what ends.
        round: It acts from this round on; -1 for at once.
        seconds: How long a ban or an invitation lasts; 0 for a ban without an end.
        uses: How many peers an invitation lets in.
    """

    do: str
    reason: str = ""
    peer: str = ""
    name: str = ""
    value: str = ""
    round: int = -1
    seconds: int = 0
    uses: int = 1


@dataclass(frozen=True)
class Done:
    """What became of a wish.

    Attributes:
        sentence: For everybody, also in the audit log.
        order: Number of the order that does it; 0 where it needs none.
        secret: For the operator alone: an invitation's token.
        number: Of the invitation, or of the order that waits; 0 for none.
    """

    sentence: str
    order: int = 0
    secret: str = ""
    number: int = 0


def wish_of(question: Mapping[str, Any]) -> Wish:
    """The wish of a question that came as texts.

    Raises:
        NodeError: ``CFG_USAGE``: a number is none.
    """
    found: dict[str, Any] = {}
    for field in fields(Wish):
        number = isinstance(field.default, int)
        given = str(question.get(field.name, field.default if number else ""))
        found[field.name] = number_of(given) if number else given[:_LONGEST_TEXT]
    found["reason"] = found["reason"][:MAX_REASON]
    return Wish(**found)


def number_of(text: str) -> int:
    """A number that came as text.

    Raises:
        NodeError: ``CFG_USAGE``.
    """
    if text == "-1":
        return -1
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > _MOST:
        raise NodeError(Code.CFG_USAGE, f"{text[:20]!r} is not a number.")
    return int(text)
