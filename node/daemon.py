"""The daemon: one node from its start to its end.

Starting goes down this file from top to bottom: network, run, admission, workers, member. Every step that may wait
says so in the event log and on the status socket.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diloco.creation import begin_state, empty_state, initial_parameters_of
from diloco.data.corpus import corpus_of
from diloco.genesis import Genesis
from diloco.golden import check_golden
from diloco.member.member import Member
from diloco.outer_state import OuterState
from diloco.rounds.events import TwinSeen
from diloco.rounds.routing import taking_part
from node import machine
from node.children import worker_threads
from node.delegating import DELEGATION_FILE, ROOT_FILE
from node.extensions import serve_extensions
from node.joining import GENESIS_FILE, find_admission
from node.life import Life, live
from node.network import Network
from node.renewal import Renewal
from node.roles.corpus import share_corpus
from node.roles.founding import make_run, write_start
from node.roles.outside import Outside
from node.roles.relay import ROLE as RELAY_ROLE
from node.roles.relay import start_relay
from node.roles.resetting import Resetting
from node.roles.workers import Workers
from node.runfile import RunFile
from protocol.errors import Code, NodeError
from rl.config import objective_of, rl_of

if TYPE_CHECKING:
    from node.coordinator.desk import DeskOptions
    from node.roles.learning import Learner

_SAMPLE_SECONDS = 0.5


def init_node(runfile: RunFile, path: Path, folder: Path, site: "DeskOptions | None" = None) -> int:
    """Make a run: genesis and operator key. Then start its first node.

    Args:
        runfile: What the run is.
        path: The run file, whose folder relative data paths begin at.
        folder: The node's data directory, held by this process.
        site: Where it serves the coordinator's dashboard; None for nowhere.

    Returns:
        Exit status.

    Raises:
        NodeError: ``CFG_RUN_EXISTS`` when the folder already has a run.
    """
    if (folder / GENESIS_FILE).exists():
        raise NodeError(
            Code.CFG_RUN_EXISTS,
            f"{folder} already holds a run.",
            fix=f"Go on with it: intellect-node run {path} --dir {folder}",
        )
    make_run(runfile, path, folder)
    return run_node(runfile, path, folder, (), site)


def run_node(
    runfile: RunFile,
    path: Path,
    folder: Path,
    join: tuple[str, ...],
    site: "DeskOptions | None" = None,
    invitation: str = "",
) -> int:
    """Run a node until it is stopped.

    Args:
        runfile: The run file; what it says of the run must agree with the genesis.
        path: The run file's path.
        folder: The node's data directory, held by this process.
        join: Multiaddresses to join by; may be empty for a node that has taken part before.
        site: Where it serves the coordinator's dashboard; None for nowhere.
        invitation: The token that lets it in, where the run's policy asks for one.

    Returns:
        Exit status: 0 after a drain.
    """
    return live(Daemon(runfile, path, folder, join, site, invitation))


def roles_in(runfile: RunFile, folder: Path) -> tuple[str, ...]:
    """What a node does, by its run file and the keys in its data directory."""
    roles: set[str] = set(runfile.node.roles)
    if any((folder / name).exists() for name in (ROOT_FILE, DELEGATION_FILE)):
        roles.add("coordinator")
    if runfile.shardcast.sources:
        roles.add(RELAY_ROLE)
    return tuple(sorted(roles))


class Daemon(Life):
    """A node with a role of the run."""

    def __init__(
        self,
        runfile: RunFile,
        path: Path,
        folder: Path,
        join: tuple[str, ...],
        site: "DeskOptions | None" = None,
        invitation: str = "",
    ) -> None:
        super().__init__(runfile, folder, join, roles_in(runfile, folder), site, runfile.node.name)
        self._path, self._invitation = path, invitation
        self._member: Member | None = None
        self._outside: Outside | None = None

    async def _live(self, network: Network) -> None:
        check_golden()
        relay = await start_relay(
            self._runfile.shardcast, self._folder / "shardcast", self._emit, network.endpoint
        )
        self._parts += [relay] if relay is not None else []
        await self._or_stopped(self._enter(network))
        if self._stopping.is_set():
            return
        if self._outside is not None:
            await self._or_stopped(self._outside.run())
            return
        assert self._member is not None
        await self._take_part(self._member, network)

    async def _enter(self, network: Network) -> None:
        """Network, run, admission, workers, member."""
        genesis = await self._come_in(network)
        mismatch = self._runfile.mismatch(genesis.mismatch(self._runfile.sections()))
        if mismatch is not None:
            raise mismatch
        if "trainer" not in network.roles:
            await self._enter_outside(network, genesis)
            return
        corpus = corpus_of(genesis, self._folder, self._path.parent)
        state = empty_state(genesis)
        if genesis.weights is None:  # a machine that draws other bits is told so before it asks for admission
            begin_state(state, initial_parameters_of(genesis))
        workers = self._make_workers(genesis, state)
        self._parts.append(workers)
        rules = self._rules(genesis)
        coordinator = self._coordinator = self._make_coordinator(
            genesis, rules, network, lambda: self._member.ledger if self._member is not None else None
        )
        admission = await find_admission(
            network, genesis, coordinator, self._folder, self._say, self._emit, self._invitation
        )
        setting = self._setting(genesis, rules, network, admission, corpus)
        learner = self._make_learner(genesis, network, state, workers)
        self._parts += [learner] if learner is not None else []
        member = self._member = self._shown.member = Member(setting, state, learner or workers)
        member.outgoing.wide = coordinator is not None
        if coordinator is not None:
            network.endpoint.handle(coordinator.on_ask_admission)
        await network.admitted(admission)
        renewal = Renewal(network, genesis, coordinator, self._folder, self._emit, member.take_admission)
        self._watch(network, renewal, admission)
        await share_corpus(genesis, corpus, self._folder, network, member.service.shelf, self._emit)
        if genesis.weights is not None:
            begin_state(state, initial_parameters_of(genesis, corpus))
        await self._open_desk(genesis, network, lambda: member.ledger)
        if learner is not None:
            await learner.start(member)
        workers.start()

    async def _enter_outside(self, network: Network, genesis: Genesis) -> None:
        """Admission, and the role of a node that does not train."""
        admission = await find_admission(
            network, genesis, None, self._folder, self._say, self._emit, self._invitation
        )
        await network.admitted(admission)
        renewal = Renewal(network, genesis, None, self._folder, self._emit, lambda raw: None)
        self._watch(network, renewal, admission)
        self._outside = Outside(
            network.identity, self._runfile, genesis, network, self._folder, self._emit, self._say
        )

    async def _take_part(self, member: Member, network: Network) -> None:
        """Be a member until this node is stopped, is told to go, or fails."""
        ends: list[Coroutine[Any, Any, Any]] = [
            member.run(), self._stopping.wait(), self._banned(member), self._superseded(member)
        ]  # fmt: skip
        if self._coordinator is not None:
            resetting = Resetting(
                self._coordinator, member, network, self._emit, network.now,
                automatic=self._runfile.node.auto_reset,
                lost_after=member.setting.genesis.sections.deadline.lost_after,
            )  # fmt: skip
            ends.append(self._kept("resets", resetting.run))
            ends.append(write_start(
                self._coordinator, self._folder, lambda: member.ledger.tip() is not None, member.found, self._emit
            ))  # fmt: skip
        tasks = [asyncio.ensure_future(end) for end in ends]
        try:
            while not tasks[0].done() and not self._stopping.is_set():
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                tasks = [task for task in tasks if task not in done or task is tasks[0]]
            if self._stopping.is_set():
                await member.drain()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _superseded(self, member: Member) -> None:
        await member.superseded.wait()
        raise NodeError(
            Code.ID_CLONED, f"A younger process has this node's key ({member.setting.me}); this one ends."
        )

    async def _banned(self, member: Member) -> None:
        await member.banned.wait()
        raise NodeError(Code.RND_BANNED, f"The run's operator banned this node ({member.setting.me}).")

    # ---- parts

    def _make_workers(self, genesis: Genesis, state: OuterState) -> Workers:
        section, rl = self._runfile.node, rl_of(genesis.sections)
        device = machine.measure(self._folder).device(section.device)
        objective = {}
        if rl.present:
            settings = objective_of(genesis.sections).model_dump_json()
            objective = {"program": "rl.training", "settings": settings}
        return Workers(
            genesis,
            self._folder / GENESIS_FILE,
            state,
            count=section.workers,
            device=device,
            threads=worker_threads(section.threads, section.workers),
            folder=self._folder,
            base=self._path.parent,
            emit=self._emit,
            **objective,
        )

    def _make_learner(
        self, genesis: Genesis, network: Network, state: OuterState, workers: Workers
    ) -> "Learner | None":
        """What trains on rollouts; None in a run that learns from text."""
        if not rl_of(genesis.sections).present:
            return None
        from node.roles.learning import Learner

        order = None if self._coordinator is None else self._ban_worker
        learner = Learner(
            network.identity,
            genesis,
            network,
            state,
            workers,
            self._runfile.policy,
            self._folder,
            self._emit,
            order,
        )
        self._log.add_sink(learner.take)
        return learner

    def _ban_worker(self, peer: str, reason: str) -> None:
        """Have the run ban a rollout worker: this node has the operator's key."""
        if self._coordinator is not None and self._member is not None:
            self._coordinator.order(self._member, "ban", reason[:400], peer=peer)

    # ---- loops

    def _watch(self, network: Network, renewal: Renewal, admission: bytes) -> None:
        """Begin what goes on beside the role until the node ends."""
        self._keep("network", network.watch)
        self._keep("admission", lambda: renewal.run(admission))
        self._keep("member", lambda: self._inform(network))
        self._keep("extensions", lambda: serve_extensions(network.endpoint, self._emit))

    async def _inform(self, network: Network) -> None:
        """Tell the network what the member knows, and the member what the network saw."""
        while True:
            self._sent = self._meter.sent()
            if self._member is not None and self._member.state is not None:
                network.round = self._member.state.round
                network.banned = frozenset(self._member.state.value.banned)
                network.taking_part = frozenset(taking_part(self._member.state.value))
                network.began(self._member.state.started)
            if self._member is not None and network.twin is not None:
                self._member.post(TwinSeen(*network.twin))
                network.twin = None
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _bytes_sent(self) -> tuple[int, int]:
        state = self._member.service.sent if self._member is not None else 0
        return max(0, self._meter.sent() - state), state

    def _voice(self) -> Member | None:
        return self._member
