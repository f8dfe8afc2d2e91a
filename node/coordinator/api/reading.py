"""What the API lets be read: the present and its changes, verdict, pages of what is past."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from node.coordinator.alerts import alerts
from node.coordinator.api.answers import (
    NEEDS_TOKEN,
    NOT_FOUND,
    PROBLEMS,
    Anything,
    Door,
    Snapshots,
    answer,
    exported,
    refused,
)
from node.coordinator.api.stream import events
from node.coordinator.facts_json import kind_of, subject_of
from node.coordinator.reading import Credit, Stored
from node.coordinator.service import Service
from node.coordinator.verdict import line, strip
from node.coordinator.view_json import encoded, plain

MOST = 500
"""Entries of a page at most."""

_BIG = 2**53
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many entries at most.")]
Peer = Annotated[str, Path(pattern=r"^[A-Za-z0-9]{1,64}$", description="A peer id.")]
SomePeer = Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,64}$", description="Only of this peer.")]
After = Annotated[int, Query(ge=0, le=_BIG)]
Before = Annotated[int | None, Query(ge=0, le=_BIG, description="Only older ones.")]
Number = Annotated[int, Path(ge=0, le=_BIG)]


def reading(service: Service, door: Door) -> APIRouter:
    """All routes that change nothing."""
    api = APIRouter(prefix="/api/v1", dependencies=[Depends(door)], responses={**PROBLEMS, **NEEDS_TOKEN})
    snapshots = Snapshots(service)

    @api.get("/snapshot", response_model=Anything)
    async def snapshot_now(request: Request, rounds: Annotated[int, Query(ge=0, le=64)] = 3) -> Response:
        """The present. ``boot`` and ``number`` say where the stream of changes goes on from it."""
        body, tag = snapshots.now(rounds)
        return answer(request, body, tag=tag)

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
        body = {
            "at": now, "line": line(view, now, trouble), "strip": strip(view),
            "alerts": alerts(view, now, trouble), "trouble": trouble,
        }  # fmt: skip
        return answer(request, encoded(body))

    @api.get("/members", response_model=Anything)
    async def members(
        request: Request,
        limit: Limit = 100,
        after: Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,64}$")] = "",
    ) -> Response:
        """All peers, by id."""
        held = service.view.members
        peers = sorted(peer for peer in held if peer > after)
        last = peers[limit - 1] if len(peers) > limit else None
        return answer(request, encoded({"members": [held[peer] for peer in peers[:limit]], "next": last}))

    @api.get("/members/{peer}", response_model=Anything, responses=NOT_FOUND)
    async def member(request: Request, peer: Peer) -> Response:
        """One peer, with what was refused of it."""
        found = service.view.members.get(peer)
        if found is None:
            return refused(404, "HTTP-404", "No such peer was seen.")
        refusals = [each for each in service.view.refusals if each.peer == peer]
        evidence = [each for each in service.view.evidence if each.peer == peer]
        return answer(request, encoded({"member": found, "refusals": refusals, "evidence": evidence}))

    @api.get("/rounds", response_model=Anything)
    def rounds(request: Request, limit: Limit = 20, before: Before = None) -> Response:
        """Decided rounds, newest first."""
        page = service.store.round_texts(limit, before)
        last = page[-1][0] if len(page) == limit else None
        texts = ",".join(text for _, text in page)
        return answer(request, f'{{"rounds":[{texts}],"next":{"null" if last is None else last}}}'.encode())

    @api.get("/rounds/{number}", response_model=Anything, responses=NOT_FOUND)
    def round_page(request: Request, number: Number) -> Response:
        """One round with its time line; also the one under way."""
        held = service.view.rounds.get(str(number))
        if held is not None:
            return answer(request, encoded(held))
        text = service.store.round_text(number)
        return answer(request, text.encode()) if text else refused(404, "HTTP-404", "There is no such round.")

    @api.get("/series", response_model=Anything)
    def series(
        request: Request,
        points: Annotated[int, Query(ge=1, le=2000)] = 500,
        first: After = 0,
        last: Annotated[int | None, Query(ge=0, le=_BIG)] = None,
    ) -> Response:
        """Decided rounds as points of a chart, oldest first."""
        found = service.store.series(points, first, last)
        return answer(request, encoded({"points": found}))

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
        return answer(request, encoded({"credits": page, "next": last}))

    @api.get("/credits/totals", response_model=Anything)
    def totals(
        request: Request,
        limit: Limit = 100,
        after: Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,64}$")] = "",
    ) -> Response:
        """Everybody's credits, by peer."""
        page = service.store.totals(limit, after)
        rows = [{"peer": peer, "verified": verified, "rounds": count} for peer, verified, count in page]
        return answer(request, encoded({"totals": rows, "next": page[-1][0] if len(page) == limit else None}))

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
        return answer(request, encoded(body))

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
        return answer(request, encoded({"events": [_event(each) for each in page], "next": last}))

    @api.get("/replay", response_model=Anything)
    def replay(request: Request, at: Annotated[float, Query(ge=0, le=1e11)]) -> Response:
        """The view at an earlier time, Unix seconds, and the verdict then."""
        view, times = service.store.view(until=at), service.store.times()
        body = {"at": at, "times": times, "line": line(view, at), "view": view}
        return answer(request, encoded(body))

    @api.get("/health", response_model=Anything)
    async def health(request: Request) -> Response:
        """Whether this process works: 200 also while the database does not."""
        body = {
            "ok": True, "trouble": service.trouble, "waiting": service.recorder.waiting, "viewers": service.viewers,
            "round": service.view.tip.round,
        }  # fmt: skip
        return answer(request, encoded(body))

    return api


def _place(after: str) -> tuple[int, int, str] | None:
    if not after:
        return None
    epoch, number, peer = after.split(".")
    return int(epoch), int(number), peer


def _event(stored: Stored) -> dict[str, Any]:
    fact = stored.fact
    return {"sequence": stored.sequence, "fact": kind_of(fact), "about": subject_of(fact), **plain(fact)}
