"""Which function answers which message, read from the function's type hints."""

import collections.abc
import inspect
import types
import typing
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from protocol.errors import Code, NodeError
from protocol.messages.fields import SPEC
from protocol.messages.registry import Role, Spec, spec_of

_STREAMS = (collections.abc.AsyncIterator, collections.abc.AsyncIterable)


@dataclass(eq=False)
class Route:
    """A handler and the message it takes.

    Attributes:
        spec: The message's contract.
        function: The handler.
        running: Calls that it answers at the moment.
    """

    spec: Spec
    function: Callable[..., Any]
    running: int = 0


def route_of(function: Callable[..., Any]) -> Route:
    """The message class that a handler takes, from its type hints.

    ``async def f(message: M, context: Context) -> reply``; with a stream of questions
    ``f(messages: AsyncIterator[M], context: Context)``; with a stream of replies an async generator
    ``-> AsyncIterator[Reply]``.

    Raises:
        NodeError: ``E-WIRE-001`` if it is none of these, or does not answer what the request declares.
    """
    where = getattr(function, "__qualname__", repr(function))
    parameters = list(inspect.signature(function).parameters.values())
    hints = typing.get_type_hints(getattr(function, "__func__", function))
    taken = hints.get(parameters[0].name) if len(parameters) == 2 else None
    streamed = typing.get_origin(taken) in _STREAMS
    cls = typing.get_args(taken)[0] if streamed else taken
    if not isinstance(cls, type) or SPEC not in vars(cls):
        raise _bad(where, "takes a message with a type hint, and a Context")
    spec = spec_of(cls)
    if spec.role is Role.PART:
        raise _bad(where, f"cannot take {spec.name}, which is only a part of messages")
    if streamed is not spec.asks_stream:
        wanted = f"AsyncIterator[{cls.__name__}]" if spec.asks_stream else cls.__name__
        raise _bad(where, f"takes {wanted} first")
    answer = hints.get("return")
    if spec.stream:
        if not inspect.isasyncgenfunction(function) or typing.get_args(answer)[:1] != (spec.replies,):
            raise _bad(where, f"is an async generator -> AsyncIterator[{_name(spec.replies)}]")
    else:
        wanted_answer = spec.replies if spec.replies is not None else types.NoneType
        if not inspect.iscoroutinefunction(function) or answer is not wanted_answer:
            raise _bad(where, f"is an async function -> {_name(spec.replies)}")
    return Route(spec, function)


def _name(cls: type[Any] | None) -> str:
    return "None" if cls is None else cls.__name__


def _bad(where: str, what: str) -> NodeError:
    return NodeError(Code.WIRE_DECLARATION, f"The handler {where} does not fit: a handler for it {what}.")


Replies = AsyncIterator[Any]
