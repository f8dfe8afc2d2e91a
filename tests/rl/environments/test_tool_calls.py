"""Tools in plain text."""

import pytest

from rl.environments.interface import Message
from rl.environments.tool_calls import Call, on_the_wire, parse, told, written

TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {}}}


def test_the_system_message_tells_of_tools_and_is_made_where_there_is_none() -> None:
    user, system = Message("user", "1 + 1?"), Message("system", "Be brief.")
    for first, *rest in (told((user,), [TOOL]), told((system, user), [TOOL])):
        assert first.role == "system" and '{"description": "Adds.", "name": "add"' in first.content
        assert rest == [user]
    assert told((system, user), [TOOL])[0].content.startswith("Be brief.\n\n")
    assert told((user,), []) == (user,)


def test_calls_are_read_in_order_and_the_rest_is_what_is_said() -> None:
    calls = (Call("add", '{"a": 1}'), Call("sub", "{}"))
    text = written("I add.", calls)
    assert parse(text) == ("I add.", calls)
    assert written(*parse(text)) == text and parse(written("", calls)) == ("", calls)
    assert [each["id"] for each in on_the_wire(calls, "7")] == ["call_7_0", "call_7_1"]


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "<tool_call>",
        "<tool_call>{</tool_call>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": "{}"}</tool_call>',
        f"<tool_call>{'[' * 100_000}</tool_call>",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert parse(text) == (text, ())
