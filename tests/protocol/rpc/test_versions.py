"""Nodes of neighbouring versions speak with each other; of newer errors is understood what can be."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from protocol import field, message, request
from protocol.errors import CATALOGUE, Code, NodeError
from protocol.messages import REGISTRY
from protocol.rpc import Context, Endpoint
from protocol.rpc.faults import from_call
from protocol.testing import local_endpoints
from protocol.units import PeerId
from tests.protocol.rpc.instruments import refusal

PEER = PeerId("12D3KooWpeer")


def words(version: int, plane: str = "control") -> tuple[type[Any], type[Any]]:
    """Question and answer as a node of a version has them: each version adds a field to both."""

    def fields(kind: str) -> dict[str, Any]:
        numbers = range(1, version + 1)
        return {
            "__annotations__": {f"{kind}{number}": str for number in numbers},
            **{f"{kind}{number}": field(number, default=f"v{number}") for number in numbers},
        }

    limits: dict[str, Any] = {"version": version, "max_bytes": "1 KiB", "rate": "100/s", "plane": plane}
    with REGISTRY.isolated():
        answer = message(f"old-new.{plane}-answer", audience="anyone", **limits)(
            type("Answer", (), fields("a"))
        )
        made = request(f"old-new.{plane}-ask", replies=answer, timeout="5 s", **limits)
        return made(type("Ask", (), fields("q"))), answer


def serve(endpoint: Endpoint, ask: type[Any], answer: type[Any]) -> list[tuple[Any, int]]:
    heard: list[tuple[Any, int]] = []

    async def on_ask(message: Any, context: Context) -> Any:
        heard.append((message, context.version))
        return answer(a1=message.q1)

    on_ask.__annotations__ = {"message": ask, "context": Context, "return": answer}
    endpoint.handle(on_ask)
    return heard


@pytest.mark.parametrize("plane", ["control", "bulk"])
async def test_the_version_before_ours_is_served_and_serves_us(plane: str) -> None:
    old_ask, old_answer = words(2, plane)
    new_ask, new_answer = words(3, plane)
    async with local_endpoints(2) as (older, newer):
        old_heard = serve(older, old_ask, old_answer)
        new_heard = serve(newer, new_ask, new_answer)
        reply = await older.request(newer.peer_id, old_ask(q1="x", q2="y"))
        assert (reply.a1, reply.a2) == ("x", "v2")
        message, version = new_heard[0]
        assert (message.q1, message.q2, message.q3, version) == ("x", "y", "v3", 2)
        reply = await newer.request(older.peer_id, new_ask(q1="x", q3="z"))
        assert (reply.a1, reply.a3) == ("x", "v3")
        assert (old_heard[0][0].q1, old_heard[0][1]) == ("x", 3)


@pytest.mark.parametrize("plane", ["control", "bulk"])
async def test_a_version_two_before_ours_is_refused_with_both_named(plane: str) -> None:
    old_ask, _ = words(1, plane)
    async with local_endpoints(2) as (older, newer):
        serve(newer, *words(3, plane))
        error = await refusal(older.request(newer.peer_id, old_ask()))
        assert error.code is Code.NET_VERSION
        assert "version 1" in error.sentence
        assert "version 3" in error.sentence


async def test_hint_flag_peer_and_message_travel_with_an_error() -> None:
    ask, answer = words(1)
    async with local_endpoints(2) as (caller, server):

        async def on_ask(message: Any, context: Context) -> Any:
            raise NodeError(Code.STO_FULL, "The disk of this node is full.", fix="Ask another node: ünder.")

        on_ask.__annotations__ = {"message": ask, "context": Context, "return": answer}
        server.handle(on_ask)
        error = await refusal(caller.request(server.peer_id, ask()))
    assert (error.code, error.fix) == (Code.STO_FULL, "Ask another node: ünder.")
    assert (error.peer, error.message) == (server.peer_id, "old-new.control-ask")
    assert error.retriable is CATALOGUE[Code.STO_FULL].retriable


@pytest.mark.parametrize(("flag", "retriable"), [("1", True), ("0", False), (None, False)])
def test_a_code_of_a_newer_node_is_internal_with_its_own_flag(flag: str | None, retriable: bool) -> None:
    trailing = [("intellect-code", "E-NEW-001")] + ([("intellect-retriable", flag)] if flag else [])
    failed = grpc.aio.AioRpcError(
        grpc.StatusCode.ABORTED, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details="Something new."
    )
    error = from_call(failed, PEER, "acme.ask")
    assert (error.code, error.retriable) == (Code.NET_INTERNAL, retriable)
    assert error.sentence == "E-NEW-001: Something new."


async def test_a_message_that_only_one_node_knows_is_a_clear_error() -> None:
    ask, _ = words(1)
    async with local_endpoints(2) as (caller, server):
        error = await refusal(caller.request(server.peer_id, ask()))
        assert (error.code, error.message) == (Code.NET_UNKNOWN_MESSAGE, "old-new.control-ask")
        assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]
