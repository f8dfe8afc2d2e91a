"""How a rollout worker comes by its work, over real connections."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from node.roles.policies import PolicyFollower
from node.roles.rollout import RolloutWorker
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.rpc import Context, Endpoint
from protocol.testing import local_endpoints
from rl.messages import AskWork, WorkLease
from tests.rl.validation.world import World

MINE = Identity.ephemeral(b"n" * 32)


def emit(kind: str, /, **fields: Any) -> None:
    pass


class Asked:
    """Trainers that answer as they are told to, and in which order they were asked."""

    def __init__(self, trainers: tuple[Endpoint, ...]) -> None:
        self.order: list[int] = []
        self.answers: list[WorkLease | NodeError] = [WorkLease(seconds=3.0, reason="no")] * len(trainers)
        for number, trainer in enumerate(trainers):
            trainer.handle(self.handler(number))

    def handler(self, number: int) -> Callable[[AskWork, Context], Awaitable[WorkLease]]:
        async def on_ask_work(message: AskWork, context: Context) -> WorkLease:
            self.order.append(number)
            answer = self.answers[number]
            if isinstance(answer, NodeError):
                raise answer
            return answer

        return on_ask_work

    async def ask(self, worker: RolloutWorker) -> tuple[float | None, list[int]]:
        """What the worker does next, and whom it asked for that."""
        self.order.clear()
        return await worker._ask_all(), list(self.order)


def worker(here: Endpoint, trainers: tuple[Endpoint, ...], folder: Path) -> RolloutWorker:
    peers = [each.peer_id for each in trainers]
    world, engine = World(), None
    policies = PolicyFollower(here, lambda: peers, folder / "policies", (), 4, emit)
    return RolloutWorker(
        MINE, here, lambda: peers, world.terms, world.renderer, world.remote, engine, 0, policies, folder, emit,
        lambda *said: None,
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Leases that the worker began, which are not worked on here."""
    begun: list[tuple[str, int]] = []
    monkeypatch.setattr(
        RolloutWorker, "_begin", lambda self, trainer, lease: begun.append((trainer, lease.counter))
    )
    return begun


async def test_trainers_with_work_are_asked_in_turn(tmp_path: Path, leases: list[tuple[str, int]]) -> None:
    async with local_endpoints(3) as (here, *others):
        trainers = tuple(sorted(others, key=lambda each: each.peer_id))
        asked, mine = Asked(trainers), worker(here, trainers, tmp_path)
        asked.answers = [WorkLease(counter=number, positions=(number,), seconds=60.0) for number in range(2)]
        assert [await asked.ask(mine) for _ in range(4)] == [
            (None, [0]),
            (None, [1]),
            (None, [0]),
            (None, [1]),
        ]
        assert [peer for peer, _ in leases] == [trainers[n].peer_id for n in (0, 1, 0, 1)]
        asked.answers = [WorkLease(seconds=7.0), WorkLease(seconds=3.0)]
        assert await asked.ask(mine) == (3.0, [0, 1]), "it asks again when the first of them said"


async def test_a_trainer_that_does_not_answer_delays_nobody_elses_work(
    tmp_path: Path, leases: list[tuple[str, int]]
) -> None:
    async with local_endpoints(3) as (here, *others):
        trainers = tuple(sorted(others, key=lambda each: each.peer_id))
        asked, mine = Asked(trainers), worker(here, trainers, tmp_path)
        asked.answers = [
            NodeError(Code.NET_BUSY, "This trainer is still starting."),
            WorkLease(counter=0, positions=(1,), seconds=60.0),
        ]
        assert await asked.ask(mine) == (None, [0, 1])
        assert [await asked.ask(mine) for _ in range(3)] == [(None, [1])] * 3
        asked.answers = [WorkLease(counter=0, positions=(0,), seconds=60.0), WorkLease(seconds=3.0)]
        assert await asked.ask(mine) == (None, [1, 0]), "it is asked where nobody else has work"
        assert [peer for peer, _ in leases] == [*[trainers[1].peer_id] * 4, trainers[0].peer_id]
