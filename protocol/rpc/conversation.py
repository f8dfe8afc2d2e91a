"""A call whose questions are a stream: they are written while its answers are read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import Any

from protocol.errors import NodeError
from protocol.messages.registry import Spec
from protocol.messages.wire import decode
from protocol.rpc.carrier import Stream

Pack = Callable[[Any], Awaitable[bytes]]
"""Makes the bytes of a question, when they may leave."""


async def both_ways(
    call: Stream, spec: Spec, requests: AsyncIterable[Any], pack: Pack
) -> AsyncGenerator[Any, None]:
    """The answers of a call, while ``requests`` go; the call ends with the generator.

    The peer may end the call before the last question. What ``requests`` raises ends the call and is raised here.

    Raises:
        NodeError: Why the call ended.
    """
    replies = spec.replies
    assert replies is not None, "a request has replies"
    writing = asyncio.ensure_future(_write_all(call, spec, requests, pack))
    try:
        while (frame := await call.read()) is not None:
            yield decode(replies, frame)
        if not writing.done():  # the peer had its answer before the last question
            writing.cancel()
        await _ended(writing)
    except NodeError:
        if writing.done() and not writing.cancelled():
            writing.result()  # what the requests raised is the reason why the call ended
        raise
    finally:
        writing.cancel()
        call.close()
        await asyncio.gather(writing, return_exceptions=True)


async def _write_all(call: Stream, spec: Spec, requests: AsyncIterable[Any], pack: Pack) -> None:
    try:
        async for request in requests:
            if type(request) is not spec.cls:
                raise TypeError(f"a {type(request).__name__} came among the requests of {spec.name}")
            raw = await pack(request)
            try:
                await call.write(raw)
            except NodeError:
                return  # the call has ended; its reader is told why
        try:
            await call.end()
        except NodeError:
            return
    except Exception:
        call.close()
        raise


async def _ended(writing: "asyncio.Future[None]") -> None:
    try:
        await writing
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
