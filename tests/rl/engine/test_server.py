"""The engine over HTTP, asked by a plain client."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from rl.engine.answering import Answers
from rl.engine.asking import Texts, chat
from rl.engine.interface import Piece
from rl.engine.limits import Limits
from rl.engine.server import Access, Server
from rl.engine.service import TorchEngine
from rl.environments.interface import Messages
from rl.sampling import Finish, Sampling
from tests.rl.engine.small import SHAPE, as_text, generator, request, run

CONTROL = "control" * 4


class Bytes:
    """A tokenizer whose tokens are bytes; 256 ends a message."""

    eos = (256,)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode("latin-1"))

    def chat(self, messages: Messages) -> tuple[int, ...]:
        return self.encode("".join(f"{each.role[0]}:{each.content}\n" for each in messages) + "a:")


TEXTS: Texts = Bytes()


async def started(limits: Limits, access: Access, most: int = 20) -> tuple[TestClient, TorchEngine]:  # type: ignore[type-arg]
    engine = TorchEngine(generator(limits))
    app = Server(engine, "small", SHAPE.context, TEXTS, as_text, access, most).app()
    client = TestClient(TestServer(app, handler_cancellation=True))
    await client.start_server()
    return client, engine


@pytest_asyncio.fixture
async def client() -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    made, engine = await started(Limits(slots=4), Access(None, CONTROL))
    yield made
    await made.close()
    await engine.close()


def expected(prompt: Sequence[int], seed: int | None = None, **settings: object) -> tuple[int, ...]:
    from blake3 import blake3

    key = blake3(str(seed).encode(), derive_key_context="intellect-node engine seed 1").digest()
    asked = request(tokens=tuple(prompt), seed=key, sampling=Sampling(eos=(256,), **settings))  # type: ignore[arg-type]
    return run(generator(), asked)["a"].tokens


async def problem(response: ClientResponse, status: int) -> str:
    answer = await response.json()
    assert response.status == status, answer
    assert set(answer["error"]) == {"message", "type", "code", "param"}
    return str(answer["error"]["message"])


async def test_a_chat_is_answered_with_text_tokens_and_log_probabilities(client: TestClient) -> None:  # type: ignore[type-arg]
    body = {
        "model": "small",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 12,
        "seed": 7,
        "logprobs": True,
        "return_token_ids": True,
    }
    answer = await (await client.post("/v1/chat/completions", json=body)).json()
    choice = answer["choices"][0]
    prompt = TEXTS.encode("u:hello\na:")
    tokens = expected(prompt, 7, max_tokens=12)
    assert choice["token_ids"] == list(tokens)
    assert answer["prompt_token_ids"] == list(prompt)
    assert choice["message"] == {"role": "assistant", "content": as_text(tokens)}
    assert len(choice["logprobs"]["content"]) == len(tokens)
    assert all(entry["logprob"] < 0 for entry in choice["logprobs"]["content"])
    assert answer["usage"]["completion_tokens"] == len(tokens)
    again = await (await client.post("/v1/chat/completions", json=body)).json()
    assert again["choices"] == answer["choices"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_streamed_answer_is_the_whole_one_in_parts(client: TestClient, path: str) -> None:  # type: ignore[type-arg]
    body = {"max_tokens": 30, "seed": 3, "return_token_ids": True}
    body |= {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "some text"}  # type: ignore[dict-item]
    whole = (await (await client.post(path, json=body)).json())["choices"][0]
    text = whole["message"]["content"] if "chat" in path else whole["text"]
    stop = text[11:14]
    body |= {"stop": [stop], "stream": True}
    response = await client.post(path, json=body)
    assert response.content_type == "text/event-stream"
    lines = [line async for line in response.content if line.strip()]
    assert lines[-1] == b"data: [DONE]\n"
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
    parts = [event["choices"][0] for event in events]
    shown = "".join(part["delta"]["content"] if "chat" in path else part["text"] for part in parts)
    assert shown == text[: text.index(stop)]
    tokens = [token for part in parts for token in part["token_ids"]]
    assert tokens == whole["token_ids"][: len(tokens)]
    assert as_text(tokens).endswith(stop)
    assert [part["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["stop"]


TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


async def test_the_model_is_told_of_tools_and_of_what_it_called_before(client: TestClient) -> None:  # type: ignore[type-arg]
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "c"},
    ]
    body = {"messages": messages, "tools": [TOOL], "max_tokens": 1, "return_token_ids": True}
    answer = await (await client.post("/v1/chat/completions", json=body)).json()
    asked = as_text(answer["prompt_token_ids"])
    assert asked.startswith("s:You may call these tools:") and '"name": "add"' in asked
    assert asked.endswith('u:1?\na:<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>\nt:2\na:')
    none = await (await client.post("/v1/chat/completions", json=body | {"tool_choice": "none"})).json()
    assert as_text(none["prompt_token_ids"]).startswith("u:1?")


@pytest.mark.parametrize("finish", ["eos", "length"])
def test_what_is_a_call_is_answered_as_one_whole_and_streamed(finish: Finish) -> None:
    asked = chat({"messages": [{"role": "user", "content": "?"}], "tools": [TOOL], "request_id": "r"}, TEXTS)
    text = 'So: <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    tokens = TEXTS.encode(text)
    pieces = [
        Piece(tokens[:20], (0.0,) * 20, (0,) * 20),
        Piece(tokens[20:], (0.0,) * len(tokens[20:]), (0,) * len(tokens[20:]), finish),
    ]
    answers = Answers("chat", asked, "small", as_text)
    whole = answers.whole(pieces)["choices"][0]
    call = {"id": "call_r_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    assert whole["message"] == {"role": "assistant", "content": "So:", "tool_calls": [call]}
    assert whole["finish_reason"] == ("length" if finish == "length" else "tool_calls")
    events = answers.events()
    parts = [event["choices"][0] for piece in pieces for event in events.of(piece)]
    assert "".join(part["delta"]["content"] for part in parts) == "So:"
    assert parts[-1]["delta"]["tool_calls"] == [call | {"index": 0}]
    assert [part["finish_reason"] for part in parts] == [None, whole["finish_reason"]]
    without = replace(asked, tools=False)
    assert (
        Answers("chat", without, "small", as_text).whole(pieces)["choices"][0]["message"]["content"] == text
    )


async def test_tokens_in_and_tokens_out(client: TestClient) -> None:  # type: ignore[type-arg]
    asked = request("turn", 9, proofs=True, sampling=Sampling(max_tokens=40, eos=(256,)))
    body = {
        "model": "small",
        "request_id": "turn",
        "token_ids": list(asked.tokens),
        "sampling_params": {
            "max_tokens": 40,
            "stop_token_ids": [256],
            "logprobs": 1,
            "skip_special_tokens": False,
        },
        "rollout": {"seed": asked.seed.hex(), "proofs": True},
    }
    answer = await (await client.post("/inference/v1/generate", json=body)).json()
    alone = run(generator(), asked)["turn"]
    choice = answer["choices"][0]
    assert tuple(choice["token_ids"]) == alone.tokens
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [
        f"token_id:{each}" for each in alone.tokens
    ]
    assert tuple(entry["logprob"] for entry in choice["logprobs"]["content"]) == alone.logprobs
    assert alone.last is not None
    assert [bytes.fromhex(proof) for proof in choice["rollout"]["proofs"]] == list(alone.last.proofs)


async def test_models_health_and_metrics(client: TestClient) -> None:  # type: ignore[type-arg]
    models = await (await client.get("/v1/models")).json()
    assert (models["data"][0]["id"], models["data"][0]["max_model_len"]) == ("small", SHAPE.context)
    assert (await (await client.get("/health")).json()) == {"status": "ok", "policy_version": 0}
    await client.post("/v1/completions", json={"prompt": "ab", "max_tokens": 3, "ignore_eos": True})
    text = await (await client.get("/metrics")).text()
    assert "rl_engine_sampled_tokens_total 3\n" in text and "rl_engine_prompt_tokens_total 2\n" in text


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/completions", b"{", "not JSON"),
        ("/v1/completions", b"[" * 50_000, "not JSON"),
        ("/v1/completions", [], "not a JSON object"),
        ("/v1/completions", {}, "prompt must be"),
        ("/v1/completions", {"prompt": [1, "2"]}, "prompt must be"),
        ("/v1/completions", {"prompt": [1, 300]}, "vocabulary"),
        ("/v1/completions", {"prompt": "x", "temperature": -1}, "temperature"),
        ("/v1/completions", {"prompt": "x", "temperature": "hot"}, "temperature"),
        ("/v1/completions", b'{"prompt": "x", "top_p": NaN}', "top_p"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 10**30}, "max_tokens"),
        ("/v1/completions", {"prompt": "x", "stop": [1]}, "stop"),
        ("/v1/completions", {"prompt": "x", "n": 2}, "n must be 1"),
        ("/v1/completions", {"prompt": "x", "model": "other"}, "runs small"),
        ("/v1/completions", {"prompt": "x", "stream": "yes"}, "stream"),
        ("/v1/completions", {"prompt": ""}, "0 tokens"),
        ("/v1/completions", {"prompt": "x" * 600}, "600 tokens"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "king", "content": "x"}]}, "role"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "text",
        ),
        ("/v1/chat/completions", {"messages": [{"role": "user"}], "tools": [{"function": {}}]}, "name"),
        ("/v1/chat/completions", {"messages": [{"role": "user"}], "tools": "all"}, "tools must be"),
        ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "tool_calls"),
        ("/inference/v1/generate", {"token_ids": [1], "sampling_params": 3}, "sampling_params"),
        ("/inference/v1/generate", {"token_ids": [1], "rollout": {"seed": "xy"}}, "seed"),
        ("/inference/v1/generate", {"token_ids": [1], "rollout": {"former": {"id": 3}}}, "former"),
        ("/inference/v1/generate", {"token_ids": [2**40]}, "32 bits"),
    ],
)
async def test_a_bad_question_is_answered_with_a_clear_sentence(
    client: TestClient,
    path: str,
    body: object,
    words: str,  # type: ignore[type-arg]
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert words in await problem(await client.post(path, data=data), 400)
    assert (await client.get("/health")).status == 200


async def test_a_question_of_a_million_tokens_is_refused_before_it_is_read(client: TestClient) -> None:  # type: ignore[type-arg]
    body = {"token_ids": [7] * 1_000_000}
    assert "context of 512" in await problem(await client.post("/inference/v1/generate", json=body), 413)


async def test_what_is_not_there_is_said_in_json(client: TestClient) -> None:  # type: ignore[type-arg]
    await problem(await client.get("/v2"), 404)
    await problem(await client.get("/v1/completions"), 405)


async def test_only_who_shows_the_token_may_ask() -> None:
    client, engine = await started(Limits(slots=1), Access("t" * 16, CONTROL))
    try:
        body = {"prompt": "x", "max_tokens": 2}
        await problem(await client.post("/v1/completions", json=body), 401)
        wrong = {"Authorization": "Bearer " + "u" * 16}
        await problem(await client.post("/v1/completions", json=body, headers=wrong), 401)
        right = {"Authorization": "Bearer " + "t" * 16}
        assert (await client.post("/v1/completions", json=body, headers=right)).status == 200
        await problem(await client.post("/control/release", json={"id": "x"}, headers=right), 401)
        assert (await client.get("/health")).status == 200
    finally:
        await client.close()
        await engine.close()


async def test_without_a_control_secret_there_is_no_control() -> None:
    client, engine = await started(Limits(slots=1), Access())
    try:
        await problem(await client.post("/control/update", json={}), 404)
    finally:
        await client.close()
        await engine.close()


async def test_more_questions_than_there_are_places_are_refused_at_once() -> None:
    client, engine = await started(Limits(slots=1), Access(), most=1)
    try:
        body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}
        first = await client.post("/v1/completions", json=body)
        refused = await client.post("/v1/completions", json=body)
        assert "already" in await problem(refused, 503)
        assert refused.headers["Retry-After"] == "1"
        first.close()
    finally:
        await client.close()
        await engine.close()


async def test_a_client_that_goes_away_frees_its_place(client: TestClient) -> None:  # type: ignore[type-arg]
    body = {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": True}
    response = await client.post("/v1/completions", json=body)
    await response.content.readline()
    response.close()
    while "rl_engine_cancelled_total 1\n" not in await (await client.get("/metrics")).text():
        pass
    assert "rl_engine_running 0\n" in await (await client.get("/metrics")).text()
