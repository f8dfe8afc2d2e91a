"""Weights that change while requests run."""

import numpy as np
import pytest

from protocol.errors import Code, NodeError
from rl.engine.interface import CHUNK
from rl.engine.limits import MAX_VERSIONS, Limits
from rl.engine.prefill import forward, logprobs
from rl.sampling import Sampling
from tests.rl.engine.small import Out, drain, generator, request, run, weights
from toploc import verify_proofs_bytes

LONG = Sampling(max_tokens=150)


def test_a_running_request_changes_at_the_border_of_a_chunk_and_loses_no_token() -> None:
    engine = generator()
    asked = request(sampling=LONG, proofs=True)
    engine.add(asked)
    out = Out()
    for _ in range(40):
        for _, piece in engine.step():
            out.take(piece)
    engine.update(1, weights(1))
    drain(engine, {"a": out})
    assert out.last is not None
    assert len(out.tokens) == 150
    assert out.versions == (0,) * 64 + (1,) * 86
    assert out.last.proof_versions == (0, 0, 1, 1, 1)
    assert out.last.refills == 1
    transcript = asked.tokens + out.tokens
    for version in (0, 1):
        states = forward(weights(version), [transcript])[0][8:-1]
        law = logprobs(weights(version), states, out.tokens, LONG)
        mine = np.array(out.versions) == version
        assert np.allclose(law[mine], np.array(out.logprobs)[mine], atol=1e-4)
        assert not np.allclose(law[~mine], np.array(out.logprobs)[~mine], atol=1e-2)
        results = verify_proofs_bytes(states, list(out.last.proofs), CHUNK, 128, skip_prefill=True)
        fits = [result.exp_mismatches == 0 and result.mant_err_mean < 1 for result in results]
        assert fits == [each == version for each in out.last.proof_versions]


def test_after_two_changes_a_rollout_stays_with_its_version() -> None:
    engine = generator()
    engine.add(request(sampling=Sampling(max_tokens=200)))
    out, version = Out(), 0
    while engine.busy:
        for _, piece in engine.step():
            out.take(piece)
        if len(out.tokens) in (10, 40, 70) and len(out.tokens) // 30 == version:
            version += 1
            engine.update(version, weights(version))
    assert out.versions == (0,) * 32 + (1,) * 32 + (2,) * 136
    assert out.last is not None and out.last.refills == 2
    assert engine.versions == (3,)


def test_a_request_that_has_sampled_nothing_begins_with_the_newest_weights() -> None:
    engine = generator(Limits(slots=1))
    engine.add(request("runs", sampling=Sampling(max_tokens=20)))
    engine.add(request("waits"))
    engine.step()  # reads
    engine.step()  # samples
    engine.update(1, weights(1))
    outs = drain(engine, {"runs": Out(), "waits": Out()})
    assert set(outs["runs"].versions) == {0}
    assert set(outs["waits"].versions) == {1}
    assert outs["waits"].last is not None and outs["waits"].last.refills == 0


@pytest.mark.failure_mode(43)
def test_the_same_prompt_before_and_after_an_update_shares_nothing() -> None:
    engine = generator()
    before = request("before", 60, sampling=Sampling(max_tokens=30))
    engine.add(before)
    for _ in range(10):
        engine.step()
    engine.update(1, weights(1))
    after = request("after", 60, seed=before.seed)
    assert before.tokens == after.tokens
    engine.add(after)
    out = drain(engine, {"before": Out(), "after": Out()})["after"]
    assert out.last is not None and out.last.reused == 0
    fresh = generator()
    fresh.update(1, weights(1))
    assert (out.tokens, out.logprobs) == (lambda each: (each.tokens, each.logprobs))(
        run(fresh, after)["after"]
    )
    shared = run(fresh, request("x", 60), request("y", 60))
    assert sorted(each.last.reused for each in shared.values() if each.last) == [0, 59]  # the check can fail


def test_old_weights_and_their_cache_go_when_nobody_runs_on_them() -> None:
    engine = generator()
    engine.add(request(sampling=Sampling(max_tokens=20)))
    engine.step()
    engine.step()
    engine.update(1, weights(1))
    assert engine.versions == (0, 1)
    while engine.busy:
        engine.step()
    assert engine.versions == (1,)
    assert engine.schedule.versions == (1,)


def test_there_are_never_more_versions_in_memory_than_allowed() -> None:
    engine = generator()
    for number in range(MAX_VERSIONS - 1):  # each pins the version it has begun with
        engine.add(request(f"r{number}", sampling=Sampling(max_tokens=31)))
        engine.step()
        engine.step()
        engine.update(number + 1, weights(number % 2))
    assert len(engine.versions) == MAX_VERSIONS and not engine.may_update
    with pytest.raises(NodeError) as caught:
        engine.update(9, weights(1))
    assert caught.value.code is Code.RL_WEIGHTS
    while engine.busy:
        engine.step()
    assert engine.may_update


def test_an_older_version_is_refused() -> None:
    engine = generator()
    engine.update(4, weights(1))
    for version in (4, 3):
        with pytest.raises(NodeError):
            engine.update(version, weights(0))
