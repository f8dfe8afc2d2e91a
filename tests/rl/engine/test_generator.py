from dataclasses import replace

import numpy as np
import pytest
import torch

from protocol.errors import Code, NodeError
from rl.engine.interface import Request
from rl.engine.limits import Limits
from rl.engine.prefill import forward
from rl.sampling import Sampling
from tests.rl.engine.small import SHAPE, Out, drain, generator, plainly, request, run, weights
from toploc import build_proofs_bytes, verify_proofs_bytes

LAWS = [
    Sampling(max_tokens=40),
    Sampling(temperature=0.8, top_p=0.9, max_tokens=40),
    Sampling(temperature=1.2, top_k=7, max_tokens=40),
    Sampling(temperature=0, max_tokens=12),
]


@pytest.mark.parametrize("sampling", LAWS)
def test_tokens_are_those_of_the_law_over_transformers_logits(sampling: Sampling) -> None:
    asked = request(sampling=sampling)
    out = run(generator(), asked)["a"]
    expected, logprobs = plainly(asked)
    assert list(out.tokens) == expected
    assert out.logprobs == pytest.approx(logprobs, abs=1e-4)
    assert out.last is not None and out.last.finish == "length"
    assert set(out.versions) == {0}


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_batch_gives_what_each_request_gives_alone_to_the_last_bit(kind: str) -> None:
    asked = [
        request(
            f"r{number}", 2 + 11 * number, proofs=True, sampling=Sampling(max_tokens=5 + 9 * (number % 5))
        )
        for number in range(20)
    ]
    together = run(generator(Limits(slots=7), kind), *asked)  # type: ignore[arg-type]
    alone = generator(Limits(slots=1), kind)  # type: ignore[arg-type]
    for each in asked:
        assert run(alone, each)[each.id] == together[each.id]


def test_a_group_reads_its_prompt_once_and_samples_what_it_would_sample_apart() -> None:
    group = [replace(request("x", 60), id=f"g{number}", seed=bytes([number]) * 32) for number in range(8)]
    together = run(generator(), *group)
    reused = sorted(out.last.reused for out in together.values() if out.last)
    assert reused == [0] + [59] * 7
    assert len({out.tokens for out in together.values()}) == 8
    for each in group:
        alone = run(generator(), each)[each.id]
        assert (alone.tokens, alone.logprobs) == (together[each.id].tokens, together[each.id].logprobs)


def test_a_member_of_a_group_that_comes_later_takes_the_prompt_of_one_that_runs() -> None:
    engine = generator()
    engine.add(request("first", 60))
    for _ in range(5):
        engine.step()
    engine.add(replace(request("first", 60), id="late"))
    late = drain(engine, {"first": Out(), "late": Out()})["late"]
    assert late.last is not None and late.last.reused == 59
    assert late.tokens == run(generator(), request("first", 60))["first"].tokens


def test_a_turn_ends_with_an_end_mark_a_stop_text_or_the_end_of_the_context() -> None:
    free = run(generator(), request())["a"].tokens
    ended = run(generator(), request(sampling=Sampling(max_tokens=40, eos=(free[6],))))["a"]
    assert ended.last is not None and ended.last.finish == "eos"
    assert ended.tokens == free[: free.index(free[6]) + 1]
    text = bytes(free[10:13]).decode("latin-1")
    stopped = run(generator(), request(sampling=Sampling(max_tokens=40, stop=(text,))))["a"]
    assert stopped.last is not None and stopped.last.finish == "stop"
    assert stopped.tokens == free[:13]
    full = run(generator(), request("a", SHAPE.context - 3, sampling=Sampling(max_tokens=40)))["a"]
    assert full.last is not None and (full.last.finish, len(full.tokens)) == ("length", 3)


def test_proofs_are_those_of_the_states_that_predicted_each_token() -> None:
    for length, sampled in ((9, 70), (1, 33), (40, 1), (12, 64)):
        asked = request("a", length, proofs=True, sampling=Sampling(max_tokens=sampled))
        out = run(generator(), asked)["a"]
        assert out.last is not None
        states = forward(weights(), [asked.tokens + out.tokens])[0][length - 1 : -1]
        assert len(out.last.proofs) == len(out.last.proof_versions) == -(-sampled // 32)
        expected = build_proofs_bytes(states, 32, 128, skip_prefill=True)
        assert len(expected) == len(out.last.proofs)
        for result in verify_proofs_bytes(states, list(out.last.proofs), 32, 128, skip_prefill=True):
            assert result.exp_mismatches == 0 and result.mant_err_mean < 1


def test_a_cancelled_request_frees_its_slot_and_changes_nothing_for_others() -> None:
    engine = generator(Limits(slots=3))
    asked = [request(f"r{number}", 5 + number) for number in range(6)]
    outs = {}
    for each in asked:
        engine.add(each)
    for _ in range(4):
        engine.step()
    engine.cancel("r1")
    engine.cancel("r5")  # it still waits
    engine.cancel("nobody")
    while engine.busy:
        for name, piece in engine.step():
            outs.setdefault(name, []).append(piece)
    assert set(outs) == {"r0", "r2", "r3", "r4"}
    again = run(engine, *asked)
    for name in ("r3", "r4"):
        assert tuple(piece.tokens[0] for piece in outs[name]) == again[name].tokens


def test_short_and_long_requests_share_the_slots_without_waiting_for_each_other() -> None:
    engine = generator(Limits(slots=2))
    long = request("long", sampling=Sampling(max_tokens=60))
    short = [request(f"s{number}", sampling=Sampling(max_tokens=5)) for number in range(6)]
    order = []
    for each in (long, *short):
        engine.add(each)
    while engine.busy:
        order += [name for name, piece in engine.step() if piece.finish]
    assert order == [f"s{number}" for number in range(6)] + ["long"]


@pytest.mark.parametrize(
    "bad",
    [
        request(length=1, tokens=()),
        request(tokens=(1,) * 1_000_000),
        request(tokens=(1, SHAPE.vocab)),
        request(tokens=(-1,)),
        request(seed=b"short"),
        request(prompt=10),
        request(first=40),
        request(name=""),
        request(name="x" * 129),
    ],
    ids=lambda each: f"{len(each.tokens)} tokens" if isinstance(each, Request) else "",
)
def test_a_request_that_cannot_be_served_is_refused_before_anything_is_allocated(bad: Request) -> None:
    engine = generator()
    room = engine._policies[0].cache.room
    with pytest.raises(NodeError) as caught:
        engine.add(bad)
    assert caught.value.code is Code.RL_REQUEST
    assert not engine.busy and engine._policies[0].cache.room == room


def test_an_id_can_be_used_again_when_its_request_has_ended() -> None:
    engine = generator()
    engine.add(request())
    with pytest.raises(NodeError, match="taken"):
        engine.add(request())
    while engine.busy:
        engine.step()
    run(engine, request())


def test_more_requests_than_may_wait_are_refused() -> None:
    engine = generator(Limits(slots=1, waiting=2))
    for number in range(3):
        engine.add(request(f"r{number}"))
    with pytest.raises(NodeError) as caught:
        engine.add(request("r3"))
    assert caught.value.code is Code.RL_BUSY


def test_more_than_one_thread_gives_the_same_tokens() -> None:
    asked = [request(f"r{number}", 4 + 9 * number) for number in range(5)]
    expected = run(generator(), *asked)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        found = run(generator(), *asked)
    finally:
        torch.set_num_threads(threads)
    for name, out in expected.items():
        assert out.tokens == found[name].tokens
        assert np.allclose(out.logprobs, found[name].logprobs, atol=1e-5)
