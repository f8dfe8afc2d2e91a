"""A coordinator as a node of its own, which trains nothing: it admits, orders, follows the chain, serves the dashboard.

From top to bottom: identity, run (made here, or joined), network, admission, chain, dashboard. Killed at any time it
stops nothing but admissions; what it missed meanwhile it asks of members.
"""

import asyncio
import os
import random
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diloco.creation import create_genesis, grid_of
from diloco.genesis import Genesis
from diloco.member.admission import seats
from diloco.member.chain import Chain
from diloco.member.setting import Setting, anchor_of, codec_of, rules_of, timing_of
from diloco.rounds.certificate import Certified
from diloco.rounds.records import Order
from diloco.rounds.routing import taking_part
from diloco.store.ledger import Ledger, to_message
from node import machine
from node.coordinator.actions import Done, Wish
from node.coordinator.desk import Desk, DeskOptions
from node.daemon import FOUNDED_FILE, IDENTITY_FILE, INVITATIONS_FILE, genesis_parts
from node.delegating import ROOT_FILE, key_in
from node.eventlog import FILE, EventLog
from node.joining import GENESIS_FILE, come_in, find_admission, teller
from node.lifecycle import StopSignals
from node.messages import AskGenesis, GenesisPart
from node.network import Network
from node.renewal import Renewal
from node.reporting import Reporting
from node.roles.coordinator import Coordinator
from node.roles.wishes import carry_out
from node.runfile import RunFile
from node.showing import Showing
from node.status import StatusServer
from protocol.envelope import Sealed
from protocol.errors import Code, NodeError
from protocol.files import write_whole
from protocol.identity import Identity
from protocol.keeping import keep_running
from protocol.rpc import Context
from protocol.units import Address, PeerId

_FOLLOW = 0.5  # seconds between questions for what was decided
_SAMPLE = 0.5
_ROLES = ("coordinator",)


def run_coordinator(
    runfile: RunFile, path: Path, folder: Path, join: tuple[str, ...], site: DeskOptions
) -> int:
    """Run a coordinator until it is stopped.

    Args:
        runfile: What the run is, where it is made here.
        path: The run file's path.
        folder: The data directory, held by this process.
        join: Multiaddresses of a run to join; without any, and without a run in the folder, one is made.
        site: Where the dashboard is served.

    Returns:
        Exit status.
    """
    if not join and not (folder / GENESIS_FILE).exists():
        operator = Identity.load_or_create(folder / ROOT_FILE)
        genesis = create_genesis(runfile.sections(), operator.peer_id, path.parent)
        write_whole(folder / GENESIS_FILE, [genesis.to_bytes()])
    return asyncio.run(Alone(runfile, folder, join, site).run())


class Alone:
    """A coordinator without a member. ``run`` it once."""

    def __init__(self, runfile: RunFile, folder: Path, join: tuple[str, ...], site: DeskOptions) -> None:
        self._runfile, self._folder, self._join, self._site = runfile, folder, join, site
        self._shown = Showing(runfile.node.name, runfile.run.name, lambda: 0)
        self._reporting = Reporting(secrets.token_bytes(16))
        self._log = EventLog(folder / FILE, sinks=(self._shown.take, self._reporting.take))
        self._emit = self._log.emit
        self._say = teller(self._emit)
        self._stopping = asyncio.Event()
        self._network: Network | None = None
        self._genesis: Genesis | None = None
        self._coordinator: Coordinator | None = None
        self._chain: Chain | None = None
        self._desk: Desk | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run(self) -> int:
        """From start to end; returns the exit status."""
        status = 1
        with StopSignals(lambda reason: self._stopping.set(), asyncio.get_running_loop()) as signals:
            server = StatusServer(
                self._folder, self._shown.status, lambda now: signals.request("stop"), self._administer
            )
            try:
                identity = Identity.load_or_create(self._folder / IDENTITY_FILE)
                await server.start()
                await self._live(identity)
                status = 0
            except NodeError as error:
                self._emit("node.failed", code=str(error.code), reason=error.sentence, fix=error.fix)
                raise
            finally:
                await self._close(status)
                await server.stop()
                self._log.close()
        return status

    async def _live(self, identity: Identity) -> None:
        network = self._network = self._shown.network = self._make_network(identity)
        self._emit(
            "node.start", peer=identity.peer_id, version=machine.software_version(), pid=os.getpid(),
            boot=network.boot.hex(), roles=list(_ROLES), name=self._runfile.node.name or "coordinator",
        )  # fmt: skip
        entering = asyncio.ensure_future(self._enter(network))
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((entering, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not entering.done():
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)
            return
        entering.result()
        await stopping

    async def _enter(self, network: Network) -> None:
        """Network, run, admission, chain, dashboard."""
        network.endpoint.handle(self._on_ask_genesis)
        network.endpoint.handle(self._reporting.on_ask)
        genesis = await come_in(network, self._folder, self._join, self._say)
        self._genesis = self._shown.genesis = genesis
        rules = rules_of(genesis, seats(genesis.run_id, genesis.operator))
        ledger = Ledger(self._folder / "ledger.sqlite")
        key = key_in(self._folder, genesis)
        if key is not None:
            self._coordinator = Coordinator(
                key.identity, genesis, rules, network, lambda: ledger, self._emit, network.now,
                self._folder / INVITATIONS_FILE, key.delegation,
            )  # fmt: skip
        coordinator = self._coordinator
        admission = await find_admission(network, genesis, coordinator, self._folder, self._say, self._emit)
        setting = Setting(
            genesis=genesis, run=genesis.run_id, rules=rules, timing=timing_of(genesis), grid=grid_of(genesis),
            codec=codec_of(genesis), endpoint=network.endpoint, folder=self._folder, peers=network.peers,
            admission=admission, emit=self._emit, anchor=anchor_of(admission, genesis, network.me), wall=network.now,
        )  # fmt: skip
        chain = self._chain = Chain(setting, ledger)
        network.endpoint.handle(chain.on_ask_ledger)
        if coordinator is not None:
            network.endpoint.handle(coordinator.on_ask_admission)
        await network.admitted(admission)
        self._desk = Desk(self._site, self._folder, self._emit, self._wished if coordinator else None)
        print(f"Dashboard: {await self._desk.open()}", file=sys.stderr, flush=True)
        self._desk.collect(genesis, network, lambda: ledger, self._reporting)
        renewal = Renewal(network, genesis, coordinator, self._folder, self._emit, chain.readmitted)
        self._keep("network", network.watch)
        self._keep("admission", lambda: renewal.run(admission))
        self._keep("chain", lambda: self._follow(chain, network))
        if coordinator is not None and coordinator.has_root_key and ledger.tip() is None:
            self._keep("start", lambda: self._found(coordinator, chain, network))
        self._say("coordinating", "following", "Following the run; this node trains nothing.")

    def _keep(self, name: str, loop: Any) -> None:
        def failed(error: BaseException) -> None:
            self._emit("task.failed", task=name, reason=f"{type(error).__name__}: {error}")

        self._tasks.add(asyncio.ensure_future(keep_running(loop, failed)))

    async def _found(self, coordinator: Coordinator, chain: Chain, network: Network) -> None:
        """Write the start record once enough trainers are here, and show it to everybody; then rest."""
        if chain.tip is None and not (self._folder / FOUNDED_FILE).exists():
            start = await coordinator.begin()
            if chain.tip is None:
                chain.ledger.append(start)
                write_whole(self._folder / FOUNDED_FILE, [b""])
                await self._show(start, network)
        await asyncio.Event().wait()

    async def _show(self, start: Certified, network: Network) -> None:
        async def show(peer: PeerId) -> None:
            with suppress(NodeError):  # who does not hear it asks for it
                await network.endpoint.send(peer, to_message(start))

        await asyncio.gather(*(show(peer) for peer in network.peers()))

    async def _follow(self, chain: Chain, network: Network) -> None:
        """Ask one member after another for what was decided since."""
        while True:
            peers = network.peers()
            if peers:
                await chain.extend([random.choice(peers)])
            tip = chain.tip
            if tip is not None:
                network.round = tip.value.round
                network.banned = frozenset(tip.value.banned)
                network.taking_part = frozenset(taking_part(tip.value))
            await asyncio.sleep(_FOLLOW)

    def _make_network(self, identity: Identity) -> Network:
        section = self._runfile.network
        return Network(
            identity, self._folder, listen=Address(section.host, section.port), directory_port=section.directory_port,
            gossip_port=None, announce=section.announce, upload=self._runfile.limits.upload,
            download=self._runfile.limits.download, roles=_ROLES, emit=self._emit, reach=section.reach,
        )  # fmt: skip

    async def _close(self, status: int) -> None:
        if self._desk is not None:
            await self._desk.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._network is not None:
            await self._network.stop()
        if self._chain is not None:
            self._chain.ledger.close()
        self._emit("node.exit", status=status)

    # ---- what others ask

    async def _on_ask_genesis(self, message: AskGenesis, context: Context) -> AsyncIterator[GenesisPart]:
        """Give the genesis to whoever asks."""
        for part in genesis_parts(self._genesis, message.run):
            yield part

    # ---- what the operator orders

    @property
    def order_number(self) -> int:
        """The highest order that a value has taken up."""
        tip = self._chain.tip if self._chain is not None else None
        return tip.value.order_number if tip is not None else 0

    def give_order(self, sealed: Sealed[Order]) -> None:
        """Give an order to the voters, who pass it on."""
        network, tip = self._network, self._chain.tip if self._chain is not None else None
        assert network is not None
        voters = [PeerId(elector.peer) for elector in tip.value.electorate] if tip is not None else []

        async def give(peer: PeerId) -> None:
            while self.order_number < sealed.message.number:  # until a value has taken it up
                with suppress(NodeError):
                    await network.endpoint.post(peer, sealed)
                await asyncio.sleep(2.0)

        for peer in voters:
            task = asyncio.ensure_future(give(peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _wished(self, wish: Wish) -> Done:
        return Done(*self._carry_out(asdict(wish)))

    def _carry_out(self, question: dict[str, Any]) -> tuple[str, int]:
        if self._coordinator is None:
            raise NodeError(
                Code.CFG_USAGE, f"The node in {self._folder} does not hold the operator's key, or is still starting.",
                fix="Name the --dir of the node that made the run.",
            )  # fmt: skip
        return carry_out(self._coordinator, self, question)

    def _administer(self, question: dict[str, Any]) -> str:
        if self._desk is not None and self._desk.actions is not None:
            return self._desk.actions.note("command line", question, lambda: self._carry_out(question))
        return self._carry_out(question)[0]
