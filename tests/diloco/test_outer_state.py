"""The outer state in shared memory."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from diloco.layout import Layout
from diloco.outer_state import OuterState
from protocol.errors import Code, NodeError
from tests.own import open_files

LAYOUT = Layout.of([("a", (1000, 3)), ("b", (7,))])

CHILD = """
import sys
from diloco.layout import Layout
from diloco.outer_state import OuterState
state = OuterState.attach(int(sys.argv[1]), Layout.of([("a", (1000, 3)), ("b", (7,))]))
state.gradient[:] = state.params * 2
print(state.round, float(state.momentum[0]), "torch" in sys.modules)
"""


@pytest.fixture
def state():
    made = OuterState.create(LAYOUT)
    yield made
    made.close()


def test_it_starts_as_zeros_at_round_zero(state: OuterState) -> None:
    assert state.round == state.sequence == 0
    for part in (state.params, state.momentum, state.gradient, *state.back()):
        assert part.shape == (3007,)
        assert part.dtype == np.float32
        assert not part.any()


def test_what_is_written_to_the_back_shows_only_after_the_flip(state: OuterState) -> None:
    params, momentum = state.back()
    params[:], momentum[:] = 1, 2
    assert not state.params.any()
    state.flip(5)
    assert state.round == 5
    assert (state.params == 1).all()
    assert (state.momentum == 2).all()
    params, momentum = state.back()
    params[:], momentum[:] = 3, 4
    assert (state.params == 1).all()
    state.flip(6)
    assert (state.round, state.sequence) == (6, 2)
    assert (state.params == 3).all()
    assert (state.momentum == 4).all()
    assert not state.gradient.any()


def test_the_current_copy_cannot_be_written(state: OuterState) -> None:
    with pytest.raises(ValueError, match="read-only"):
        state.params[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        state.momentum[0] = 1


def test_a_worker_process_sees_it_and_writes_the_pseudo_gradient(state: OuterState) -> None:
    params, momentum = state.back()
    params[:], momentum[:] = 1.5, -0.25
    state.flip(9)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(state.fd)],
        pass_fds=[state.fd],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["9", "-0.25", "False"]
    assert (state.gradient == 3).all()


def test_it_has_no_name_that_could_be_left_behind(state: OuterState) -> None:
    assert os.readlink(f"/proc/self/fd/{state.fd}").startswith("/memfd:")
    with pytest.raises(OSError, match=r"."):
        os.ftruncate(state.fd, 4096)


def test_views_live_on_after_it_is_closed() -> None:
    state = OuterState.create(LAYOUT)
    gradient = state.gradient
    gradient[:] = 8
    state.close()
    state.close()
    del state
    assert (gradient == 8).all()


def test_memory_of_another_layout_or_kind_is_refused(state: OuterState) -> None:
    same_size = Layout.of([("a", (3, 1000)), ("b", (7,))])
    other_size = Layout.of([("a", (100_000, 3))])
    reading, writing = os.pipe()
    try:
        for fd, layout in (
            (state.fd, same_size),
            (state.fd, other_size),
            (reading, LAYOUT),
            (99_999, LAYOUT),
        ):
            with pytest.raises(NodeError) as caught:
                OuterState.attach(fd, layout)
            assert caught.value.code == Code.TRN_MODEL
    finally:
        os.close(reading)
        os.close(writing)


def test_too_little_memory_is_one_sentence_and_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    before = open_files()
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(
        NodeError, match="shared memory for the outer state: Cannot allocate memory"
    ) as caught:
        OuterState.create(LAYOUT)
    assert caught.value.code == Code.SYS_MEMORY
    assert not open_files() - before
