"""Both clients of the package verifiers against the engine's HTTP: that of evaluation and that of training."""

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from transformers import PreTrainedTokenizerFast

from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from rl.engine.limits import Limits
from rl.engine.server import Access, Server
from rl.engine.service import TorchEngine
from rl.engine.texts import TokenizerTexts
from rl.environments.transcript import PLAIN
from rl.sampling import Sampling
from tests.rl.engine.small import SHAPE, generator, request, run

if importlib.util.find_spec("verifiers") is None:
    pytest.skip("the package verifiers is not installed (extra: verifiers)", allow_module_level=True)

TOKENIZER = train_tokenizer([], SHAPE.vocab)
TEXTS = TokenizerTexts(TOKENIZER)
TEMPLATE = (
    "{% for each in messages %}"
    + "".join("{% if each.role == '" + role + "' %}" + text + "{% endif %}" for role, text in PLAIN.opening.items())
    + "{{ each.content }}" + PLAIN.end + "{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
)  # fmt: skip


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[str]:
    """Where a small engine is served."""
    torch_engine = TorchEngine(generator(Limits(slots=4)))
    app = Server(torch_engine, "small", SHAPE.context, TEXTS, TEXTS.decode, Access(), 20).app()
    server = TestServer(app, handler_cancellation=True)
    await server.start_server()
    yield str(server.make_url("/v1"))
    await server.close()
    await torch_engine.close()


async def played(monkeypatch: pytest.MonkeyPatch, client: Any) -> Any:
    """The trace of one episode of three turns, whose model is the engine."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "environments" / "tasksets"))
    import verifiers.v1 as vf

    from rl.environments import verifiers_harness

    verifiers_harness.register()
    seat = {"runtime": {"type": "subprocess"}, "harness": {"id": verifiers_harness.ID}}
    env = vf.load_environment(vf.resolve_env_config({"taskset": {"id": "talking-on"}, "agent": seat}))
    sampling = vf.SamplingConfig(temperature=0.9, top_p=0.95, max_tokens=20, seed=7)
    async with env.serving():
        episode = await env.run_episode(next(iter(env.taskset)), vf.ModelContext("small", client, sampling))
    assert episode.ok, [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    (trace,) = episode.traces
    return trace


async def test_the_client_of_evaluation_talks_with_the_engine(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    import verifiers.v1 as vf

    trace = await played(monkeypatch, vf.EvalClientConfig(base_url=engine, api_key_var="NO_KEY"))
    said = [node.message.content or "" for node in trace.nodes if node.sampled]
    assert len(said) == 3 and trace.reward == sum(map(len, said))
    prompt = TEXTS.encode(f"S:Talk.{PLAIN.end}U:Tell me.{PLAIN.end}A:")
    first = drawn(prompt)
    assert said[0] == TEXTS.decode(first.tokens)
    usage = trace.calls[0].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt), len(first.tokens))
    assert all(call.endpoint.endswith("/chat/completions") and call.error is None for call in trace.calls)


async def test_the_client_of_training_gets_tokens_and_what_they_were_drawn_with(
    monkeypatch: pytest.MonkeyPatch, engine: str, tmp_path: Path
) -> None:
    import verifiers.v1 as vf

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=load_tokenizer(TOKENIZER, SHAPE.vocab), eos_token=PLAIN.end, chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(tmp_path)
    trace = await played(
        monkeypatch,
        vf.TrainClientConfig(
            base_url=engine,
            api_key_var="NO_KEY",
            renderer={"name": "default"},
            renderer_model_name=str(tmp_path),
        ),
    )
    for (
        branch
    ) in trace.branches:  # a new one wherever what was said before has other tokens when it is read again
        tokens, sampled = np.array(branch.token_ids), np.array(branch.sampled_mask)
        parts = np.split(np.arange(len(tokens)), np.flatnonzero(np.diff(sampled.astype(int))) + 1)
        place = [part for part in parts if sampled[part[0]]][-1]
        out = drawn(tuple(int(each) for each in tokens[: place[0]]))
        assert tuple(tokens[place]) == out.tokens
        np.testing.assert_allclose(np.array(branch.logprobs)[place], out.logprobs, atol=1e-4)
    assert trace.branches and sum(node.sampled for node in trace.nodes) == 3


def drawn(prompt: tuple[int, ...]) -> Any:
    """What the engine draws after a prompt, alone."""
    from blake3 import blake3

    key = blake3(b"7", derive_key_context="intellect-node engine seed 1").digest()
    sampling = Sampling(temperature=0.9, top_p=0.95, max_tokens=20, eos=TEXTS.eos)
    return run(generator(), request(tokens=prompt, seed=key, sampling=sampling))["a"]
