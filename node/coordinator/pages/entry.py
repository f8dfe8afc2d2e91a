"""Pages of a run that is not public: who shows the operator's token once may read for half a day.

What a browser keeps is a cookie that no script sees and no other site's page sends. It lets its holder read; an order
needs the token itself each time.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from node.coordinator.actions import Actions
from node.coordinator.pages.site import ASSETS

PATH = "/enter"
COOKIE = "reader"
LASTS = 12 * 3600.0
"""Seconds that a cookie is good."""

_MOST = 256

_PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Not public</title><link rel="stylesheet" href="{ASSETS}/dashboard.css">
<script defer src="{ASSETS}/enter.js"></script></head>
<body><div id="content"><h1>This run is not public</h1>
<form id="enter" class="card"><label class="ask-field"><span>Operator's token</span>
<input class="field" type="password" name="token" maxlength="200" autocomplete="off" autofocus></label>
<p id="said" class="sign bad" role="alert"></p><button class="button go">Enter</button></form></div></body></html>
"""


class Entry:
    """Stands before pages and API of a run that is not public: ASGI.

    Args:
        app: The application. Its own door stands before the API; it lets pass whom ``scope["reader"]`` calls one.
        actions: Knows the operator's token.
        clock: Monotonic seconds.
    """

    def __init__(
        self, app: ASGIApp, actions: Actions, clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        self._app, self._actions, self._clock = app, actions, clock
        self._readers: OrderedDict[str, float] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or web socket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        if scope["type"] == "http" and path == PATH and scope["method"] == "POST":
            await self._enter(headers)(scope, receive, send)
        elif self._reads(headers):
            scope["reader"] = True
            await self._app(scope, receive, send)
        elif path.startswith(("/api/", f"{ASSETS}/")) or path == "/metrics":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await HTMLResponse(_PAGE, 401, {"Cache-Control": "no-store"})(scope, receive, send)

    def _enter(self, headers: Headers) -> Response:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._actions.allowed(token.strip()):
            return Response(status_code=401)
        name = secrets.token_urlsafe(32)
        self._readers[name] = self._clock() + LASTS
        if len(self._readers) > _MOST:
            self._readers.popitem(last=False)
        answer = Response(status_code=204)
        answer.set_cookie(COOKIE, name, max_age=int(LASTS), httponly=True, samesite="strict", path="/")
        return answer

    def _reads(self, headers: Headers) -> bool:
        try:
            held = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return held is not None and self._readers.get(held.value, 0.0) > self._clock()
