"""The application: /api/v1 over a service, and its operator's actions."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from node.coordinator.actions import Actions
from node.coordinator.api.acting import acting
from node.coordinator.api.answers import Door, refused, refused_for
from node.coordinator.api.guard import Buckets, Guard
from node.coordinator.api.reading import reading
from node.coordinator.database import StoreError
from node.coordinator.metrics import Metrics
from node.coordinator.service import Service
from protocol.errors import NodeError


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
    app.include_router(reading(service, Door(actions, public)))
    if actions is not None:
        app.include_router(acting(actions, Door(actions, public=False)))
    door, metrics = Door(actions, public), Metrics(service)

    @app.get("/metrics", include_in_schema=False, dependencies=[Depends(door)])
    async def metrics_now() -> Response:
        """The view's numbers for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    more(app)
    return app


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
