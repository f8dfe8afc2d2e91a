"""What the API lets the operator do."""

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Depends
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from node.coordinator.actions import ABOUT_A_PEER, KINDS, MAX_REASON, Actions, Wish
from node.coordinator.api.answers import NEEDS_TOKEN, PROBLEMS, Anything, Door, refused
from node.coordinator.view_json import plain


class Order(BaseModel):
    """An operator's action."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Literal[KINDS]  # type: ignore[valid-type]
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON, pattern=r"\S")]
    confirm: Annotated[Literal[True], Field(description="Must be true: the operator has seen what it does.")]
    peer: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9]*$")] = ""
    name: Annotated[str, Field(max_length=64, pattern=r"^[a-z_.]*$")] = ""
    value: Annotated[str, Field(max_length=64, pattern=r"^[ -~]*$")] = ""


def acting(actions: Actions, door: Door) -> APIRouter:
    """All routes that need the operator's token."""
    api = APIRouter(prefix="/api/v1", dependencies=[Depends(door)], responses={**PROBLEMS, **NEEDS_TOKEN})

    @api.post("/actions", response_model=Anything)
    async def act(order: Annotated[Order, Body()]) -> Response:
        """Order something; it is numbered, signed, and acts once a value names it. Everything is in the audit log."""
        if order.action in ABOUT_A_PEER and not order.peer:
            return refused(400, "E-CFG-006", f"{order.action} needs a peer.", 'Send "peer".')
        wish = Wish(order.action, order.reason, order.peer, order.name, order.value)
        done = await actions.act("operator", wish)
        return JSONResponse(plain(done))

    return api
