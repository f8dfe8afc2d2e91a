"""What the API lets the operator do."""

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Depends, Path, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from node.coordinator.actions import ABOUT_A_PEER, KINDS, Actions
from node.coordinator.api.answers import NEEDS_TOKEN, PROBLEMS, Anything, Door, refused
from node.coordinator.view_json import plain
from node.roles.invitations import MAX_USES
from node.roles.wish import LONGEST, MAX_REASON, Wish


class Order(BaseModel):
    """An operator's action."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Literal[KINDS]  # type: ignore[valid-type]
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON, pattern=r"\S")]
    confirm: Annotated[Literal[True], Field(description="Must be true: the operator has seen what it does.")]
    peer: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9]*$")] = ""
    name: Annotated[str, Field(max_length=64, pattern=r"^[a-z_.]*$")] = ""
    value: Annotated[str, Field(max_length=64, pattern=r"^[ -~]*$")] = ""
    round: Annotated[int, Field(ge=-1, le=2**53, description="From this round on; -1 for at once.")] = -1
    seconds: Annotated[
        int, Field(ge=0, le=LONGEST, description="How long a ban lasts; 0 without an end.")
    ] = 0


class Invite(BaseModel):
    """An invitation that is to be made."""

    model_config = ConfigDict(extra="forbid", strict=True)

    uses: Annotated[int, Field(ge=1, le=MAX_USES, description="How many peers it lets in.")] = 1
    seconds: Annotated[int, Field(ge=1, le=366 * 86_400, description="How long it is good.")] = 7 * 86_400
    note: Annotated[str, Field(max_length=200)] = ""
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON, pattern=r"\S")]


def acting(actions: Actions, door: Door) -> APIRouter:
    """All routes that need the operator's token."""
    api = APIRouter(prefix="/api/v1", dependencies=[Depends(door)], responses={**PROBLEMS, **NEEDS_TOKEN})

    @api.post("/actions", response_model=Anything)
    async def act(order: Annotated[Order, Body()]) -> Response:
        """Order something; it is numbered, signed, and acts once a value names it. Everything is in the audit log."""
        if order.action in ABOUT_A_PEER and not order.peer:
            return refused(400, "E-CFG-006", f"{order.action} needs a peer.", 'Send "peer".')
        wish = Wish(
            order.action, order.reason, order.peer, order.name, order.value, order.round, order.seconds
        )
        entry, done = await actions.act("operator", wish)
        return JSONResponse({**plain(entry), "waits": done.number})

    @api.get("/planned", response_model=Anything)
    def planned() -> Response:
        """Orders that wait for a round or a time, such as the ends of bans; the action ``drop`` ends one."""
        return JSONResponse({"planned": actions.listed("planned")})

    @api.get("/invitations", response_model=Anything)
    def invitations() -> Response:
        """All invitations, and whom each let in. Their tokens are kept nowhere."""
        return JSONResponse({"invitations": actions.listed("invitations")})

    @api.post("/invitations", response_model=Anything)
    async def invite(wanted: Annotated[Invite, Body()]) -> Response:
        """Make an invitation. The answer alone holds its token."""
        wish = Wish("invite", wanted.reason, name=wanted.note, seconds=wanted.seconds, uses=wanted.uses)
        _, done = await actions.act("operator", wish)
        return JSONResponse({"number": done.number, "token": done.secret, "sentence": done.sentence})

    @api.delete("/invitations/{number}", response_model=Anything)
    async def uninvite(
        number: Annotated[int, Path(ge=1, le=2**53)],
        reason: Annotated[str, Query(min_length=1, max_length=MAX_REASON, pattern=r"\S")],
    ) -> Response:
        """End an invitation; whom it let in stays."""
        _, done = await actions.act("operator", Wish("uninvite", reason, value=str(number)))
        return JSONResponse({"sentence": done.sentence})

    return api
