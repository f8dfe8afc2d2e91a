"""What every request passes and every answer carries: rate limits, size limits, security headers. Plain ASGI."""

import json
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
"""Bytes of a request's body at most."""

RATE = 50.0
"""Requests per second and client over time."""

BURST = 200.0
"""Requests of one client at once; a page with all its parts is some dozens."""

_CLIENTS = 4096

API_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""Content policy of everything that is no page."""

PAGE_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Content policy of pages: nothing of a third party; docs/threat-model.md says why inline script is in it."""

_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


class Buckets:
    """How often each client may ask: a token bucket per client; the least recently seen is forgotten.

    Args:
        rate: Tokens per second.
        burst: Tokens at most.
        clock: Monotonic seconds.
    """

    def __init__(
        self, rate: float = RATE, burst: float = BURST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one token; 0 where there was one, else the seconds until there is."""
        now = self._clock()
        left, at = self._held.get(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate
        self._held[client] = (left - 1 if left >= 1 else left, now)
        self._held.move_to_end(client)
        if len(self._held) > _CLIENTS:
            self._held.popitem(last=False)
        return wait


class Guard:
    """Stands before the application.

    Args:
        app: The application.
        buckets: How often a client may ask.
    """

    def __init__(self, app: ASGIApp, buckets: Buckets | None = None) -> None:
        self._app, self._buckets = app, buckets or Buckets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket" and not _same_origin(scope):
                await receive()
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        policy = API_POLICY if scope["path"].startswith(("/api/", "/metrics")) else PAGE_POLICY

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add(message, {**_HEADERS, b"content-security-policy": policy.encode()})
            await send(message)

        client = scope["client"][0] if scope.get("client") else ""
        wait = self._buckets.take(client)
        if wait > 0:
            after = {b"retry-after": str(int(wait) + 1).encode()}
            await _refuse(answer, 429, "E-NET-005", "Too many requests; ask again later.", after)
            return
        length = _header(scope, b"content-length")
        if length is not None and (not length.isdigit() or int(length) > MAX_BODY):
            await _refuse(answer, 413, "E-WIRE-002", f"A request may have {MAX_BODY} bytes.", {})
            return
        seen = 0

        async def bounded() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            return {"type": "http.disconnect"} if seen > MAX_BODY else message

        await self._app(scope, bounded, answer)


def _same_origin(scope: Scope) -> bool:
    """Whether a web socket was opened by a page of this server, or by no page at all."""
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    return origin is None or origin.partition(b"://")[2] == host


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)


def _add(message: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> None:
    held = {key.lower() for key, _ in message.get("headers", ())}
    more = [(key, value) for key, value in headers.items() if key not in held]
    message["headers"] = [*message.get("headers", ()), *more]


async def _refuse(send: Send, status: int, code: str, sentence: str, headers: dict[bytes, bytes]) -> None:
    body = json.dumps({"code": code, "sentence": sentence, "fix": ""}).encode()
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*start, *headers.items()]})
    await send({"type": "http.response.body", "body": body})
