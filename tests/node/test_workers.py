"""A node's workers as its member sees them."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from diloco.creation import initial_state
from diloco.rounds.values import Lease, Span
from node.eventlog import Event
from node.roles.workers import Workers
from node.showing import Showing
from node.status_view import render
from tests.diloco.small_run import small_genesis


@pytest.mark.failure_mode(12)
async def test_a_stopped_worker_is_named_in_the_log_and_in_the_status(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path)
    (tmp_path / "genesis.json").write_bytes(genesis.to_bytes())
    shown = Showing("ann", "demo", lambda: 0)
    came = asyncio.Event()
    events: list[tuple[str, dict[str, Any]]] = []

    def emit(kind: str, /, **fields: Any) -> None:
        events.append((kind, fields))
        shown.take(Event(0.0, kind, fields))
        came.set()

    async def until(kind: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while kind not in [name for name, _ in events]:
                came.clear()
                await came.wait()
        return dict(events)[kind]

    workers = Workers(
        genesis, tmp_path / "genesis.json", initial_state(genesis), count=1, device="cpu", threads=1,
        folder=tmp_path / "worker", base=tmp_path, emit=emit,
    )  # fmt: skip
    try:
        (pid,) = (await workers.group()).pids
        os.kill(pid, signal.SIGSTOP)
        try:
            told = await until("workers.stopped")
            assert told["code"] == "E-TRN-007" and f"process {pid}" in told["reason"]
            assert f"process {pid}" in shown.status().trouble
            assert f"  trouble  Stopped by a signal: worker 0 (process {pid})." in render(shown.status(), 1.0)
        finally:
            os.kill(pid, signal.SIGCONT)
        await until("workers.continued")
        assert shown.status().trouble == "" and "trouble" not in render(shown.status(), 1.0)
    finally:
        await workers.stop()


async def test_a_lease_of_several_runs_is_trained_in_order_within_what_is_left_of_the_time(
    tmp_path: Path,
) -> None:
    genesis = small_genesis(tmp_path, round={"time_budget": "10 min"})
    (tmp_path / "genesis.json").write_bytes(genesis.to_bytes())
    workers = Workers(
        genesis, tmp_path / "genesis.json", initial_state(genesis), count=1, device="cpu", threads=1,
        folder=tmp_path / "worker", base=tmp_path, emit=lambda kind, /, **fields: None,
    )  # fmt: skip
    asked: list[tuple[list[tuple[int, int]], timedelta]] = []
    try:
        group = await workers.group()
        train = group.train

        async def noted(spans: Any, *rest: Any, **options: Any) -> Any:
            asked.append(([(span.start, span.count) for span in spans], options["budget"]))
            return await train(spans, *rest, **options)

        group.train = noted  # type: ignore[method-assign]
        lease = Lease(peer="ann", start=3, count=5, more=(Span(start=20, count=4),), size=9)
        for done in (0, 5, 0):
            outcome = await workers.train(
                lease, 1, done=done, lr=1e-3, on_step=lambda step, loss, tokens: None
            )
            assert outcome.samples == 9 - done
    finally:
        await workers.stop()
    assert [spans for spans, _ in asked] == [[(3, 5), (20, 4)], [(20, 4)], [(3, 5), (20, 4)]]
    whole, rest, again = (budget for _, budget in asked)
    assert whole == again == timedelta(minutes=10) > rest
