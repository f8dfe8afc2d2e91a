"""The daemon: one node from its start to its end.

Starting goes down this file from top to bottom: identity, network, run, admission, workers, member. Every step that
may wait says so in the event log and on the status socket.
"""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diloco.creation import begin_state, create_genesis, empty_state, grid_of, initial_parameters_of
from diloco.data.corpus import corpus_of
from diloco.genesis import Genesis
from diloco.golden import check_golden
from diloco.member.admission import seats
from diloco.member.member import Member
from diloco.member.setting import Setting, anchor_of, codec_of, rules_of, timing_of
from diloco.outer_state import OuterState
from diloco.rounds.events import TwinSeen
from diloco.rounds.routing import taking_part
from diloco.rounds.rules import Rules
from diloco.store.ledger import Ledger
from node import machine
from node.children import end_descendants, worker_threads
from node.delegating import DELEGATION_FILE, ROOT_FILE, key_in
from node.eventlog import FILE, EventLog
from node.extensions import serve_extensions
from node.joining import GENESIS_FILE, check_way_in, come_in, find_admission, teller
from node.lifecycle import StopSignals, stop_now
from node.messages import AskGenesis, GenesisPart
from node.network import Network
from node.renewal import Renewal
from node.reporting import Reporting
from node.roles.coordinator import Coordinator
from node.roles.corpus import share_corpus
from node.roles.outside import Outside
from node.roles.relay import ROLE as RELAY_ROLE
from node.roles.relay import RelayRole, start_relay
from node.roles.resetting import Resetting
from node.roles.wishes import carry_out
from node.roles.workers import Workers
from node.runfile import RunFile
from node.showing import Showing
from node.status import StatusServer
from protocol.directory import RelayService
from protocol.errors import Code, NodeError
from protocol.files import write_whole
from protocol.identity import Identity
from protocol.keeping import keep_running
from protocol.rpc import Context, SocketMeter
from protocol.units import Address
from rl.config import objective_of, rl_of

if TYPE_CHECKING:
    from node.coordinator.desk import Desk, DeskOptions
    from node.roles.learning import Learner

IDENTITY_FILE = "identity.key"
INVITATIONS_FILE = "invited.json"
FOUNDED_FILE = "founded"

INVITATION = "INTELLECT_INVITATION"
"""Environment variable with the token of an invitation: an argument could be read by every user of the machine."""

_PART = 1 << 20  # bytes of a genesis in one message
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
    operator = Identity.load_or_create(folder / ROOT_FILE)
    genesis = create_genesis(runfile.sections(), operator.peer_id, path.parent)
    write_whole(folder / GENESIS_FILE, [genesis.to_bytes()])
    return run_node(runfile, path, folder, (), site)


def run_node(
    runfile: RunFile, path: Path, folder: Path, join: tuple[str, ...], site: "DeskOptions | None" = None
) -> int:
    """Run a node until it is stopped.

    Args:
        runfile: The run file; what it says of the run must agree with the genesis.
        path: The run file's path.
        folder: The node's data directory, held by this process.
        join: Multiaddresses to join by; may be empty for a node that has taken part before.
        site: Where it serves the coordinator's dashboard; None for nowhere.

    Returns:
        Exit status: 0 after a drain.
    """
    daemon = Daemon(runfile, path, folder, join, site)
    try:
        return asyncio.run(daemon.run())
    finally:
        end_descendants()


class Daemon:
    """One node. ``run`` it once."""

    def __init__(
        self,
        runfile: RunFile,
        path: Path,
        folder: Path,
        join: tuple[str, ...],
        site: "DeskOptions | None" = None,
    ) -> None:
        self._runfile, self._path, self._folder, self._join = runfile, path, folder, join
        self._meter = SocketMeter()
        self._sent = 0
        self._shown = Showing(runfile.node.name, runfile.run.name, lambda: self._sent)
        self._reporting = Reporting(secrets.token_bytes(16))
        self._log = EventLog(folder / FILE, sinks=(self._shown.take, self._reporting.take))
        self._emit = self._log.emit
        self._say = teller(self._emit)
        self._genesis: Genesis | None = None
        self._network: Network | None = None
        self._member: Member | None = None
        self._workers: Workers | None = None
        self._coordinator: Coordinator | None = None
        self._relay: RelayRole | None = None
        self._learner: Learner | None = None
        self._outside: Outside | None = None
        self._watch: asyncio.Future[None] | None = None
        self._stopping = asyncio.Event()
        self._site = site
        self._desk: Desk | None = None

    # ---- life

    async def run(self) -> int:
        """From start to end; returns the exit status."""
        loop = asyncio.get_running_loop()
        status = 1
        with StopSignals(self._on_drain, loop) as signals:

            def stop(now: bool) -> None:
                if now:
                    stop_now(signal.SIGTERM)
                signals.request("stop")

            server = StatusServer(self._folder, self._shown.status, stop, self._administer)
            try:
                identity = Identity.load_or_create(self._folder / IDENTITY_FILE)
                self._say("starting", "identity", f"Node {identity.peer_id} starts.")
                await server.start()
                await self._live(identity)
                status = 0
            except NodeError as error:
                self._emit("node.failed", code=str(error.code), reason=error.sentence, fix=error.fix)
                raise
            except Exception as error:  # a mistake in this software: its stack of calls is printed
                self._emit(
                    "node.failed", code="", reason=f"{type(error).__name__}: {error}", fix="Report it."
                )
                raise
            finally:
                await self._close(status)
                await server.stop()
                self._log.close()
        return status

    async def _live(self, identity: Identity) -> None:
        check_way_in(self._folder, self._join)
        check_golden()
        roles = self._roles()
        network = self._network = self._shown.network = self._make_network(identity, roles)
        self._emit(
            "node.start", peer=identity.peer_id, version=machine.software_version(), pid=os.getpid(),
            boot=network.boot.hex(), roles=list(roles), name=self._runfile.node.name,
        )  # fmt: skip
        self._relay = await start_relay(
            self._runfile.shardcast, self._folder / "shardcast", self._emit, network.endpoint
        )
        await self._or_stopped(self._enter(network))
        if self._stopping.is_set():
            return
        if self._outside is not None:
            await self._or_stopped(self._outside.run())
            return
        assert self._member is not None
        member = self._member
        ends = (member.run(), self._stopping.wait(), self._banned(member), self._superseded(member))
        tasks = [asyncio.ensure_future(end) for end in ends]
        if self._coordinator is not None:
            tasks.append(asyncio.ensure_future(self._write_start()))
            tasks.append(asyncio.ensure_future(self._see_to_resets(self._coordinator, member, network)))
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

    async def _see_to_resets(self, coordinator: Coordinator, member: Member, network: Network) -> None:
        resetting = Resetting(
            coordinator, member, network, self._emit, network.now,
            automatic=self._runfile.node.auto_reset,
            lost_after=member.setting.genesis.sections.deadline.lost_after,
        )  # fmt: skip
        await keep_running(resetting.run, lambda error: self._failed("resets", error))

    async def _superseded(self, member: Member) -> None:
        await member.superseded.wait()
        raise NodeError(
            Code.ID_CLONED, f"A younger process has this node's key ({member.setting.me}); this one ends."
        )

    async def _banned(self, member: Member) -> None:
        await member.banned.wait()
        raise NodeError(Code.RND_BANNED, f"The run's operator banned this node ({member.setting.me}).")

    def _roles(self) -> tuple[str, ...]:
        roles: set[str] = set(self._runfile.node.roles)
        if any((self._folder / name).exists() for name in (ROOT_FILE, DELEGATION_FILE)):
            roles.add("coordinator")
        if self._runfile.shardcast.sources:
            roles.add(RELAY_ROLE)
        return tuple(sorted(roles))

    def _make_network(self, identity: Identity, roles: tuple[str, ...]) -> Network:
        section = self._runfile.network
        return Network(
            identity,
            self._folder,
            listen=Address(section.host, section.port),
            directory_port=section.directory_port,
            gossip_port=section.gossip_port if section.gossip else None,
            announce=section.announce,
            upload=self._runfile.limits.upload,
            download=self._runfile.limits.download,
            roles=roles,
            emit=self._emit,
            reach=section.reach,
            relay=RelayService(section.relay_connections, section.relay_peers, section.relay_bytes)
            if section.relay
            else None,
        )

    async def _enter(self, network: Network) -> None:
        """Network, run, admission, workers, member."""
        network.endpoint.handle(self._on_ask_genesis)
        network.endpoint.handle(self._reporting.on_ask)
        genesis = await come_in(network, self._folder, self._join, self._say)
        self._genesis = self._shown.genesis = genesis
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
        workers = self._workers = self._make_workers(genesis, state)
        rules = rules_of(genesis, seats(genesis.run_id, genesis.operator))
        coordinator = self._coordinator = self._make_coordinator(genesis, rules, network)
        admission = await find_admission(
            network, genesis, coordinator, self._folder, self._say, self._emit, os.environ.pop(INVITATION, "")
        )
        setting = Setting(
            genesis=genesis,
            run=genesis.run_id,
            rules=rules,
            timing=timing_of(genesis),
            grid=grid_of(genesis),
            codec=codec_of(genesis),
            endpoint=network.endpoint,
            folder=self._folder,
            peers=network.peers,
            admission=admission,
            emit=self._emit,
            anchor=anchor_of(admission, genesis, network.me),
            corpus=corpus,
            bytes_sent=self._bytes_sent,
            wall=network.now,
        )
        learner = self._learner = self._make_learner(genesis, network, state, workers)
        member = self._member = self._shown.member = Member(setting, state, learner or workers)
        member.outgoing.wide = self._coordinator is not None
        if coordinator is not None:
            network.endpoint.handle(coordinator.on_ask_admission)
        await network.admitted(admission)
        renewal = Renewal(network, genesis, coordinator, self._folder, self._emit, member.take_admission)
        self._watch = asyncio.ensure_future(self._watch_network(network, renewal, admission))
        self._watch.add_done_callback(self._watch_ended)
        await share_corpus(genesis, corpus, self._folder, network, member.service.shelf, self._emit)
        if genesis.weights is not None:
            begin_state(state, initial_parameters_of(genesis, corpus))
        await self._open_desk(genesis, network, member)
        if learner is not None:
            await learner.start(member)
        workers.start()

    async def _open_desk(self, genesis: Genesis, network: Network, member: Member) -> None:
        """Serve the dashboard, where that is wanted."""
        if self._site is None:
            return
        from node.coordinator.actions import Done, Wish
        from node.coordinator.desk import Desk

        def wished(wish: Wish) -> Done:
            return Done(*self._carry_out(asdict(wish)))

        has_key = self._coordinator is not None
        self._desk = Desk(self._site, self._folder, self._emit, wished if has_key else None)
        print(f"Dashboard: {await self._desk.open()}", file=sys.stderr, flush=True)
        self._desk.collect(genesis, network, lambda: member.ledger, self._reporting)

    async def _enter_outside(self, network: Network, genesis: Genesis) -> None:
        """Admission, and the role of a node that does not train."""
        admission = await find_admission(network, genesis, None, self._folder, self._say, self._emit)
        await network.admitted(admission)
        renewal = Renewal(network, genesis, None, self._folder, self._emit, lambda raw: None)
        self._watch = asyncio.ensure_future(self._watch_network(network, renewal, admission))
        self._watch.add_done_callback(self._watch_ended)
        self._outside = Outside(
            network.identity, self._runfile, genesis, network, self._folder, self._emit, self._say
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

    def _watch_ended(self, watch: "asyncio.Future[None]") -> None:
        if not watch.cancelled() and (error := watch.exception()) is not None:
            self._failed("network", error)

    async def _or_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it ends or this node is told to stop."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return
        task.result()

    async def _close(self, status: int) -> None:
        if self._desk is not None:
            await self._desk.close()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._relay is not None:
            await self._relay.stop()
        if self._learner is not None:
            await self._learner.stop()
        if self._workers is not None:
            await self._workers.stop()
        if self._network is not None:
            await self._network.stop()
        self._emit("node.exit", status=status)

    def _on_drain(self, reason: str) -> None:
        self._say(
            "draining", "stop", f"Leaving the run in good order ({reason}); a second signal stops at once."
        )
        self._stopping.set()

    # ---- the run

    async def _on_ask_genesis(self, message: AskGenesis, context: Context) -> AsyncIterator[GenesisPart]:
        """Give the genesis to whoever asks: it is public, and believed for its hash only."""
        for part in genesis_parts(self._genesis, message.run):
            yield part

    def _make_coordinator(self, genesis: Genesis, rules: Rules, network: Network) -> Coordinator | None:
        key = key_in(self._folder, genesis)
        if key is None:
            return None

        def ledger() -> Ledger | None:
            return None if self._member is None else self._member.ledger

        return Coordinator(
            key.identity, genesis, rules, network, ledger, self._emit, network.now,
            self._folder / INVITATIONS_FILE, key.delegation,
        )  # fmt: skip

    async def _write_start(self) -> None:
        """Found the run, once: a second start record would be another chain, which no member follows."""
        assert self._member is not None and self._coordinator is not None
        ledger, mark = self._member.ledger, self._folder / FOUNDED_FILE
        if ledger.tip() is None and mark.exists():
            reason = "This node's ledger is gone; it waits for a member that has the run's chain."
            self._emit("ledger.lost", code=str(Code.STO_CORRUPT), reason=reason)
            return
        if ledger.tip() is None and self._coordinator.has_root_key:
            start = await self._coordinator.begin()
            if ledger.tip() is None:  # else others had the chain: the mark was lost as well
                self._member.found(start)
        write_whole(mark, [b""])

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

    async def _watch_network(self, network: Network, renewal: Renewal, admission: bytes) -> None:
        async def sample() -> None:
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

        watching = keep_running(network.watch, lambda error: self._failed("network", error))
        renewing = keep_running(
            lambda: renewal.run(admission), lambda error: self._failed("admission", error)
        )
        await asyncio.gather(watching, renewing, sample(), serve_extensions(network.endpoint, self._emit))

    def _failed(self, task: str, error: BaseException) -> None:
        self._emit("task.failed", task=task, reason=f"{type(error).__name__}: {error}")

    def _bytes_sent(self) -> tuple[int, int]:
        state = self._member.service.sent if self._member is not None else 0
        return max(0, self._meter.sent() - state), state

    # ---- what the operator asks

    def _administer(self, question: dict[str, Any]) -> str:
        """Carry out what the operator's command line asks of the node that holds the operator's key."""
        if self._desk is not None and self._desk.actions is not None:
            return self._desk.actions.note("command line", question, lambda: self._carry_out(question))
        return self._carry_out(question)[0]

    def _carry_out(self, question: Mapping[str, Any]) -> tuple[str, int]:
        member, coordinator = self._member, self._coordinator
        if coordinator is None or member is None:
            raise NodeError(
                Code.CFG_USAGE, f"The node in {self._folder} does not hold the operator's key, or is still starting.",
                fix="Name the --dir of the node that made the run.",
            )  # fmt: skip
        return carry_out(coordinator, member, question)


def genesis_parts(genesis: Genesis | None, run: str) -> Iterator[GenesisPart]:
    """The genesis of a run in pieces.

    Raises:
        NodeError: ``NET_UNTRUSTED``: it is another run's.
    """
    if genesis is None or run != genesis.run_id:
        raise NodeError(Code.NET_UNTRUSTED, "This node does not take part in that run, or not yet.")
    data = genesis.to_bytes()
    for start in range(0, len(data), _PART):
        yield GenesisPart(data=data[start : start + _PART])
