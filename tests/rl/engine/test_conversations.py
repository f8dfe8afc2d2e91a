"""Turns of one conversation: carried tokens, kept caches, and what happens when they are gone."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from tokenizers import Tokenizer

from diloco.data.tokenizer import train_tokenizer
from protocol.errors import Code, NodeError
from rl.engine.generator import Generator
from rl.engine.interface import Former, Request
from rl.engine.limits import Limits
from rl.engine.prefill import forward, logprobs
from rl.sampling import Sampling
from tests.rl.engine.small import Out, as_text, generator, request, run, weights
from toploc import verify_proofs_bytes

ANSWER = tuple(range(65, 85))


def first(sampled: int = 50, **settings: object) -> Request:
    return request("one", 9, keep=True, proofs=True, sampling=Sampling(max_tokens=sampled), **settings)


def second(one: Request, out: Out, sampled: int = 30) -> Request:
    assert out.last is not None
    return replace(
        one,
        id="two",
        tokens=one.tokens + out.tokens + ANSWER,
        prompt=9,
        first=len(out.tokens),
        sampling=Sampling(max_tokens=len(out.tokens) + sampled),
        former=Former("one", 9 + len(out.tokens), out.last.proofs, out.last.proof_versions, out.last.refills),
    )


def check(asked: Request, out: Out) -> None:
    """Log-probabilities and proofs are those of the whole transcript under each token's version."""
    assert out.last is not None
    transcript = asked.tokens + out.tokens
    for version in sorted({*out.versions, *out.last.proof_versions}):
        states = forward(weights(version), [transcript])[0]
        law = logprobs(weights(version), states[len(asked.tokens) - 1 : -1], out.tokens, asked.sampling)
        mine = np.array(out.versions) == version
        assert np.allclose(law[mine], np.array(out.logprobs)[mine], atol=1e-4)
        results = verify_proofs_bytes(
            states[asked.prompt - 1 : -1], list(out.last.proofs), 32, 128, skip_prefill=True
        )
        assert len(results) == len(out.last.proof_versions)
        for result, owner in zip(results, out.last.proof_versions, strict=True):
            assert owner != version or (result.exp_mismatches == 0 and result.mant_err_mean < 1)


@pytest.mark.failure_mode(49)
def test_the_next_turn_goes_on_from_the_kept_cache_with_the_very_tokens_that_were_sampled() -> None:
    engine = generator()
    one = first()
    out = run(engine, one)["one"]
    assert len(engine.holder) == 1
    two = second(one, out)
    next_out = run(engine, two)["two"]
    assert next_out.last is not None and next_out.last.reused == 9 + 50 - 1
    check(two, next_out)
    tokenizer = Tokenizer.from_str(train_tokenizer([], 260))
    again = tuple(tokenizer.encode(tokenizer.decode(list(one.tokens + out.tokens))).ids)
    assert again != one.tokens + out.tokens  # one text, other tokens
    run(engine, one)
    with pytest.raises(NodeError, match="do not begin") as caught:
        engine.add(replace(two, tokens=again + ANSWER))
    assert caught.value.code is Code.RL_REQUEST


def test_a_conversation_that_is_not_held_is_read_again_with_the_same_result() -> None:
    one = first()
    kept, fresh = generator(), generator()
    out = run(kept, one)["one"]
    two = second(one, out)
    held, again = run(kept, two)["two"], run(fresh, two)["two"]
    assert again.last is not None and again.last.reused == 0
    assert again.tokens == held.tokens
    assert np.allclose(again.logprobs, held.logprobs, atol=1e-4)
    check(two, again)


def test_noise_goes_on_where_the_turn_before_ended() -> None:
    engine = generator()
    whole = run(engine, request("one", 9, sampling=Sampling(max_tokens=50)))["one"]
    one = request("one", 9, keep=True, sampling=Sampling(max_tokens=20))
    out = run(engine, one)["one"]
    two = replace(
        one,
        id="two",
        tokens=one.tokens + out.tokens,
        prompt=9,
        first=20,
        sampling=Sampling(max_tokens=50),
        former=Former("one", 29, (), out.last.proof_versions if out.last else ()),
    )
    assert out.tokens + run(engine, two)["two"].tokens == whole.tokens


@pytest.mark.parametrize("sampled", [50, 64])
def test_after_an_update_the_open_chunk_is_finished_with_the_weights_that_began_it(sampled: int) -> None:
    engine = generator()
    one = first(sampled)
    out = run(engine, one)["one"]
    engine.update(1, weights(1))
    two = second(one, out, 60)
    next_out = run(engine, two)["two"]
    assert next_out.last is not None
    assert next_out.last.proof_versions[:2] == (0, 0)
    assert set(next_out.last.proof_versions[2:]) == {1}
    assert next_out.last.refills == 1
    assert set(next_out.versions) == {1}  # the answer of 20 tokens reaches beyond the border
    check(two, next_out)


def test_a_conversation_whose_open_chunk_is_of_weights_that_are_gone_is_refused() -> None:
    engine = generator()
    one = first()
    out = run(engine, one)["one"]
    engine.update(1, weights(1))
    assert engine.versions == (0, 1)  # the held conversation needs them
    engine.update(2, weights(2))
    assert engine.versions == (2,)
    with pytest.raises(NodeError) as caught:
        engine.add(second(one, out))
    assert caught.value.code is Code.RL_GONE
    full = first(64)
    closed = run(generator(), full)["one"]
    run(engine, second(full, closed))  # no chunk is open: any weights may go on


def test_conversations_are_held_within_bounds_of_memory_and_time() -> None:
    now = [0.0]
    one = weights()
    size = 2 * one.shape.layers * one.shape.kv_heads * one.shape.head * 4 * (9 + 20 - 1)
    limits = Limits(held_bytes=2 * size, held_for=timedelta(seconds=10))
    engine = Generator(one, 0, limits, as_text, clock=lambda: now[0])
    for name in "abc":
        run(engine, request(name, 9, keep=True, sampling=Sampling(max_tokens=20)))
    assert len(engine.holder) == 2 and engine.holder.take("a") is None
    now[0] = 11
    engine.step()
    assert len(engine.holder) == 0
    run(engine, request("d", 9, keep=True))
    engine.release("d")
    assert len(engine.holder) == 0


@pytest.mark.parametrize(
    "former",
    [
        Former("gone", 59, (), (0,)),
        Former("gone", 9, (), ()),
        Former("gone", 200, (), (0,) * 6),
        Former("gone", 59, (b"x",), (0, 0)),
        Former("gone", 59, (), (0, 0)),
        Former("gone", 59, (b"",) * 2, (0, 0), refills=3),
    ],
)
def test_a_former_turn_that_contradicts_the_tokens_is_refused(former: Former) -> None:
    engine = generator()
    one = first()
    two = second(one, run(engine, one)["one"])
    with pytest.raises(NodeError) as caught:
        engine.add(replace(two, former=former))
    assert caught.value.code is Code.RL_REQUEST
    assert not engine.busy
