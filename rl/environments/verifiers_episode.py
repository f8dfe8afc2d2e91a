"""Episodes of an environment of ``verifiers`` whose model is whoever calls: each waits at a question for its answer.

An episode asks a model over HTTP. The model here is a server on loopback that hands each question to the episode's
owner and sends back what the owner says. All episodes of a process are on one event loop in a thread of its own.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.clients.client import SESSION_ID_HEADER

from protocol.errors import Code, NodeError
from rl.environments import tool_calls
from rl.environments.interface import Message, Messages, Role

_T = TypeVar("_T")
_BODY = 16 << 20
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "tool": "tool"}


class Episodes:
    """Starts episodes of one environment. Its methods but `call` belong to its own loop.

    Args:
        env: The environment.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._live: dict[str, Episode] = {}
        self._loop = asyncio.new_event_loop()
        self._path = f"/{secrets.token_hex(16)}/v1/chat/completions"
        self._context: Any = None
        self._held = contextlib.AsyncExitStack()
        self._starting = asyncio.Lock()
        threading.Thread(target=self._loop.run_forever, name="episodes", daemon=True).start()

    def call(self, what: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run something on the loop."""
        return asyncio.run_coroutine_threadsafe(what, self._loop)

    async def begin(self, task: Any) -> "Episode":
        """A new episode, at its first question.

        Raises:
            NodeError: RL_ENVIRONMENT_FAILED when it does not get there.
        """
        async with self._starting:
            if self._context is None:
                self._context = await self._serve()
        episode = Episode(self._live)
        episode.start(self._env.run_episode(task, self._context, on_trace=episode.traced))
        await episode.next()
        if episode.over:
            raise failed("it ends before the model says anything")
        return episode

    async def close(self) -> None:
        """Serve no more; episodes have ended before."""
        await self._held.aclose()

    async def _serve(self) -> Any:
        app = web.Application(client_max_size=_BODY)
        app.router.add_post(self._path, self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._held.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        await self._held.enter_async_context(self._env.serving())
        host, port = runner.addresses[0][:2]
        base = f"http://{host}:{port}{self._path.removesuffix('/chat/completions')}"
        return vf.ModelContext(
            "policy", vf.EvalClientConfig(base_url=base, api_key_var="INTELLECT_NODE_NO_KEY")
        )

    async def _answer(self, request: web.Request) -> web.Response:
        episode = self._live.get(request.headers.get(SESSION_ID_HEADER, ""))
        answer = None if episode is None else await episode.asked(await request.json())
        if answer is None:
            return web.json_response({"error": {"message": "the conversation is over"}}, status=400)
        return web.json_response(answer)


class Episode:
    """One episode.

    Attributes:
        opening: The first question's messages.
        heard: What was said to the model's last turn; None before the first one, and at the end.
        over: Whether it has ended.
        reward: What it was worth, once it has.
    """

    def __init__(self, live: "dict[str, Episode]") -> None:
        self._live = live
        self._traces: list[Any] = []
        self._questions: asyncio.Queue[asyncio.Future[dict[str, Any] | None]] = asyncio.Queue()
        self._pending: asyncio.Future[dict[str, Any] | None] | None = None
        self._seen: list[Any] = []
        self._turn = 0
        self._failure = ""
        self.opening: Messages = ()
        self.heard: Message | None = None
        self.over = False
        self.reward = 0.0

    def start(self, run: Coroutine[Any, Any, Any]) -> None:
        """Let it run up to its first question."""
        self._run = asyncio.ensure_future(run)

    def traced(self, trace: Any) -> None:
        """A conversation of this episode begins."""
        self._traces.append(trace)
        self._live[trace.id] = self
        if len(self._traces) > 1:
            self._fail("it has several conversations with models, of which one alone can be learnt from")

    async def asked(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """A question arrives; what to answer, or None to refuse."""
        if self.over or self._failure or self._run.done():
            return None
        try:
            self._read(body)
        except NodeError as error:
            self._fail(error.sentence)
            return None
        question: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._questions.put_nowait(question)
        return await question

    async def say(self, text: str) -> Message | None:
        """Answer the question; what the environment says to it, None if nothing any more.

        Raises:
            NodeError: RL_ENVIRONMENT_FAILED when it fails.
        """
        assert self._pending is not None and not self.over
        self._turn += 1
        self._pending.set_result(_completion(text, self._turn))
        await self.next()
        return self.heard

    async def end(self) -> None:
        """End it here, as where turns are used up; then it has its reward.

        Raises:
            NodeError: RL_ENVIRONMENT_FAILED when it fails.
        """
        assert self._pending is not None and not self.over
        for trace in self._traces:
            trace.stop("max_turns")
        self._pending.set_result(None)
        await self.next()
        if not self.over:
            await self.close()
            raise failed("it asks on where its turns were used up")

    async def next(self) -> None:
        """Wait for the next question, or for the end."""
        waiting = asyncio.ensure_future(self._questions.get())
        try:
            await asyncio.wait((waiting, self._run), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                self._pending = waiting.result()
                return
        finally:
            waiting.cancel()
        self._finish()

    async def close(self) -> None:
        """Drop it."""
        self.over = True
        self._run.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._run
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(None)
        self._forget()

    def _finish(self) -> None:
        self.over, self.heard = True, None
        self._forget()
        if self._failure or self._run.cancelled():
            raise failed(self._failure or "it was cut off")
        if (error := self._run.exception()) is not None:
            raise failed(f"{type(error).__name__}: {error}")
        episode = self._run.result()
        if not episode.ok:
            errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
            raise failed(f"{errors[-1].type}: {errors[-1].message}" if errors else "it did not complete")
        self.reward = float(episode.traces[0].reward)

    def _forget(self) -> None:
        for trace in self._traces:
            self._live.pop(trace.id, None)

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        self._run.cancel()

    def _read(self, body: Mapping[str, Any]) -> None:
        messages = list(body.get("messages") or ())
        if body.get("stream"):
            raise failed("its harness wants answers in a stream")
        if self._questions.qsize() or (self._pending is not None and not self._pending.done()):
            raise failed("it asks the model twice at once")
        before, self._seen = self._seen, messages
        if not before:
            self.opening = tool_calls.told(tuple(map(_message, messages)), body.get("tools") or ())
            return
        new = messages[len(before) + 1 :]
        if messages[: len(before)] != before or messages[len(before)].get("role") != "assistant" or not new:
            raise failed("it changes what was said before, or says nothing new")
        heard = [_message(each) for each in new]
        self.heard = Message(heard[-1].role, "\n".join(each.content for each in heard))


def failed(why: str) -> NodeError:
    """An episode that cannot be played."""
    return NodeError(Code.RL_ENVIRONMENT_FAILED, f"The environment of verifiers failed: {why[:500]}.")


def _message(wire: Mapping[str, Any]) -> Message:
    content = wire.get("content") or ""
    if isinstance(content, list):
        if any(part.get("type") != "text" for part in content):
            raise failed("it says something that is not text")
        content = "".join(str(part.get("text", "")) for part in content)
    role = "assistant" if wire.get("role") == "assistant" else _ROLES.get(str(wire.get("role")))
    if role is None:
        raise failed(f"it has a message of {str(wire.get('role'))[:40]!r}")
    return Message(role, str(content))


def _completion(text: str, turn: int) -> dict[str, Any]:
    said, calls = tool_calls.parse(text)
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if calls:
        message["tool_calls"] = tool_calls.on_the_wire(calls, str(turn))
    return {
        "id": f"turn-{turn}",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
    }
