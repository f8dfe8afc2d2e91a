"""Tools in plain text: how a model is told of them, and how it asks for one.

The layout is that of Hermes and Qwen: tools are listed in the system message, and a call is JSON between
``<tool_call>`` and ``</tool_call>``. Tools and messages are in the form of OpenAI's chat API.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl.environments.interface import Message, Messages

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """A tool's name, and its arguments as the JSON of an object."""

    name: str
    arguments: str


def told(messages: Messages, tools: Sequence[Mapping[str, Any]]) -> Messages:
    """The same conversation, whose system message says which tools there are and how one is called."""
    if not tools:
        return messages
    listed = "\n".join(json.dumps(tool.get("function", tool), sort_keys=True) for tool in tools)
    said = (
        f"You may call these tools:\n{listed}\n"
        'Call one by writing <tool_call>{"name": "...", "arguments": {...}}</tool_call>.'
    )
    if messages and messages[0].role == "system":
        return (Message("system", f"{messages[0].content}\n\n{said}"), *messages[1:])
    return (Message("system", said), *messages)


def parse(text: str) -> tuple[str, tuple[Call, ...]]:
    """What the model says, and the tools it calls, in order. What is no proper call stays text."""
    calls = []
    kept, end = [], 0
    for found in _CALL.finditer(text):
        call = _call(found[1])
        if call is not None:
            kept.append(text[end : found.start()])
            calls.append(call)
            end = found.end()
    return ("".join([*kept, text[end:]]).strip() if calls else text), tuple(calls)


def written(text: str, calls: Sequence[Call]) -> str:
    """The reverse of `parse`, for what was said before."""
    said = [
        f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}</tool_call>'
        for call in calls
    ]
    return "\n".join([text, *said] if text else said)


def on_the_wire(calls: Sequence[Call], turn: str) -> list[dict[str, Any]]:
    """``tool_calls`` of a message of OpenAI's API, with ids that `turn` makes unique."""
    return [
        {
            "id": f"call_{turn}_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(calls)
    ]


def _call(text: str) -> Call | None:
    try:
        match json.loads(text):
            case {"name": str(name), "arguments": dict(arguments)} if name:
                return Call(name, json.dumps(arguments))
    except (ValueError, RecursionError):
        pass
    return None
