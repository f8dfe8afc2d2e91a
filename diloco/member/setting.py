"""What a member is made with: the run, its own place in it, and the outside world as narrow interfaces."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from diloco.codec import Codec, codec
from diloco.creation import grid_of
from diloco.data.corpus import Corpus
from diloco.genesis import Genesis
from diloco.layout import Grid
from diloco.member.admission import Anchor, anchor_in, read_admission
from diloco.parameters import accepts
from diloco.rounds.evidence import Proof, check
from diloco.rounds.records import Order
from diloco.rounds.rules import Rules, Seat
from diloco.rounds.state import Timing
from diloco.rounds.statements import Close, Evidence, Ready
from diloco.rounds.values import Lease
from protocol.clock import monotonic
from protocol.delegation import Authority, authority
from protocol.envelope import Sealed, unseal
from protocol.errors import Code, NodeError
from protocol.identity import Verifier, verify
from protocol.keeping import keep_running
from protocol.messages import decode
from protocol.rpc import Endpoint
from protocol.units import PeerId, RunId


class Emit(Protocol):
    """Writes a line of the event log; never raises."""

    def __call__(self, kind: str, /, **fields: object) -> None:
        """Write an event."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What training on a part of a lease gave.

    Attributes:
        samples: Samples used, from the beginning of the spans on.
        tokens: Target tokens of these samples.
        steps: Inner steps.
        loss: Mean nats per token.
        finite: False when loss or gradient was not; then nothing is contributed.
    """

    samples: int
    tokens: int
    steps: int
    loss: float
    finite: bool


class Trainer(Protocol):
    """A node's workers, as a member sees them; the pseudo-gradient is left in the outer state."""

    async def train(
        self,
        lease: Lease,
        round_number: int,
        *,
        done: int,
        lr: float,
        on_step: Callable[[int, float, int], None],
    ) -> Outcome:
        """Train on a lease from sample ``done`` on, continuing the pseudo-gradient that is there when ``done`` > 0.

        ``lr`` is the highest learning rate of the schedule.

        Raises:
            NodeError: ``TRN_WORKER_DIED``: the call may be repeated from ``done = 0``; ``TRN_WORKER_STOPPED``: it would
                be of no use.
        """
        ...

    def request_stop(self) -> None:
        """End the running ``train`` after its current step."""
        ...

    async def evaluate(self) -> float | None:
        """Mean nats per token of the current outer parameters on the validation samples; None where there are none."""
        ...


@dataclass(frozen=True)
class Setting:
    """Everything that does not change while a member lives.

    Attributes:
        genesis: The run.
        run: Its id.
        rules: Its rules, with the verifiers bound.
        timing: Deadlines of the round machine.
        grid: Chunk grid.
        codec: Codec of pseudo-gradients.
        endpoint: The node's end of the data plane.
        folder: The node's data directory.
        peers: Admitted peers that are known now, without this one.
        admission: This member's admission (envelope bytes).
        emit: The event log.
        anchor: The value that the admission names, if it names one.
        corpus: The run's files on this node, where one of them holds the initial weights.
        bytes_sent: Bytes sent for rounds and for state transfer so far.
        clock: Monotonic seconds.
        wall: Unix seconds, by which the starts of one key are told apart.
    """

    genesis: Genesis
    run: RunId
    rules: Rules
    timing: Timing
    grid: Grid
    codec: Codec
    endpoint: Endpoint
    folder: Path
    peers: Callable[[], Iterable[PeerId]]
    admission: bytes
    emit: Emit
    anchor: Anchor | None = None
    corpus: Corpus | None = None
    bytes_sent: Callable[[], tuple[int, int]] = lambda: (0, 0)
    clock: Callable[[], float] = monotonic
    wall: Callable[[], float] = monotonic

    @property
    def me(self) -> PeerId:
        """This member's peer id."""
        return self.endpoint.peer_id


def rules_of(
    genesis: Genesis, seat_of: Callable[[bytes, str], Seat | None], *, verifier: Verifier = verify
) -> Rules:
    """The rules that a genesis fixes."""
    sections, grid, run = genesis.sections, grid_of(genesis), genesis.run_id

    def unseal_ready(raw: bytes) -> Sealed[Ready]:
        return unseal(raw, run=run, expect=Ready, verifier=verifier)

    @lru_cache(maxsize=64)  # the same few are looked at in every attempt
    def unseal_close(raw: bytes) -> Sealed[Close]:
        return unseal(raw, run=run, expect=Close, verifier=verifier)

    def unseal_order(raw: bytes) -> Sealed[Order]:
        order = unseal(raw, run=run, expect=Order, verifier=verifier)
        if order_right(order, run, genesis.operator, verifier=verifier) is None:
            raise NodeError(
                Code.RND_CHAIN, "An order is not signed by the run's operator.", peer=order.sender
            )
        return order

    def delegation_of(order: Sealed[Order]) -> int:
        right = order_right(order, run, genesis.operator, verifier=verifier)
        return right.number if right else 0

    @lru_cache(maxsize=64)
    def check_evidence(raw: bytes) -> Proof:
        return check(decode(Evidence, raw), lambda statement: unseal(statement, run=run, verifier=verifier))

    return Rules(
        run=run,
        rounds=sections.run.rounds,
        chunk_sizes=tuple(part.stop - part.start for part in grid.slices()),
        samples=sections.round.inner_steps * sections.inner.samples_per_step,
        samples_per_step=sections.inner.samples_per_step,
        tokens_per_sample=sections.tokens_per_sample,
        weight_cap=4,
        open_share=1 / 3,
        max_voters=sections.round.max_voters,
        ghost_rounds=sections.round.ghost_rounds,
        unseal_ready=unseal_ready,
        unseal_close=unseal_close,
        unseal_order=unseal_order,
        seat_of=seat_of,
        check_evidence=check_evidence,
        accepts=lambda name, text: accepts(sections, name, text),
        delegation_of=delegation_of,
        aggregation=sections.round.aggregation,
        timed=sections.round.time_budget is not None,
    )


def order_right(
    order: Sealed[Order], run: RunId, operator: PeerId, *, verifier: Verifier = verify
) -> Authority | None:
    """By what right an order was given; None if by none."""
    scope = {"ban": "ban", "unban": "ban", "kick": "ban", "seat": "seat", "unseat": "seat"}
    return authority(
        order.sender, order.message.delegation, scope.get(order.message.kind, "order"), root=operator, run=run,
        verifier=verifier,
    )  # fmt: skip


def anchor_of(raw: bytes, genesis: Genesis, peer: PeerId) -> Anchor | None:
    """The anchor that an admission names, if it names any.

    Raises:
        NodeError: As ``read_admission``.
    """
    return anchor_in(read_admission(raw, genesis.run_id, genesis.operator, peer).message)


def timing_of(genesis: Genesis) -> Timing:
    """The deadlines that a genesis fixes."""
    deadline = genesis.sections.deadline
    return Timing(
        floor=deadline.ready_floor,
        factor=deadline.ready_factor,
        mad=deadline.ready_mad,
        most=deadline.ready_max,
        attempt=deadline.attempt,
        growth=deadline.attempt_growth,
        longest=deadline.attempt_max,
        lost=deadline.lost_after,
    )


def codec_of(genesis: Genesis) -> Codec:
    """The codec that a genesis names."""
    return codec(genesis.sections.round.codec)


class Tasks:
    """Background tasks of one owner: failures are reported, all end with ``close``."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._failed = failed

    def spawn(self, work: object, name: str) -> "asyncio.Task[object]":
        """Run a coroutine in the background."""
        task: asyncio.Task[object] = asyncio.ensure_future(work)  # type: ignore[call-overload]
        task.set_name(name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(self, work: Callable[[], Awaitable[None]], name: str) -> "asyncio.Task[object]":
        """Run a loop in the background, and begin it again when it fails."""
        return self.spawn(keep_running(work, lambda error: self._failed(name, error)), name)

    def _ended(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(task.get_name(), error)

    async def close(self) -> None:
        """Cancel everything and wait for it."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


REPEAT = timedelta(seconds=2)
"""Statements of an undecided round are repeated to everyone this often (docs/rounds.md, rule 6)."""

TICK = timedelta(milliseconds=200)
"""How often the round machine is told that time has passed."""
