"""The application: /api/v1 over a service, and its operator's actions."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from node.coordinator.actions import ABOUT_A_PEER, KINDS, MAX_REASON, Actions, Wish
from node.coordinator.alerts import alerts
from node.coordinator.api.answers import (
    NEEDS_TOKEN,
    NOT_FOUND,
    PROBLEMS,
    Encoder,
    answer,
    as_json,
    exported,
    refused,
    refused_for,
)
from node.coordinator.api.guard import Buckets, Guard
from node.coordinator.api.stream import events
from node.coordinator.database import StoreError
from node.coordinator.facts_json import kind_of, subject_of
from node.coordinator.metrics import Metrics
from node.coordinator.reading import Credit, Stored
from node.coordinator.service import Service
from node.coordinator.verdict import line, strip
from node.coordinator.view_json import plain, snapshot
from protocol.errors import NodeError

MOST = 500
"""Entries of a page at most."""

_BIG = 2**53
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many entries at most.")]
Peer = Annotated[str, Path(pattern=r"^[A-Za-z0-9]{1,64}$", description="A peer id.")]
SomePeer = Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,64}$", description="Only of this peer.")]
After = Annotated[int, Query(ge=0, le=_BIG)]
Before = Annotated[int | None, Query(ge=0, le=_BIG, description="Only older ones.")]
Number = Annotated[int, Path(ge=0, le=_BIG)]


class Order(BaseModel):
    """An operator's action."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Literal[KINDS]  # type: ignore[valid-type]
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON, pattern=r"\S")]
    confirm: Annotated[Literal[True], Field(description="Must be true: the operator has seen what it does.")]
    peer: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9]*$")] = ""
    name: Annotated[str, Field(max_length=64, pattern=r"^[a-z_.]*$")] = ""
    value: Annotated[str, Field(max_length=64, pattern=r"^[ -~]*$")] = ""


class Anything(BaseModel):
    """An object whose fields docs/operator.md describes."""

    model_config = ConfigDict(extra="allow")


def make_app(
    service: Service,
    actions: Actions | None = None,
    *,
    public: bool = True,
    buckets: Buckets | None = None,
    more: Callable[[FastAPI], None] = lambda app: None,
    beside: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (),
) -> FastAPI:
    """The application over a service; it runs the service for as long as it lives.

    Args:
        service: What is shown; ``begin`` was called.
        actions: What the operator may do; None for a coordinator without the key.
        public: Whether reading needs no token.
        buckets: How often a client may ask.
        more: Adds routes before the application starts.
        beside: What else runs in its loop for as long as it lives.
    """

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        running = [asyncio.ensure_future(each()) for each in (service.run, *beside)]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    app = FastAPI(
        title="intellect-node coordinator", version="1", lifespan=life, docs_url=None, redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )  # fmt: skip
    app.add_middleware(Guard, buckets=buckets)
    _say_errors(app)
    app.include_router(_reading(service, _Door(actions, public)))
    if actions is not None:
        app.include_router(_acting(actions, _Door(actions, public=False)))
    door, metrics = _Door(actions, public), Metrics(service)

    @app.get("/metrics", include_in_schema=False, dependencies=[Depends(door)])
    async def metrics_now() -> Response:
        """The view's numbers for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    more(app)
    return app


class _Door:
    """Whether a request may pass: a dependency."""

    def __init__(self, actions: Actions | None, public: bool) -> None:
        self._actions, self._public = actions, public

    def __call__(
        self, authorization: Annotated[str, Header(description="Bearer and the operator's token.")] = ""
    ) -> None:
        scheme, _, token = authorization.partition(" ")
        right = (
            self._actions is not None and scheme.lower() == "bearer" and self._actions.allowed(token.strip())
        )
        if not self._public and not right:
            raise HTTPException(
                401, "The operator's token is missing or wrong.", {"WWW-Authenticate": "Bearer"}
            )


def _say_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        where = ", ".join(".".join(map(str, each["loc"])) for each in error.errors()[:5])
        return refused(
            422, "E-CFG-006", f"The request cannot be understood: {where[:200]}.", "See the OpenAPI document."
        )

    @app.exception_handler(StoreError)
    async def broken(request: Request, error: StoreError) -> JSONResponse:
        return refused(503, "E-STO-002", str(error), "Wait; nothing is lost.", Retry_After="5")

    @app.exception_handler(NodeError)
    async def said(request: Request, error: NodeError) -> JSONResponse:
        return refused_for(error)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return JSONResponse(
            {"code": f"HTTP-{error.status_code}", "sentence": str(error.detail), "fix": ""}, error.status_code,
            dict(error.headers or {}),
        )  # fmt: skip


def _reading(service: Service, door: _Door) -> APIRouter:
    api = APIRouter(prefix="/api/v1", dependencies=[Depends(door)], responses={**PROBLEMS, **NEEDS_TOKEN})
    encoder = Encoder()

    @api.get("/snapshot", response_model=Anything)
    async def snapshot_now(request: Request, rounds: Annotated[int, Query(ge=0, le=64)] = 3) -> Response:
        """The present. ``boot`` and ``number`` say where the stream of changes goes on from it."""
        body = (
            f'{{"boot":{as_json(service.boot)},"number":{service.number},"trouble":{as_json(service.trouble)},'
            f'"view":{encoder.view(service.view, rounds)}}}'
        )
        return answer(request, body, tag=f"{service.boot}-{service.number}-{rounds}-{bool(service.trouble)}")

    @api.get(
        "/deltas", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}}
    )
    async def deltas(
        request: Request,
        after: Annotated[str, Query(pattern=r"^([0-9a-f]{8}\.[0-9]{1,15})?$")] = "",
        last_event_id: Annotated[str, Header()] = "",
    ) -> StreamingResponse:
        """Changes as server-sent events. An event ``begin`` says that the snapshot has to be read (again)."""
        stream = events(service, last_event_id or after)
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @api.get("/verdict", response_model=Anything)
    async def verdict(request: Request) -> Response:
        """What happens now, in a sentence; the phase strip; the alerts."""
        now, view, trouble = service.clock(), service.view, service.trouble
        dots = {phase: plain([asdict(dot) for dot in dots]) for phase, dots in strip(view).items()}
        body = {
            "at": now, "line": asdict(line(view, now, trouble)), "strip": dots,
            "alerts": [asdict(alert) for alert in alerts(view, now, trouble)], "trouble": trouble,
        }  # fmt: skip
        return answer(request, as_json(body))

    @api.get("/members", response_model=Anything)
    async def members(
        request: Request,
        limit: Limit = 100,
        after: Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,64}$")] = "",
    ) -> Response:
        """All peers, by id."""
        held = service.view.members
        peers = sorted(peer for peer in held if peer > after)
        page = ",".join(encoder.entry("members", peer, held[peer]) for peer in peers[:limit])
        last = as_json(peers[limit - 1] if len(peers) > limit else None)
        return answer(request, f'{{"members":[{page}],"next":{last}}}')

    @api.get("/members/{peer}", response_model=Anything, responses=NOT_FOUND)
    async def member(request: Request, peer: Peer) -> Response:
        """One peer, with what was refused of it."""
        found = service.view.members.get(peer)
        if found is None:
            return refused(404, "HTTP-404", "No such peer was seen.")
        refusals = [plain(each) for each in service.view.refusals if each.peer == peer]
        evidence = [plain(each) for each in service.view.evidence if each.peer == peer]
        return answer(request, as_json({"member": plain(found), "refusals": refusals, "evidence": evidence}))

    @api.get("/rounds", response_model=Anything)
    def rounds(request: Request, limit: Limit = 20, before: Before = None) -> Response:
        """Decided rounds, newest first."""
        page = service.store.rounds(limit, before)
        return answer(
            request, as_json({"rounds": page, "next": page[-1]["round"] if len(page) == limit else None})
        )

    @api.get("/rounds/{number}", response_model=Anything, responses=NOT_FOUND)
    def round_page(request: Request, number: Number) -> Response:
        """One round with its time line; also the one under way."""
        held = service.view.rounds.get(str(number))
        found = plain(held) if held is not None else service.store.round(number)
        return (
            answer(request, as_json(found)) if found else refused(404, "HTTP-404", "There is no such round.")
        )

    @api.get("/series", response_model=Anything)
    def series(
        request: Request,
        points: Annotated[int, Query(ge=1, le=2000)] = 500,
        first: After = 0,
        last: Annotated[int | None, Query(ge=0, le=_BIG)] = None,
    ) -> Response:
        """Decided rounds as points of a chart, oldest first."""
        found = service.store.series(points, first, last)
        return answer(request, as_json({"points": [asdict(point) for point in found]}))

    @api.get("/credits", response_model=Anything)
    def credits(
        request: Request,
        limit: Limit = 100,
        peer: SomePeer = "",
        after: Annotated[str, Query(pattern=r"^([0-9]{1,15}\.[0-9]{1,15}\.[A-Za-z0-9]{1,64})?$")] = "",
    ) -> Response:
        """The credit ledger: what certified rounds list, with running totals."""
        page = service.store.credits(limit, peer=peer, after=_place(after))
        last = f"{page[-1].epoch}.{page[-1].round}.{page[-1].peer}" if len(page) == limit else None
        return answer(request, as_json({"credits": [asdict(each) for each in page], "next": last}))

    @api.get("/credits/totals", response_model=Anything)
    def totals(
        request: Request,
        limit: Limit = 100,
        after: Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,64}$")] = "",
    ) -> Response:
        """Everybody's credits, by peer."""
        page = service.store.totals(limit, after)
        rows = [{"peer": peer, "verified": verified, "rounds": count} for peer, verified, count in page]
        return answer(request, as_json({"totals": rows, "next": page[-1][0] if len(page) == limit else None}))

    @api.get(
        "/credits/export.{form}", response_class=Response,
        responses={200: {"content": {"text/csv": {}, "application/vnd.apache.parquet": {}}}},
    )  # fmt: skip
    def export(request: Request, form: Literal["csv", "parquet"], peer: SomePeer = "") -> Response:
        """The whole credit ledger as a file."""
        rows, after = list[dict[str, Any]](), None
        while page := service.store.credits(5000, peer=peer, after=after):
            rows += [asdict(each) for each in page]
            after = (page[-1].epoch, page[-1].round, page[-1].peer)
        columns = tuple(Credit.__dataclass_fields__)
        kind = "text/csv" if form == "csv" else "application/vnd.apache.parquet"
        return answer(request, exported(rows, columns, form), kind)

    @api.get("/audit", response_model=Anything)
    def audit(request: Request, limit: Limit = 50, before: Before = None) -> Response:
        """The audit log, newest first. ``broken`` names the first entry that is not as it was written."""
        page = service.store.audit(limit, before)
        body = {
            "entries": page, "broken": service.store.audit_broken(),
            "next": page[-1]["number"] if len(page) == limit else None,
        }  # fmt: skip
        return answer(request, as_json(body))

    @api.get("/events", response_model=Anything)
    def facts(
        request: Request,
        limit: Limit = 100,
        peer: SomePeer = "",
        kind: Annotated[str, Query(pattern=r"^[a-z.-]{0,64}$")] = "",
        before: Before = None,
    ) -> Response:
        """What was learned, newest first."""
        kinds = (kind,) if kind else ()
        page = service.store.newest(limit, peer=peer, kinds=kinds, before=before)
        last = page[-1].sequence if len(page) == limit else None
        return answer(request, as_json({"events": [_event(each) for each in page], "next": last}))

    @api.get("/replay", response_model=Anything)
    def replay(request: Request, at: Annotated[float, Query(ge=0, le=1e11)]) -> Response:
        """The view at an earlier time, Unix seconds, and the verdict then."""
        view, times = service.store.view(until=at), service.store.times()
        body = {"at": at, "times": times, "line": asdict(line(view, at)), "view": snapshot(view)}
        return answer(request, as_json(body))

    @api.get("/health", response_model=Anything)
    async def health(request: Request) -> Response:
        """Whether this process works: 200 also while the database does not."""
        body = {
            "ok": True, "trouble": service.trouble, "waiting": service.recorder.waiting, "viewers": service.viewers,
            "round": service.view.tip.round,
        }  # fmt: skip
        return answer(request, as_json(body))

    return api


def _acting(actions: Actions, door: _Door) -> APIRouter:
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


def _place(after: str) -> tuple[int, int, str] | None:
    if not after:
        return None
    epoch, number, peer = after.split(".")
    return int(epoch), int(number), peer


def _event(stored: Stored) -> dict[str, Any]:
    fact = stored.fact
    return {"sequence": stored.sequence, "fact": kind_of(fact), "about": subject_of(fact), **plain(fact)}
