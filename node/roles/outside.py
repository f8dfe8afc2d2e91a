"""What a node does that does not train: it makes rollouts, or judges them. Puts the parts together and ends them."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from blake3 import blake3

from diloco.data.tokenizer import load_tokenizer
from diloco.genesis import Genesis
from diloco.member.setting import Emit
from node.network import Network
from node.roles.policies import PolicyFollower
from node.runfile import RunFile
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.units import Digest
from rl.config import kind_of, rl_of, shares_of, terms_of
from rl.environments.hosting import HostedEnvironment
from rl.environments.transcript import Renderer
from rl.validation.terms import Terms

Say = Callable[[str, str, str], None]


class Role(Protocol):
    """A role that runs until it is cancelled or fails."""

    async def run(self) -> None:
        """Do what it does."""
        ...


class Outside:
    """A rollout worker or a validator of a run, with all that it needs. ``run`` it once.

    Args:
        identity: The node.
        runfile: Its run file.
        genesis: The run.
        network: The node's network, admitted.
        folder: Its data directory.
        emit: The event log.
        say: Says a phase, a reason and a sentence.
    """

    def __init__(
        self,
        identity: Identity,
        runfile: RunFile,
        genesis: Genesis,
        network: Network,
        folder: Path,
        emit: Emit,
        say: Say,
    ) -> None:
        self._identity, self._runfile, self._genesis = identity, runfile, genesis
        self._network, self._folder, self._emit, self._say = network, folder, emit, say
        self._section = rl_of(genesis.sections)
        if not self._section.present:
            raise NodeError(
                Code.CFG_USAGE, "The run learns from text: it has no work for rollout workers and validators.",
                fix='Take part with roles = ["trainer"].',
            )  # fmt: skip
        self._renderer = Renderer(load_tokenizer(genesis.tokenizer, genesis.sections.model.vocab))
        keep = 2 * self._section.window + 4
        self.policies = PolicyFollower(
            network.endpoint, network.peers, folder / "policies", runfile.policy.sources, keep, emit
        )

    async def run(self) -> None:
        """Do the role's work until cancelled.

        Raises:
            NodeError: RL_ENVIRONMENT when the run's environment cannot be used here; what the role raises.
        """
        section = self._section
        async with AsyncExitStack() as stack:
            environment = await stack.enter_async_context(
                HostedEnvironment(section.environment, section.config, log=self._folder / "environment.log")
            )
            digest = Digest(blake3(self._genesis.tokenizer.encode()).digest())
            terms = terms_of(
                self._genesis.run_id, self._genesis.sections, self._renderer, environment.version, digest
            )
            following = asyncio.ensure_future(self.policies.run())
            stack.callback(following.cancel)
            make = self._rollout if "rollout" in self._runfile.node.roles else self._validator
            role = await make(terms, environment, stack)
            await role.run()

    async def _rollout(self, terms: Terms, environment: HostedEnvironment, stack: AsyncExitStack) -> Role:
        from node.roles.engines import engine_of
        from node.roles.rollout import RolloutWorker

        self._say("starting", "engine", "Starting the engine and waiting for the policy.")
        engine = await engine_of(self._genesis, self._runfile, self.policies, self._folder)
        stack.push_async_callback(engine.close)
        return RolloutWorker(
            self._identity, self._network.endpoint, self._network.peers, terms, self._renderer, environment,
            engine, engine.version, self.policies, self._folder / "rollouts", self._emit, self._say,
        )  # fmt: skip

    async def _validator(self, terms: Terms, environment: HostedEnvironment, stack: AsyncExitStack) -> Role:
        from node.roles.reading import PolicyReader
        from node.roles.validator import Validator
        from rl.validation.judging import Judge
        from rl.validation.tolerances import Tolerances

        reader = PolicyReader(self._genesis, self.policies)
        judge = Judge(
            self._identity.peer_id, terms, environment, self._renderer, reader.policy,
            Tolerances.of(kind_of(self._section)),
        )  # fmt: skip
        return Validator(
            self._identity.peer_id, self._network.endpoint, self._network.peers, judge, shares_of(self._section),
            self.policies, self._folder / "files", self._emit, self._say,
        )  # fmt: skip
