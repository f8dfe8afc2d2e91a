"""A coordinator as a node of its own, which trains nothing: it admits, orders, follows the chain, serves the dashboard.

Killed at any time it stops nothing but admissions; what it missed meanwhile it asks of members.
"""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

from diloco.member.chain import Chain
from diloco.rounds.certificate import Certified
from diloco.rounds.records import Order
from diloco.rounds.routing import taking_part
from diloco.store.ledger import Ledger, to_message
from node.coordinator.desk import DeskOptions
from node.joining import GENESIS_FILE, find_admission
from node.life import Life, live
from node.network import Network
from node.renewal import Renewal
from node.roles.coordinator import Coordinator
from node.roles.founding import make_run, write_start
from node.runfile import RunFile
from protocol.envelope import Sealed
from protocol.errors import NodeError
from protocol.units import PeerId

_FOLLOW = 0.5  # seconds between questions for what was decided
_ORDER_AGAIN = 2.0


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
        make_run(runfile, path, folder)
    return live(Alone(runfile, folder, join, site))


class Alone(Life):
    """A coordinator without a member."""

    PASSES_ON = False

    def __init__(self, runfile: RunFile, folder: Path, join: tuple[str, ...], site: DeskOptions) -> None:
        super().__init__(runfile, folder, join, ("coordinator",), site, runfile.node.name or "coordinator")
        self._chain: Chain | None = None

    async def _live(self, network: Network) -> None:
        await self._or_stopped(self._enter(network))
        await self._stopping.wait()

    async def _enter(self, network: Network) -> None:
        """Network, run, admission, chain, dashboard."""
        genesis = await self._come_in(network)
        rules = self._rules(genesis)
        ledger = Ledger(self._folder / "ledger.sqlite")
        coordinator = self._coordinator = self._make_coordinator(genesis, rules, network, lambda: ledger)
        admission = await find_admission(network, genesis, coordinator, self._folder, self._say, self._emit)
        chain = self._chain = Chain(self._setting(genesis, rules, network, admission), ledger)
        network.endpoint.handle(chain.on_ask_ledger)
        if coordinator is not None:
            network.endpoint.handle(coordinator.on_ask_admission)
        await network.admitted(admission)
        await self._open_desk(genesis, network, lambda: ledger)
        renewal = Renewal(network, genesis, coordinator, self._folder, self._emit, chain.readmitted)
        self._keep("network", network.watch)
        self._keep("admission", lambda: renewal.run(admission))
        self._keep("chain", lambda: self._follow(chain, network))
        if coordinator is not None:
            self._keep("start", lambda: self._found(coordinator, chain, network))
        self._say("coordinating", "following", "Following the run; this node trains nothing.")

    async def _found(self, coordinator: Coordinator, chain: Chain, network: Network) -> None:
        """Write the start record once enough trainers are here, and show it to everybody."""
        start = await write_start(
            coordinator, self._folder, lambda: chain.tip is not None, chain.ledger.append, self._emit
        )
        if start is not None:
            await asyncio.gather(*(self._show(start, peer, network) for peer in network.peers()))

    async def _show(self, start: Certified, peer: PeerId, network: Network) -> None:
        with suppress(NodeError):  # who does not hear it asks for it
            await network.endpoint.send(peer, to_message(start))

    async def _follow(self, chain: Chain, network: Network) -> None:
        """Ask one member after another for what was decided since."""
        while True:
            self._sent = self._meter.sent()
            peers = network.peers()
            if peers:
                await chain.extend([random.choice(peers)])
            tip = chain.tip
            if tip is not None:
                network.round = tip.value.round
                network.banned = frozenset(tip.value.banned)
                network.taking_part = frozenset(taking_part(tip.value))
            await asyncio.sleep(_FOLLOW)

    async def _close(self) -> None:
        await super()._close()
        if self._chain is not None:
            self._chain.ledger.close()

    # ---- orders

    def _voice(self) -> "Alone":
        return self

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
                await asyncio.sleep(_ORDER_AGAIN)

        for peer in voters:
            task = asyncio.ensure_future(give(peer))
            self._loops.add(task)
            task.add_done_callback(self._loops.discard)
