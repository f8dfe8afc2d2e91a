"""What an operator does: checked, carried out by the node with the key, and written to the audit log."""

import asyncio
import hmac
import secrets
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from blake3 import blake3

from node.coordinator.database import StoreError
from node.coordinator.facts import Acted
from node.coordinator.service import Service
from node.coordinator.view import View
from node.roles.wish import MAX_REASON, Done, Wish
from protocol.errors import Code, NodeError
from protocol.files import write_whole
from protocol.identity import public_key_of
from protocol.units import PeerId

TOKEN_FILE = "operator.token"

ABOUT_A_PEER = ("admit", "ban", "unban", "kick", "seat", "unseat")
ABOUT_THE_RUN = ("pause", "resume", "finish", "parameter", "checkpoint", "audit", "revoke", "reset", "drop")
INVITING = ("invite", "uninvite")
KINDS = (*ABOUT_A_PEER, *ABOUT_THE_RUN)
"""All actions, by the words of ``intellect-node admin``; ``parameter`` is its ``set``."""

CarryOut = Callable[[Wish], Awaitable[Done]]
"""Does it on the node with the operator's key; raises ``NodeError``."""

Listed = Callable[[str], list[dict[str, Any]]]
"""``node.roles.wishes.listed`` of that node; any thread may call it."""


def load_token(folder: Path) -> str:
    """The operator's token of a data directory; made, mode 0600, where there is none."""
    path = folder / TOKEN_FILE
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if len(token) < 20:
        token = secrets.token_urlsafe(32)
        write_whole(path, [token.encode() + b"\n"])
        path.chmod(0o600)
    return token


def change(view: View, wish: Wish) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a wish changes: before and after."""
    before, after = _change(view, wish)
    if wish.seconds:
        after["for seconds"] = wish.seconds
    if wish.round >= 0:
        after["from round"] = wish.round
    return before, after


def _change(view: View, wish: Wish) -> tuple[dict[str, Any], dict[str, Any]]:
    match wish.do:
        case "ban" | "unban":
            return {"banned": wish.peer in view.tip.banned}, {"banned": wish.do == "ban"}
        case "seat" | "unseat":
            return {"voter": wish.peer in view.tip.electorate}, {"voter": wish.do == "seat"}
        case "kick":
            return {"takes part": wish.peer in view.tip.taking_part}, {"takes part": False}
        case "admit":
            return {"known": wish.peer in view.members}, {"invited": True}
        case "pause" | "resume":
            return {"paused": view.tip.paused}, {"paused": wish.do == "pause"}
        case "finish":
            return {"finished": view.tip.finished}, {"finished": True}
        case "parameter":
            genesis = "as in the genesis"
            return {wish.name: view.tip.parameters.get(wish.name, genesis)}, {
                wish.name: wish.value or genesis
            }
        case "reset":
            return {"epoch": view.tip.epoch}, {"epoch": view.tip.epoch + 1}
        case "invite":
            return {}, {"uses": wish.uses}
        case "checkpoint" | "audit":
            return {"round": view.tip.round}, {"ordered": True}
        case _:
            return {}, {wish.do: wish.value}


class Actions:
    """The operator's actions on one run.

    Args:
        service: Takes the audit entries.
        token: Who has it is the operator.
        carry_out: Does what is wished for.
        listed: Gives invitations and orders that wait.
    """

    def __init__(self, service: Service, token: str, carry_out: CarryOut, listed: Listed) -> None:
        self._service, self._carry_out, self.listed = service, carry_out, listed
        self._digest = blake3(token.encode()).digest()
        self._last: int | None = None
        self._guard = threading.Lock()

    def allowed(self, token: str) -> bool:
        """Whether this is the operator's token, in a time that does not depend on how much of it is right."""
        return hmac.compare_digest(blake3(token.encode("utf-8", "surrogatepass")).digest(), self._digest)

    def check(self, wish: Wish) -> None:
        """Whether a wish can be understood.

        Raises:
            NodeError: ``CFG_USAGE``; ``ID_BAD_PEER``.
        """
        if wish.do not in (*KINDS, *INVITING):
            raise NodeError(
                Code.CFG_USAGE, f"There is no action {wish.do[:40]!r}.", fix=f"Use {', '.join(KINDS)}."
            )
        if not wish.reason.strip() or len(wish.reason) > MAX_REASON:
            raise NodeError(
                Code.CFG_USAGE, "An action needs a reason, which everybody may read.",
                fix=f"Say why in 1 to {MAX_REASON} characters.",
            )  # fmt: skip
        if wish.do in ABOUT_A_PEER:
            public_key_of(PeerId(wish.peer))

    async def act(self, actor: str, wish: Wish) -> tuple[Acted, Done]:
        """Carry out a wish and write it to the audit log.

        Args:
            actor: Who wishes it, for the audit log.
            wish: What; whoever calls has seen the operator's token and asked for confirmation.

        Returns:
            The entry of the audit log, and what was done.

        Raises:
            NodeError: ``STO_FULL`` where the audit log cannot be written: nothing was done then; what ``check`` says;
                what the node with the key says against it.
        """
        self.check(wish)
        number = self._next_number()
        changes = change(self._service.view, wish)
        done = await self._carry_out(wish)
        fact = self._entry(number, actor, wish, done, changes)
        try:
            await asyncio.wrap_future(self._service.take(fact))
        except OSError as error:
            raise NodeError(
                Code.STO_FULL, f"It was done, but the audit log cannot be written: {error}."
            ) from error
        return fact, done

    def note(self, actor: str, wish: Wish, carry_out: Callable[[Wish], Done]) -> Done:
        """Carry out what came by another way than HTTP, and write it to the audit log soon.

        Args:
            actor: Who wishes it.
            wish: What.
            carry_out: Does it.

        Raises:
            NodeError: As ``act``.
        """
        number = self._next_number()
        changes = change(self._service.view, wish)
        done = carry_out(wish)
        self._service.take(self._entry(number, actor, wish, done, changes))
        return done

    def _entry(
        self, number: int, actor: str, wish: Wish, done: Done, changes: tuple[dict[str, Any], dict[str, Any]]
    ) -> Acted:
        return Acted(
            seen_at=self._service.clock(), source=self._service.view.run.operator, number=number, actor=actor,
            action=wish.do, peer=wish.peer, reason=wish.reason.strip(), order=done.order, before=changes[0],
            after=changes[1], outcome=done.sentence,
        )  # fmt: skip

    def _next_number(self) -> int:
        """The number of the next entry.

        Raises:
            NodeError: ``STO_FULL``: no entry could be written.
        """
        with self._guard:
            if self._service.recorder.full or self._service.recorder.stuck:
                raise NodeError(Code.STO_FULL, "The audit log cannot be written, so nothing is done.")
            if self._last is None:
                try:
                    self._last = self._service.store.audit_last()
                except StoreError as error:
                    raise NodeError(
                        Code.STO_FULL, f"The audit log cannot be read, so nothing is done. {error}"
                    ) from error
            newest = max((action.number for action in self._service.view.actions), default=0)
            self._last = max(self._last, newest) + 1
            return self._last
