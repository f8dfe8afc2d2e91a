"""How answers are made: JSON with ETags, pieces of the view encoded once, errors as code, sentence and fix."""

import json
from typing import Any

from blake3 import blake3
from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from node.coordinator.view import KEYED, View
from node.coordinator.view_json import plain
from protocol.errors import NodeError


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


def refused(status: int, code: str, sentence: str, fix: str = "", **headers: str) -> JSONResponse:
    """A refusal."""
    body = {"code": code, "sentence": sentence, "fix": fix}
    return JSONResponse(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def refused_for(error: NodeError, status: int = 400) -> JSONResponse:
    """The refusal that an error means."""
    return refused(status, str(error.code), error.sentence, error.fix)


def answer(request: Request, body: str | bytes, kind: str = "application/json", tag: str = "") -> Response:
    """An answer with an ETag; 304 where the client has it already."""
    data = body.encode() if isinstance(body, str) else body
    quoted = f'"{tag or blake3(data).hexdigest(16)}"'
    headers = {"ETag": quoted, "Cache-Control": "no-cache"}
    held = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if quoted in held or "*" in held:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)


def as_json(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


class Encoder:
    """Encodes views, each of their entries once for as long as it stays the same object."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[object, str]] = {}

    def entry(self, topic: str, key: str, value: object) -> str:
        """The JSON of one entry."""
        held = self._held.get((topic, key))
        if held is None or held[0] is not value:
            held = (value, as_json(plain(value)))
            self._held[topic, key] = held
        return held[1]

    def view(self, view: View, rounds: int) -> str:
        """The JSON of a view with its newest rounds only.

        Args:
            view: The view.
            rounds: How many of them.
        """
        newest = sorted(view.rounds, key=int)[-rounds:] if rounds else []
        parts = []
        for topic, value in vars(view).items():
            if topic in KEYED:
                chosen = newest if topic == "rounds" else value
                inner = ",".join(f"{as_json(key)}:{self.entry(topic, key, value[key])}" for key in chosen)
                parts.append(f'"{topic}":{{{inner}}}')
            else:
                parts.append(f'"{topic}":{self.entry(topic, "", value)}')
        self._forget(view)
        return f"{{{','.join(parts)}}}"

    def _forget(self, view: View) -> None:
        for topic, key in [place for place in self._held if place[1]]:
            if key not in getattr(view, topic):
                del self._held[topic, key]


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
