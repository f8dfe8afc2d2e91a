"""Real worker processes, driven as a daemon drives them."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio

from diloco.creation import initial_state
from diloco.genesis import Genesis
from diloco.outer_state import OuterState
from diloco.worker.group import StepDone, WorkerGroup
from protocol.errors import Code, NodeError
from tests.diloco.small_run import small_genesis

pytestmark = pytest.mark.asyncio(loop_scope="module")
REPOSITORY = Path(__file__).parents[3]
BATCH, CONTEXT = 5, 16


@dataclass(frozen=True)
class Span:
    start: int
    count: int


@dataclass
class Node:
    """One group with its own outer state."""

    genesis: Genesis
    state: OuterState
    group: WorkerGroup
    folder: Path

    def begin(self) -> None:
        """Go back to the run's first parameters."""
        self.put(initial_state(self.genesis).params)

    def put(self, params: np.ndarray) -> None:
        back, momentum = self.state.back()
        back[:], momentum[:] = params, 0.0
        self.state.flip(0)


async def start_node(folder: Path, workers: int) -> Node:
    genesis = small_genesis(folder)
    (folder / "genesis.json").write_bytes(genesis.to_bytes())
    state = initial_state(genesis)
    group = await WorkerGroup.start(
        folder / "genesis.json", state, workers, "cpu", 1, folder / "worker", base=folder
    )
    return Node(genesis, state, group, folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    started = await start_node(tmp_path_factory.mktemp("one"), workers=1)
    yield started
    await started.group.stop()


async def test_inner_steps_leave_outer_minus_inner_and_lower_the_loss(node: Node) -> None:
    node.begin()
    before = await node.group.evaluate()
    steps: list[StepDone] = []
    result = await node.group.train([Span(0, 12), Span(100, 11)], 0, steps.append)
    assert (result.samples, result.tokens, result.steps, result.finite) == (23, 23 * CONTEXT, 5, True)
    assert [step.step for step in steps] == [0, 1, 2, 3, 4]
    assert [step.tokens for step in steps] == [BATCH * CONTEXT] * 4 + [3 * CONTEXT]
    assert result.loss == pytest.approx(sum(step.loss * step.tokens for step in steps) / result.tokens)
    assert node.state.gradient.any()
    node.put(node.state.params - node.state.gradient)
    assert await node.group.evaluate() < before


async def test_evaluating_twice_gives_the_same_number_and_follows_the_outer_state(node: Node) -> None:
    node.begin()
    first = await node.group.evaluate()
    assert await node.group.evaluate() == first
    node.put(node.state.params * 1.5)
    assert await node.group.evaluate() != first


async def test_training_ends_after_the_step_in_hand_when_asked(node: Node) -> None:
    node.begin()
    result = await node.group.train(Span(0, 500), 0, lambda step: node.group.request_stop())
    assert 1 <= result.steps < 100
    assert result.samples == result.steps * BATCH


async def test_a_request_to_stop_without_training_changes_nothing(node: Node) -> None:
    node.group.request_stop()
    assert (await node.group.train(Span(0, 10), 0)).steps == 2


async def test_a_spent_time_budget_still_takes_one_step(node: Node) -> None:
    assert (await node.group.train(Span(0, 500), 0, budget=timedelta(0))).steps == 1


async def test_a_cancelled_training_leaves_the_workers_usable(node: Node) -> None:
    node.begin()
    stepped = asyncio.Event()
    call = asyncio.create_task(node.group.train(Span(0, 5_000), 0, lambda step: stepped.set()))
    await stepped.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await node.group.train(Span(0, 10), 0)).steps == 2


async def test_going_on_adds_to_the_pseudo_gradient_instead_of_beginning_anew(node: Node) -> None:
    node.begin()
    await node.group.train(Span(0, 20), 0)
    four = node.state.gradient.copy()
    await node.group.train(Span(20, 20), 0, first_step=4, go_on=True)
    assert np.linalg.norm(node.state.gradient) > 1.2 * np.linalg.norm(four)
    await node.group.evaluate()
    await node.group.train(Span(40, 5), 0, first_step=8, go_on=True, budget=timedelta(0))
    assert np.linalg.norm(node.state.gradient) > 1.2 * np.linalg.norm(four)


@pytest.mark.failure_mode(28)
@pytest.mark.parametrize("poison", [1e30, np.nan])
async def test_a_loss_that_is_not_finite_contributes_nothing_and_the_next_round_goes_on(
    node: Node, poison: float
) -> None:
    node.begin()
    node.put(node.state.params * np.float32(poison))
    node.state.gradient[:] = 7.0
    result = await node.group.train(Span(0, 20), 1)
    assert (result.finite, result.steps, result.samples) == (False, 0, 0)
    assert not node.state.gradient.any()
    node.begin()
    result = await node.group.train(Span(0, 20), 2)
    assert result.finite and np.isfinite(node.state.gradient).all() and node.state.gradient.any()


async def test_generated_text_depends_on_its_seed_only(node: Node) -> None:
    node.begin()
    first = await node.group.generate("1 and 2", 20, seed=1)
    assert first and first == await node.group.generate("1 and 2", 20, seed=1)
    assert first != await node.group.generate("1 and 2", 20, seed=2)
    assert await node.group.generate("", 3, temperature=0.0) == await node.group.generate(
        "", 3, temperature=0.0
    )


async def test_a_killed_worker_is_an_error_once_and_then_back_but_only_once_a_round(node: Node) -> None:
    node.begin()

    def kill(step: StepDone) -> None:
        os.kill(node.group.pids[0], signal.SIGKILL)

    with pytest.raises(NodeError, match="signal 9") as caught:
        await node.group.train(Span(0, 5_000), 5, kill)
    assert caught.value.code is Code.TRN_WORKER_DIED
    with pytest.raises(NodeError, match="signal 9"):
        await node.group.train(Span(0, 5_000), 5, kill)
    with pytest.raises(NodeError, match="ended twice in round 5"):
        await node.group.train(Span(0, 10), 5)
    assert (await node.group.train(Span(0, 10), 6)).finite


@pytest.mark.failure_mode(12)
async def test_a_stopped_worker_is_said_to_be_stopped_and_is_of_use_once_it_goes_on(node: Node) -> None:
    node.begin()
    (pid,) = node.group.pids
    stops: list[int] = []

    def stop(step: StepDone) -> None:
        stops.append(step.step)
        os.kill(pid, signal.SIGSTOP)

    try:
        with pytest.raises(NodeError) as caught:
            await node.group.train(Span(0, 5_000), 9, stop)
        assert caught.value.code is Code.TRN_WORKER_STOPPED and f"process {pid}" in caught.value.sentence
        with pytest.raises(NodeError) as caught:
            await node.group.evaluate()
        assert caught.value.code is Code.TRN_WORKER_STOPPED
    finally:
        os.kill(pid, signal.SIGCONT)
    result = await node.group.train(Span(0, 10), 10)
    assert (result.steps, result.finite) == (2, True) and node.group.pids == (pid,)
    assert len(stops) < 5 and node.group.stopped == ""


@pytest.mark.failure_mode(28)
async def test_two_workers_share_the_rows_and_compute_what_one_does(node: Node, tmp_path: Path) -> None:
    pair = await start_node(tmp_path, workers=2)
    try:
        # A loss that is not finite makes the moments new, as those of the pair are.
        node.put(node.state.params * np.float32(np.nan))
        assert not (await node.group.train(Span(0, 17), 7)).finite
        node.begin()
        lone = await node.group.train(Span(0, 17), 7)
        both = await pair.group.train(Span(0, 17), 7)
        assert (both.samples, both.tokens, both.steps) == (lone.samples, lone.tokens, lone.steps)
        assert both.loss == pytest.approx(lone.loss, rel=1e-4)
        assert pair.state.layout == node.state.layout
        for name, values in pair.state.layout.views(pair.state.gradient):
            assert values.reshape(len(values), -1).any(axis=1).mean() > 0.5, name
        assert await pair.group.evaluate() == pytest.approx(await node.group.evaluate(), rel=1e-5)
        text = await pair.group.generate("1 and", 5, temperature=0.0)
        assert text == await node.group.generate("1 and", 5, temperature=0.0)
        # NaN in what one of the two holds: neither waits for the other, and both begin anew from the outer state.
        whole = pair.state.params.copy()
        pair.put(np.where(np.arange(len(whole)) < 10, np.float32(np.nan), whole))
        assert not (await pair.group.train(Span(0, 17), 7)).finite
        assert not pair.state.gradient.any()
        pair.put(whole)
        again = await pair.group.train(Span(0, 17), 7)
        assert again.finite and again.loss == pytest.approx(lone.loss, rel=1e-4)
    finally:
        pids = pair.group.pids
        await pair.group.stop()
    assert len(pids) == 2 and not any(psutil.pid_exists(pid) for pid in pids)
    assert not list((tmp_path / "worker").glob("ranks-*"))


async def test_stopping_the_group_ends_a_running_training_with_an_error(node: Node) -> None:
    node.begin()
    pids = node.group.pids
    stops: list[asyncio.Task[None]] = []

    def stop(step: StepDone) -> None:
        if not stops:
            stops.append(asyncio.create_task(node.group.stop()))

    with pytest.raises(NodeError) as caught:
        await node.group.train(Span(0, 5_000), 8, stop)
    await stops[0]
    assert caught.value.code is Code.TRN_WORKER_DIED
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with pytest.raises(NodeError, match="were stopped"):
        await node.group.evaluate()


async def test_a_run_whose_text_is_not_here_is_refused_at_the_start(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path)
    (tmp_path / "genesis.json").write_bytes(genesis.to_bytes())
    with pytest.raises(NodeError) as caught:
        await WorkerGroup.start(
            tmp_path / "genesis.json", initial_state(genesis), 1, "cpu", 1, tmp_path / "worker"
        )
    assert caught.value.code is Code.TRN_DATA
    assert not list((tmp_path / "worker").glob("ranks-*"))


async def test_workers_die_with_their_daemon(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path)
    (tmp_path / "genesis.json").write_bytes(genesis.to_bytes())
    program = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from diloco.creation import initial_state
        from diloco.genesis import Genesis
        from diloco.worker.group import WorkerGroup

        async def main(folder):
            state = initial_state(Genesis.parse((folder / "genesis.json").read_bytes()))
            group = await WorkerGroup.start(folder / "genesis.json", state, 1, "cpu", 1, folder / "w", base=folder)
            print(*group.pids, flush=True)
            await asyncio.Event().wait()

        asyncio.run(main(Path(sys.argv[1])))
        """
    )
    daemon = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    try:
        assert daemon.stdout is not None
        line = await asyncio.to_thread(daemon.stdout.readline)
        workers = [psutil.Process(int(pid)) for pid in line.split()]
        assert len(workers) == 1
    finally:
        daemon.kill()
        daemon.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 10)
    assert not alive
