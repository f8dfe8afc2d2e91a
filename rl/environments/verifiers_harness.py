"""The program by which an environment of ``verifiers`` lets a model speak: a chat with tools, in this process.

Those that come with the package are scripts, for which it installs an interpreter and packages from the network. This
one does what its chat script does, a question after the other until a reply calls no tool, and needs neither.
"""

import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import httpx
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harness import Harness
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]

ID = "intellect-node"
"""Its name in a configuration of verifiers."""


class ChatHarness(Harness[HarnessConfig]):  # type: ignore[misc]
    """See `verifiers.v1.Harness`."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """Talk until the model calls no tool.

        Raises:
            RuntimeError: The model's side refused a question.
        """
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += map(message_to_wire, prompt or ())
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
            served = {name: {"url": url} for name, url in mcp_urls.items()}
            tools, dispatch, servers = await connect_mcp({"mcpServers": served}, stack)
            while True:
                body = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
                answer = await client.post(
                    f"{endpoint}/chat/completions", json=body, headers={"Authorization": f"Bearer {secret}"}
                )
                if answer.is_error:
                    raise RuntimeError(answer.text[:500])
                message = answer.json()["choices"][0]["message"]
                messages.append(message)
                calls = message.get("tool_calls") or ()
                if not calls:
                    return ProgramResult(0, "", "")
                for call in calls:
                    name, arguments = call["function"]["name"], call["function"]["arguments"]
                    known = name in dispatch
                    said = (
                        await call_mcp(servers, dispatch, name, json.loads(arguments or "{}"))
                        if known
                        else f"There is no tool {name!r}."
                    )
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})


def register() -> None:
    """Let verifiers find it by its name."""
    sys.modules[f"verifiers.v1.harnesses.{ID.replace('-', '_')}"] = sys.modules[__name__]
