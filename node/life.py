"""What every node has from its start to its end: log, status socket, stop signals, network, dashboard, orders.

What it does in between is a subclass's: a member or another role of the run (`node.daemon`), a coordinator that
trains nothing (`node.coordinator.alone`).
"""

import asyncio
import os
import secrets
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from diloco.creation import grid_of
from diloco.data.corpus import Corpus
from diloco.genesis import Genesis
from diloco.member.admission import seats
from diloco.member.member import Member
from diloco.member.setting import Setting, anchor_of, codec_of, rules_of, timing_of
from diloco.rounds.rules import Rules
from diloco.store.ledger import Ledger
from node import machine
from node.children import end_descendants
from node.delegating import key_in
from node.eventlog import FILE, EventLog
from node.joining import check_way_in, come_in, genesis_parts, teller
from node.latency import Latency
from node.lifecycle import StopSignals, stop_now
from node.messages import AskGenesis, GenesisPart
from node.network import Network
from node.reporting import Reporting
from node.roles.coordinator import Coordinator, Voice
from node.roles.wish import Done, Wish, wish_of
from node.roles.wishes import LISTS, carry_out, lines, listed
from node.runfile import RunFile
from node.showing import Showing
from node.status import StatusServer
from protocol.directory import RelayService
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.keeping import keep_running
from protocol.rpc import Context, SocketMeter
from protocol.units import Address

if TYPE_CHECKING:
    from node.coordinator.desk import Desk, DeskOptions

IDENTITY_FILE = "identity.key"
INVITATIONS_FILE = "invited.json"

_PLAN = 0.5  # seconds between looks at orders that wait


def live(life: "Life") -> int:
    """Live a node's life until it is stopped; the exit status. No process of the node's is left."""
    try:
        return asyncio.run(life.run())
    finally:
        end_descendants()


class Part(Protocol):
    """Something of a node that is stopped before its network is."""

    async def stop(self) -> None:
        """Stop it."""
        ...


class Life(ABC):
    """One node. ``run`` it once.

    Args:
        runfile: The run file.
        folder: The node's data directory, held by this process.
        join: Multiaddresses to join by.
        roles: What the node does, for its record.
        site: Where it serves the coordinator's dashboard; None for nowhere.
        name: What it is called by people.

    Attributes:
        PASSES_ON: Whether such a node passes on what others say: gossip, and connections where the run file says so.
    """

    PASSES_ON: ClassVar[bool] = True

    def __init__(
        self,
        runfile: RunFile,
        folder: Path,
        join: tuple[str, ...],
        roles: tuple[str, ...],
        site: "DeskOptions | None",
        name: str,
    ) -> None:
        self._runfile, self._folder, self._join, self._site = runfile, folder, join, site
        self._roles, self._name = roles, name
        self._meter = SocketMeter()
        self._sent = 0
        self._shown = Showing(name, runfile.run.name, lambda: self._sent)
        self._reporting = Reporting(secrets.token_bytes(16))
        self._log = EventLog(folder / FILE, sinks=(self._shown.take, self._reporting.take))
        self._emit = self._log.emit
        self._say = teller(self._emit)
        self._stopping = asyncio.Event()
        self._loops: set[asyncio.Future[Any]] = set()
        self._parts: list[Part] = []
        self._genesis: Genesis | None = None
        self._network: Network | None = None
        self._coordinator: Coordinator | None = None
        self._desk: Desk | None = None

    # ---- from start to end

    async def run(self) -> int:
        """From start to end; returns the exit status."""
        status = 1
        with StopSignals(self._on_stop, asyncio.get_running_loop()) as signals:

            def stop(now: bool) -> None:
                if now:
                    stop_now(signal.SIGTERM)
                signals.request("stop")

            server = StatusServer(self._folder, self._shown.status, stop, self._administer)
            try:
                identity = Identity.load_or_create(self._folder / IDENTITY_FILE)
                self._say("starting", "identity", f"Node {identity.peer_id} starts.")
                await server.start()
                check_way_in(self._folder, self._join)
                network = self._network = self._shown.network = self._make_network(identity)
                self._emit(
                    "node.start", peer=identity.peer_id, version=machine.software_version(), pid=os.getpid(),
                    boot=network.boot.hex(), roles=list(self._roles), name=self._name,
                )  # fmt: skip
                await self._live(network)
                status = 0
            except NodeError as error:
                self._emit("node.failed", code=str(error.code), reason=error.sentence, fix=error.fix)
                raise
            except Exception as error:  # a mistake in this software: its stack of calls is printed
                reason = f"{type(error).__name__}: {error}"
                self._emit("node.failed", code="", reason=reason, fix="Report it.")
                raise
            finally:
                await self._close()
                self._emit("node.exit", status=status)
                await server.stop()
                self._log.close()
        return status

    @abstractmethod
    async def _live(self, network: Network) -> None:
        """What the node does, until it is stopped or has failed."""

    async def _close(self) -> None:
        if self._desk is not None:
            await self._desk.close()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        for part in reversed(self._parts):
            await part.stop()
        if self._network is not None:
            await self._network.stop()

    def _on_stop(self, reason: str) -> None:
        self._say(
            "draining", "stop", f"Leaving the run in good order ({reason}); a second signal stops at once."
        )
        self._stopping.set()

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

    def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a loop until the node ends; it is begun again when it fails."""
        self._loops.add(asyncio.ensure_future(self._kept(name, work)))

    async def _kept(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        def failed(error: BaseException) -> None:
            self._emit("task.failed", task=name, reason=f"{type(error).__name__}: {error}")

        await keep_running(work, failed)

    # ---- network and run

    def _make_network(self, identity: Identity) -> Network:
        section, limits = self._runfile.network, self._runfile.limits
        relay = RelayService(section.relay_connections, section.relay_peers, section.relay_bytes)
        return Network(
            identity,
            self._folder,
            listen=Address(section.host, section.port),
            directory_port=section.directory_port,
            gossip_port=section.gossip_port if section.gossip and self.PASSES_ON else None,
            announce=section.announce,
            upload=limits.upload,
            download=limits.download,
            roles=self._roles,
            emit=self._emit,
            reach=section.reach,
            relay=relay if section.relay and self.PASSES_ON else None,
        )

    async def _come_in(self, network: Network) -> Genesis:
        """Start the network and find the run."""
        network.endpoint.handle(self._on_ask_genesis)
        network.endpoint.handle(self._reporting.on_ask)
        latency = Latency(network.endpoint, network.reached, self._emit)
        network.endpoint.handle(latency.on_ask)
        self._keep("latency", latency.run)
        genesis = await come_in(network, self._folder, self._join, self._say)
        self._genesis = self._shown.genesis = genesis
        return genesis

    async def _on_ask_genesis(self, message: AskGenesis, context: Context) -> AsyncIterator[GenesisPart]:
        """Give the genesis to whoever asks: it is public, and believed for its hash only."""
        for part in genesis_parts(self._genesis, message.run):
            yield part

    def _rules(self, genesis: Genesis) -> Rules:
        return rules_of(genesis, seats(genesis.run_id, genesis.operator))

    def _setting(
        self, genesis: Genesis, rules: Rules, network: Network, admission: bytes, corpus: Corpus | None = None
    ) -> Setting:
        """What a member, or who follows the chain, is made with."""
        return Setting(
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

    def _bytes_sent(self) -> tuple[int, int]:
        """Bytes sent for rounds and for state transfer."""
        return self._meter.sent(), 0

    # ---- the operator

    def _make_coordinator(
        self, genesis: Genesis, rules: Rules, network: Network, ledger: Callable[[], Ledger | None]
    ) -> Coordinator | None:
        """The coordinator's work on this node, where the operator's key lies beside it."""
        key = key_in(self._folder, genesis)
        if key is None:
            return None
        coordinator = Coordinator(
            key.identity, genesis, rules, network, ledger, self._emit, network.now,
            self._folder / INVITATIONS_FILE, key.delegation,
        )  # fmt: skip
        self._keep("plan", lambda: self._keep_plan(coordinator))
        return coordinator

    async def _keep_plan(self, coordinator: Coordinator) -> None:
        """Give orders that waited for their round or their time."""
        while True:
            voice = self._voice()
            if voice is not None and coordinator.planned.all():
                with suppress(NodeError):  # such as an audit log that cannot be written: it is tried again
                    coordinator.planned.give(
                        coordinator.now(), coordinator.decided(), voice.order_number,
                        lambda wish: self._act("plan", wish).order,
                    )  # fmt: skip
            await asyncio.sleep(_PLAN)

    async def _open_desk(self, genesis: Genesis, network: Network, ledger: Callable[[], Ledger]) -> None:
        """Serve the dashboard, where that is wanted."""
        if self._site is None:
            return
        from node.coordinator.desk import Desk

        coordinator = self._coordinator
        self._desk = Desk(
            self._site, self._folder, self._emit, self._carry_out if coordinator else None,
            lambda what: listed(coordinator, what) if coordinator else [],
        )  # fmt: skip
        print(f"Dashboard: {await self._desk.open()}", file=sys.stderr, flush=True)
        self._desk.collect(genesis, network, ledger, self._reporting)

    @abstractmethod
    def _voice(self) -> Member | Voice | None:
        """Who gives the operator's orders to the voters; None while nobody can."""

    def _administer(self, question: dict[str, Any]) -> str:
        """Carry out what the operator's command line asks of the node that holds the operator's key."""
        if question.get("do") in LISTS and self._coordinator is not None:
            return lines(self._coordinator, str(question["do"]))
        done = self._act("command line", wish_of(question))
        return f"{done.sentence} Its token is shown only now: {done.secret}" if done.secret else done.sentence

    def _act(self, actor: str, wish: Wish) -> Done:
        """Carry out a wish, and write it to the audit log where there is one."""
        if self._desk is not None and self._desk.actions is not None:
            return self._desk.actions.note(actor, wish, self._carry_out)
        return self._carry_out(wish)

    def _carry_out(self, wish: Wish) -> Done:
        voice = self._voice()
        if self._coordinator is None or voice is None:
            raise NodeError(
                Code.CFG_USAGE, f"The node in {self._folder} does not hold the operator's key, or is still starting.",
                fix="Name the --dir of the node that made the run.",
            )  # fmt: skip
        return carry_out(self._coordinator, voice, wish)
