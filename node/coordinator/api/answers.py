"""How answers are made: JSON with ETags, the snapshot encoded once, errors as code, sentence and fix."""

from dataclasses import replace
from typing import Annotated, Any

from blake3 import blake3
from fastapi import Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from node.coordinator.actions import Actions
from node.coordinator.service import Service
from node.coordinator.view_json import encoded
from protocol.errors import NodeError


class Anything(BaseModel):
    """An object whose fields docs/operator.md describes."""

    model_config = ConfigDict(extra="allow")


class Problem(BaseModel):
    """Why a request was refused."""

    code: str
    sentence: str
    fix: str = ""


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "It cannot be done so."},
    413: {"model": Problem, "description": "The request is too large."},
    422: {"model": Problem, "description": "The request cannot be understood."},
    429: {"model": Problem, "description": "Too many requests."},
    503: {"model": Problem, "description": "The database cannot be used now."},
}
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "There is none."}}
NEEDS_TOKEN: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "The operator's token is missing or wrong."},
}


class Door:
    """Whether a request may pass: a dependency. Whom the entry of the pages knows may read."""

    def __init__(self, actions: Actions | None, public: bool) -> None:
        self._actions, self._public = actions, public

    def __call__(
        self,
        request: Request,
        authorization: Annotated[str, Header(description="Bearer and the operator's token.")] = "",
    ) -> None:
        """Let the request pass, or raise."""
        scheme, _, token = authorization.partition(" ")
        right = (
            self._actions is not None and scheme.lower() == "bearer" and self._actions.allowed(token.strip())
        )
        reads = request.method == "GET" and request.scope.get("reader", False)
        if not self._public and not right and not reads:
            raise HTTPException(
                401, "The operator's token is missing or wrong.", {"WWW-Authenticate": "Bearer"}
            )


def refused(status: int, code: str, sentence: str, fix: str = "", **headers: str) -> JSONResponse:
    """A refusal."""
    body = {"code": code, "sentence": sentence, "fix": fix}
    return JSONResponse(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def refused_for(error: NodeError, status: int = 400) -> JSONResponse:
    """The refusal that an error means."""
    return refused(status, str(error.code), error.sentence, error.fix)


def answer(request: Request, data: bytes, kind: str = "application/json", tag: str = "") -> Response:
    """An answer with an ETag; 304 where the client has it already."""
    quoted = f'"{tag or blake3(data).hexdigest(16)}"'
    headers = {"ETag": quoted, "Cache-Control": "no-cache"}
    held = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if quoted in held or "*" in held:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)


class Snapshots:
    """The snapshot as JSON, made once for each change and number of rounds."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tag = ""
        self._held: dict[int, bytes] = {}

    def now(self, rounds: int) -> tuple[bytes, str]:
        """The present with its newest rounds only, and its ETag.

        Args:
            rounds: How many of them.
        """
        service = self._service
        tag = f"{service.boot}-{service.number}-{bool(service.trouble)}"
        if tag != self._tag:
            self._tag, self._held = tag, {}
        if rounds not in self._held:
            view = service.view
            newest = sorted(view.rounds, key=int)[-rounds:] if rounds else []
            view = replace(view, rounds={number: view.rounds[number] for number in newest})
            head = {"boot": service.boot, "number": service.number, "trouble": service.trouble, "view": view}
            self._held[rounds] = encoded(head)
        return self._held[rounds], f"{tag}-{rounds}"


def exported(rows: list[dict[str, Any]], columns: tuple[str, ...], form: str) -> bytes:
    """Rows as ``csv`` or ``parquet``.

    A text that a spreadsheet would take for a formula is quoted.
    """
    import pyarrow as arrow

    if form == "parquet":
        from pyarrow import parquet

        table = arrow.table({name: [row[name] for row in rows] for name in columns})
        sink = arrow.BufferOutputStream()
        parquet.write_table(table, sink)
        return bytes(sink.getvalue())
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
