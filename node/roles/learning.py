"""A trainer's part in a run of reinforcement learning: it publishes the policy, hands out work, trains on what comes.

It is the ``Trainer`` of this node's member. The orchestrator begins once there is a certified value.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from blake3 import blake3

from diloco.data.tokenizer import load_tokenizer
from diloco.genesis import Genesis
from diloco.member.member import Member
from diloco.member.setting import Emit, Outcome
from diloco.outer_state import OuterState
from diloco.rounds.values import Lease, Value
from node.eventlog import Event
from node.network import Network
from node.roles.orchestrator import OrchestratorRole
from node.roles.publishing import PolicyPublisher
from node.roles.workers import Workers
from node.runfile import PolicySection
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.keeping import keep_running
from protocol.units import Bytes, Digest, PeerId
from rl.config import objective_of, rl_of, rules_of, sampling_of, shares_of
from rl.environments.hosting import HostedEnvironment
from rl.environments.transcript import Renderer
from rl.orchestration.audits import Audits
from rl.orchestration.desk import Orchestrator
from rl.orchestration.feed import Feed
from rl.orchestration.folder import Folder
from rl.orchestration.moving import moved
from rl.orchestration.rows import Work
from rl.orchestration.store import Store
from rl.orchestration.trainer import RolloutTrainer, Settings
from rl.rollouts.limits import Limits
from rl.rollouts.reading import Reader
from rl.rollouts.record import SCHEMA, Provenance
from rl.validation.draw import LINKS

BUDGET = Bytes(4 << 30)
"""Rollout files that a trainer keeps on its disk, those that are coming included."""


class Learner:
    """Drives workers by rollouts. Make it before the member, ``attach`` the member, then ``start``.

    Args:
        identity: The node.
        genesis: The run.
        network: The node's network.
        state: The outer state.
        workers: The node's workers, which run ``rl.training``.
        section: How the policy is published.
        folder: The node's data directory.
        emit: The event log.
        order: Orders a ban, where this node has the operator's key.
    """

    def __init__(
        self,
        identity: Identity,
        genesis: Genesis,
        network: Network,
        state: OuterState,
        workers: Workers,
        section: PolicySection,
        folder: Path,
        emit: Emit,
        order: Callable[[str, str], None] | None,
    ) -> None:
        self._me, self._genesis, self._state, self._workers = identity, genesis, state, workers
        self._policy, self._emit, self._root = section, emit, folder / "rl"
        self._section = rl_of(genesis.sections)
        tokenizer = load_tokenizer(genesis.tokenizer, genesis.sections.model.vocab)
        self._sampling = sampling_of(self._section, Renderer(tokenizer))
        self._rules = rules_of(genesis.sections)
        self._member: Member | None = None
        self._version = ""
        self._files = Folder(self._root / "rollouts", BUDGET)
        self._reader = Reader(Limits())
        self._publisher = PolicyPublisher(
            identity, state.layout, self._section.weights, self._root / "policies",
            2 * self._section.window + 2, emit,
        )  # fmt: skip
        self._audits = Audits(_secret(identity, genesis.run_id), genesis.run_id, shares_of(self._section))
        self._role = OrchestratorRole(network, self._me, self._files, self._publisher, emit, order)
        self._trainer: asyncio.Future[RolloutTrainer] = asyncio.get_running_loop().create_future()
        self._rounds: asyncio.Queue[int] = asyncio.Queue()
        self._following: asyncio.Future[None] | None = None

    def take(self, event: Event) -> None:
        """A sink of the event log: the member applied a round, or restored a state."""
        if event.kind == "apply":
            self._rounds.put_nowait(event["round"])
        elif event.kind == "reset":
            self._rounds.put_nowait(event["round"] + 1)

    async def start(self, member: Member) -> None:
        """Serve the policy, and follow the member.

        Raises:
            NodeError: RL_ENVIRONMENT when the run's environment cannot be used here; NET_PORT_IN_USE; STO_….
        """
        self._member = member
        section = self._section
        async with HostedEnvironment(section.environment, section.config) as environment:
            self._version = environment.version
        await self._publisher.start(self._policy.host, self._policy.port, self._policy.announce)
        follow = keep_running(
            self._follow,
            lambda error: self._emit("task.failed", task="policy", reason=f"{type(error).__name__}: {error}"),
        )
        self._following = asyncio.ensure_future(follow)

    async def stop(self) -> None:
        """End everything but the workers."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._role.close()
        await self._publisher.stop()
        await self._reader.close()

    # ---- following the member

    async def _follow(self) -> None:
        while True:
            number = await self._rounds.get()
            value = self._value_before(number)
            if value is None:
                continue
            first = not self._trainer.done()
            desk = self._desk(value)
            fallen = desk.certified(value)
            if first:
                fallen = moved((), desk.state)
            if fallen:
                self._role.take_over(fallen)
            if self._state.round == number and self._rounds.empty():
                await self._publisher.publish(number, self._state.params, Digest(value.beacon))
                desk.published(number)

    def _value_before(self, number: int) -> Value | None:
        """The value that made a policy version."""
        assert self._member is not None
        state = self._member.state
        if state is not None and state.value.round == number - 1:
            return state.value
        certified = self._member.ledger.get(number - 1)
        return certified.value if certified is not None else None

    def _desk(self, value: Value) -> Orchestrator:
        if self._trainer.done():
            return self._role.desk
        desk = Orchestrator(
            self._me, self._rules, value,
            store=Store(self._root / "orchestrator.sqlite", self._genesis.run_id), folder=self._files,
            reader=self._reader, expected=self._expected, audits=self._audits,
            outward=self._role.outward, emit=self._emit,
        )  # fmt: skip
        sections = self._genesis.sections
        settings = Settings(
            size=sections.inner.samples_per_step, row=sections.model.context, patience=self._section.patience,
            budget=sections.round.time_budget, objective=objective_of(sections),
        )  # fmt: skip
        batches = self._root / "batches"
        batches.mkdir(parents=True, exist_ok=True)
        self._publisher.chain = lambda: _chain_of(desk, self._audits)
        self._role.serve(desk)
        self._trainer.set_result(
            RolloutTrainer(
                self._workers,
                Feed(desk, self._emit),
                settings,
                batches,
                policies=self._paths,
                reference=self._reference(),
                emit=self._emit,
                clock=monotonic,
            )
        )
        return desk

    def _paths(self, versions: frozenset[int]) -> Mapping[int, Path]:
        here = self._publisher.paths()
        if missing := sorted(versions - here.keys()):
            raise NodeError(
                Code.RL_POLICY, f"The weights of policy version {missing[0]} are not here any more."
            )
        return {version: here[version] for version in versions}

    def _reference(self) -> Path | None:
        if objective_of(self._genesis.sections).kl_coefficient == 0:
            return None
        return self._publisher.keep_reference()

    def _expected(self, work: Work) -> Provenance:
        made = self._publisher.made(work.version)
        return Provenance(
            schema=SCHEMA, run=self._genesis.run_id, worker=PeerId(work.worker), trainer=self._me.peer_id,
            counter=work.counter, version=work.version, weights=made.weights, beacon=made.beacon,
            environment=self._section.environment, environment_version=self._version,
            tokenizer=Digest(blake3(self._genesis.tokenizer.encode()).digest()), sampling=self._sampling,
        )  # fmt: skip

    # ---- what a member asks of its trainer

    async def train(
        self,
        lease: Lease,
        round_number: int,
        *,
        done: int,
        lr: float,
        on_step: Callable[[int, float, int], None],
    ) -> Outcome:
        """See ``diloco.member.setting.Trainer.train``."""
        trainer = await asyncio.shield(self._trainer)
        return await trainer.train(lease, round_number, done=done, lr=lr, on_step=on_step)

    def request_stop(self) -> None:
        """See ``Trainer.request_stop``."""
        if self._trainer.done():
            self._trainer.result().request_stop()

    async def evaluate(self) -> None:
        """Nothing is held out: a policy is judged by its rewards."""


def _secret(identity: Identity, run: str) -> bytes:
    """The 32 secret bytes of a trainer's audit chains: only its key makes this signature, which nobody is shown."""
    return blake3(identity.sign(f"intellect-node audit chains 1/{run}".encode())).digest()


def _chain_of(desk: Orchestrator, audits: Audits) -> tuple[int, bytes]:
    """The audit chain of the file that is acknowledged next."""
    number = desk.state.next_number
    return (number - 1) // LINKS, audits.anchor(number)
