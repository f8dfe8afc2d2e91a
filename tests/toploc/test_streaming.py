"""The streaming builder gives the proofs of the whole, however the steps arrive."""

import threading
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import toploc
from toploc import StreamingBuilder

_HIDDEN = 96


def _steps(count, seed=0, dtype=torch.bfloat16):
    return torch.randn(count, _HIDDEN, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _whole(steps):
    return toploc.build_proofs(steps, 32, 128, skip_prefill=True)


@pytest.fixture
def builder():
    with StreamingBuilder(threads=2, backlog=3) as made:
        yield made


@pytest.mark.failure_mode(46)
def test_48_and_48_steps_give_the_proofs_of_96(builder):
    steps = _steps(96)
    builder.add("a", steps[:48])
    builder.add("a", steps[48:])
    assert builder.finish("a") == _whole(steps)


@pytest.mark.failure_mode(46)
def test_a_sequence_without_a_decode_step_has_no_proof(builder):
    assert builder.finish("never seen") == []
    builder.add("a", _steps(0))
    assert builder.finish("a") == []


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_sequences_that_come_and_go_in_batches_have_the_proofs_of_their_own_steps(data):
    lengths = data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=6))
    texts = {name: _steps(length, name) for name, length in enumerate(lengths)}
    seen = dict.fromkeys(texts, 0)
    with StreamingBuilder(threads=1, backlog=2) as builder:
        while open_texts := [name for name in texts if seen[name] < lengths[name]]:
            batch = data.draw(st.lists(st.sampled_from(open_texts), min_size=1, unique=True))
            run = min(data.draw(st.integers(1, 40)), *(lengths[name] - seen[name] for name in batch))
            for _ in range(run):
                builder.add_batch(batch, torch.stack([texts[name][seen[name]] for name in batch]))
                for name in batch:
                    seen[name] += 1
        for name, steps in texts.items():
            assert builder.finish(name) == _whole(steps)


def test_prefill_and_decode_are_the_reference_order(builder):
    prompt, steps = _steps(50, 1), _steps(70, 2)
    builder.prefill("a", prompt)
    for step in steps:
        builder.add("a", step)
    assert builder.finish("a") == toploc.build_proofs([prompt, *steps], 32, 128)
    builder.add("b", steps)
    with pytest.raises(ValueError, match="already begun"):
        builder.prefill("b", prompt)


def test_after_a_preemption_recomputed_steps_are_not_counted_twice(builder):
    steps = _steps(96)
    builder.add("a", steps[:48])
    builder.add("a", steps[:60], step=0)
    builder.add("a", steps[50:55], step=50)
    builder.add("a", steps[60:], step=60)
    assert builder.steps("a") == 96
    assert builder.finish("a") == _whole(steps)


def test_a_gap_is_an_error(builder):
    builder.add("a", _steps(10))
    with pytest.raises(ValueError, match="gap"):
        builder.add("a", _steps(1), step=11)
    with pytest.raises(ValueError, match="gap"):
        builder.add("a", _steps(1), step=-1)


def test_what_is_refused_begins_no_sequence(builder):
    builder.add("narrow", _steps(1)[:, :10])
    for wrong in (
        lambda: builder.add("a", _steps(1), step=5),
        lambda: builder.add_batch(["a", "narrow"], _steps(2)),
        lambda: builder.prefill("a", _steps(1)[0]),
    ):
        with pytest.raises(ValueError):
            wrong()
        with pytest.raises(KeyError):
            builder.suspend("a")


@pytest.mark.parametrize("cut", [0, 1, 31, 32, 33, 48, 64, 95])
def test_a_suspended_sequence_goes_on_in_another_builder(builder, cut):
    steps = _steps(96)
    builder.prefill("a", _steps(5, 9))
    builder.add("a", steps[:cut])
    state = builder.suspend("a")
    assert builder.steps("a") == 0
    with StreamingBuilder() as other:
        other.resume("b", state)
        other.add("b", steps[cut:])
        assert other.finish("b") == toploc.build_proofs([_steps(5, 9), *steps], 32, 128)


def test_a_suspended_sequence_does_not_fit_other_chunks(builder):
    builder.add("a", _steps(40))
    state = builder.suspend("a")
    with StreamingBuilder(decode_batching_size=16) as other, pytest.raises(ValueError, match="chunks of 16"):
        other.resume("a", state)
    builder.resume("a", state)
    with pytest.raises(ValueError, match="already here"):
        builder.resume("a", state)


def test_the_engine_may_overwrite_its_buffer_at_once(builder):
    steps = _steps(64)
    buffer = torch.empty(1, _HIDDEN, dtype=torch.bfloat16)
    for step in steps:
        buffer.copy_(step)
        builder.add_batch(["a"], buffer)
        buffer.fill_(7)
    assert builder.finish("a") == _whole(steps)


def test_when_the_pool_is_behind_the_caller_builds(monkeypatch):
    """With the only pool thread held, ten windows are still proved, and no more than the backlog waits."""
    hold = threading.Event()
    with StreamingBuilder(threads=1, backlog=2) as builder:
        builder._pool.submit(hold.wait)
        steps = _steps(320)
        builder.add("a", steps)
        waiting = [future for future in builder._sequences["a"].proofs if not future.done()]
        assert len(waiting) == 2
        hold.set()
        assert builder.finish("a") == _whole(steps)


def test_memory_beside_the_window_is_small(builder):
    """What a sequence in flight holds: one window of 32 rows, and futures of finished proofs."""
    builder.add("a", _steps(48))
    entry = builder._sequences["a"]
    assert entry.window.shape == (32, _HIDDEN)
    builder.discard("a")
    assert builder.steps("a") == 0


def test_rows_must_stay_of_one_kind(builder):
    builder.add("a", _steps(3))
    with pytest.raises(TypeError, match="holds"):
        builder.add("a", _steps(3).float())
    with pytest.raises(ValueError, match="channels"):
        builder.add("a", _steps(3)[:, :10])
    with pytest.raises(TypeError):
        builder.add("a", _steps(3).double())
    with pytest.raises(ValueError, match="twice"):
        builder.add_batch(["a", "a"], _steps(2))
    with pytest.raises(ValueError, match="sequences"):
        builder.add_batch(["a"], _steps(2))
    builder.add("a", _steps(29))
    with pytest.raises(ValueError, match="channels"):  # at the border of a chunk, too
        builder.add("a", _steps(1)[:, :10])
    builder.add("narrow", _steps(1)[:, :10])
    with pytest.raises(ValueError, match="channels"):
        builder.add_batch(["b", "narrow"], _steps(2))
    assert builder.steps("b") == 0, "all of a batch or none of it"
    for wrong in (0, 1.5, None):
        with pytest.raises(ValueError, match="at least 1"):
            StreamingBuilder(threads=wrong)


def test_a_closed_builder_takes_nothing(builder):
    builder.add("a", _steps(31))
    builder.close()
    with pytest.raises(RuntimeError, match="closed"):
        builder.add("a", _steps(1))


def test_a_suspended_sequence_that_is_none_leaves_nothing_behind(builder):
    builder.add("a", _steps(40))
    state = builder.suspend("a")
    with pytest.raises(ValueError):
        builder.resume("a", replace(state, proofs=(b"x",)))
    with pytest.raises(TypeError):
        builder.resume("a", replace(state, window=state.window.double()))
    for wrong in (
        {"window": state.window[:, None]},
        {"window": state.window[0, 0]},
        {"steps": -32, "proofs": ()},
    ):
        with pytest.raises(ValueError, match="no sequence has"):
            builder.resume("a", replace(state, **wrong))
    builder.resume("a", state)
    builder.add("a", _steps(64)[40:])
    assert builder.finish("a") == _whole(_steps(64))


def test_float32_streams_give_the_same_proofs(builder):
    steps = _steps(40, dtype=torch.float32)
    builder.add("a", steps)
    assert builder.finish("a") == _whole(steps.bfloat16())
