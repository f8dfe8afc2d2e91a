"""The engine over HTTP: the questions of OpenAI's API, tokens in and out, and a control route for its own daemon."""

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from protocol.errors import CATALOGUE, Code, NodeError
from protocol.units import Digest
from rl.engine import asking
from rl.engine.answering import Answers
from rl.engine.asking import Asked, Texts, refused
from rl.engine.service import TorchEngine
from rl.sampling.ending import Decode

_STATUS: Final = {
    Code.RL_REQUEST: 400,
    Code.RL_BUSY: 503,
    Code.RL_GONE: 410,
    Code.RL_WEIGHTS: 409,
    Code.RL_ENGINE: 500,
}
_BYTES_PER_TOKEN = 16
_BYTES_BESIDE = 2**18
_PACE = 30.0
"""Seconds within which a client has to send its question, and to take what is written to it."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        token: Asked of everybody, if there is one.
        control: Asked for the control routes; without one there are none.
    """

    token: str | None = None
    control: str | None = None


class Server:
    """The routes of one engine."""

    def __init__(
        self,
        engine: TorchEngine,
        model: str,
        context: int,
        texts: Texts,
        decode: Decode | None,
        access: Access,
        most: int,
    ) -> None:
        """Serve an engine.

        Args:
            engine: Who answers.
            model: Its name.
            context: Tokens that it sees at once.
            texts: What it knows of text.
            decode: Token ids to text, if it knows any.
            access: Who may ask.
            most: Questions at once; a body is read only where there is a place for it.
        """
        self._engine, self._model, self._context = engine, model, context
        self._texts, self._decode, self._access = texts, decode, access
        self._most, self._open = most, 0
        self._since = int(time.time())

    def app(self) -> web.Application:
        """The application; a question's body is bounded by what the model's context can hold."""
        app = web.Application(
            middlewares=[self._guard], client_max_size=_BYTES_BESIDE + _BYTES_PER_TOKEN * self._context
        )
        for path, form, read in (
            ("/v1/chat/completions", "chat", asking.chat),
            ("/v1/completions", "completion", asking.completion),
            ("/inference/v1/generate", "turn", asking.turn),
        ):
            app.router.add_post(path, self._asking(form, read))
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        if self._access.control is not None:
            app.router.add_post("/control/update", self._update)
            app.router.add_post("/control/release", self._release)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            token = self._access.control if request.path.startswith("/control/") else self._access.token
            if token is not None and request.path != "/health" and not _shows(request, token):
                return _problem(
                    401, "E-RL-020", "This engine asks for a token.", "Send it as a bearer token."
                )
            return await handler(request)
        except NodeError as error:
            status = _STATUS.get(error.code, 500)
            headers = {"Retry-After": "1"} if status == 503 else None
            return _problem(status, error.code.value, error.sentence, error.fix, headers)
        except web.HTTPRequestEntityTooLarge:
            return _problem(
                413,
                Code.RL_REQUEST.value,
                f"The question is longer than what the model's context of {self._context} tokens can hold.",
                CATALOGUE[Code.RL_REQUEST].fix,
            )
        except web.HTTPException as error:
            return _problem(
                error.status,
                Code.RL_REQUEST.value,
                f"{error.reason}: {request.path[:100]}",
                "Ask another way.",
            )

    def _asking(self, form: str, read: Callable[[Mapping[str, Any], Texts], Asked]) -> _Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            if self._open >= self._most:
                raise NodeError(Code.RL_BUSY, f"The engine answers {self._open} questions already.")
            self._open += 1
            try:
                return await answer(request)
            finally:
                self._open -= 1

        async def answer(request: web.Request) -> web.StreamResponse:
            body = await _body(request)
            model = body.get("model")
            if model not in (None, "", self._model):
                raise refused(f"This engine runs {self._model}, not {str(model)[:80]!r}.")
            asked = read(body, self._texts)
            answers = Answers(form, asked, self._model, self._decode)
            if asked.stream:
                return await self._stream(request, asked, answers)
            async with aclosing(self._engine.generate(asked.request)) as pieces:
                return web.json_response(answers.whole([piece async for piece in pieces]))

        return handler

    async def _stream(self, request: web.Request, asked: Asked, answers: Answers) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        events = answers.events()
        async with aclosing(self._engine.generate(asked.request)) as pieces:
            try:
                async for piece in pieces:
                    if not response.prepared:  # only now is it certain that there is no error to answer
                        await response.prepare(request)
                    for event in events.of(piece):
                        async with asyncio.timeout(_PACE):
                            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            except NodeError as error:
                if not response.prepared:
                    raise
                await response.write(
                    b"data: " + json.dumps(_error(error.code.value, error.sentence, error.fix)).encode()
                )
            await response.write(b"data: [DONE]\n\n")
        return response

    async def _models(self, request: web.Request) -> web.Response:
        entry = {
            "id": self._model,
            "object": "model",
            "created": self._since,
            "owned_by": "intellect-node",
            "max_model_len": self._context,
            "policy_version": self._engine.version,
        }
        return web.json_response({"object": "list", "data": [entry]})

    async def _health(self, request: web.Request) -> web.Response:
        failed = self._engine.failure
        status = {"status": "failed" if failed else "ok", "policy_version": self._engine.version}
        return web.json_response(status, status=503 if failed else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        counts = asdict(self._engine.counts)
        lines = []
        for name, value in counts.items():
            lines += [f"# TYPE rl_engine_{name}_total counter", f"rl_engine_{name}_total {value}"]
        for name, value in (("running", self._engine.running), ("policy_version", self._engine.version)):
            lines += [f"# TYPE rl_engine_{name} gauge", f"rl_engine_{name} {value}"]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")

    async def _update(self, request: web.Request) -> web.Response:
        body = await _body(request)
        version, path, digest = body.get("version"), body.get("path"), body.get("digest")
        if (
            type(version) is not int
            or not isinstance(path, str)
            or not isinstance(digest, str)
            or len(digest) != 64
        ):
            raise refused("An update names a version, a path and a digest of 64 digits.")
        try:
            raw = bytes.fromhex(digest)
        except ValueError:
            raise refused("The digest is not hexadecimal.") from None
        spent = await self._engine.update(version, Path(path), Digest(raw))
        return web.json_response({"policy_version": self._engine.version, "cpu_seconds": spent})

    async def _release(self, request: web.Request) -> web.Response:
        id = (await _body(request)).get("id")
        if not isinstance(id, str):
            raise refused("A release names an id.")
        await self._engine.release(id)
        return web.json_response({})


def _shows(request: web.Request, token: str) -> bool:
    shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return hmac.compare_digest(shown.encode(), token.encode())


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        async with asyncio.timeout(_PACE):
            raw = await request.read()
        body = json.loads(raw)
    except TimeoutError:
        raise refused("The question did not come in time.") from None
    except (ValueError, RecursionError):
        raise refused("The question is not JSON.") from None
    if not isinstance(body, dict):
        raise refused("The question is not a JSON object.")
    return body


def _error(code: str, sentence: str, fix: str) -> dict[str, Any]:
    kind = "invalid_request_error" if code == Code.RL_REQUEST.value else "server_error"
    return {"error": {"message": f"{sentence} {fix}".strip(), "type": kind, "code": code, "param": None}}


def _problem(
    status: int, code: str, sentence: str, fix: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.json_response(_error(code, sentence, fix), status=status, headers=headers)
