"""A node's place in the network: its helper, how others reach it, and what goes through the helper."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from protocol.directory.addresses import is_loopback, peer_in
from protocol.directory.control import Control
from protocol.directory.limits import MAX_RELAYS, RELAY_TRIES
from protocol.directory.p2pd import Helper, HelperStanding
from protocol.directory.relaying import offered
from protocol.directory.ways import Ways
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.paths.choice import Seen
from protocol.paths.multiaddr import is_circuit
from protocol.units import PeerId


class Footing:
    """The helper of a node, started as it is needed: for a node that others reach, a relay, or a node behind a router.

    Args:
        config: The directory process's configuration.
        identity: The node.
        messages: The protobuf module of the helper's messages.
        emit: Tells the node what happens.
        introduce: Makes the helper know where a peer is; returns what is wrong, or nothing.

    Attributes:
        helper: The helper that runs.
        control: Questions to it.
        seen: How peers saw this node when they were last asked.
    """

    def __init__(
        self,
        config: dict[str, Any],
        identity: Identity,
        messages: Any,
        emit: Callable[[dict[str, Any]], None],
        introduce: Callable[[PeerId], Awaitable[str | None]],
    ) -> None:
        self._config, self._identity, self._messages = config, identity, messages
        self._emit, self._introduce = emit, introduce
        self.helper: Helper | None = None
        self.control = Control(messages)
        self.seen: list[Seen] = []
        self._ways: Ways | None = None
        self._standing = HelperStanding()
        self._relay_tries = 0

    @property
    def ways(self) -> Ways:
        """Tunnels, and questions to peers."""
        assert self._ways is not None, "the helper was started"
        return self._ways

    def _progress(self, sentence: str) -> None:
        self._emit({"event": "progress", "text": sentence})

    async def find(self, join: Callable[[], Awaitable[list[str]]]) -> list[str]:
        """Starts the helper and joins; where others then do not reach this node, once more with places at relays.

        Args:
            join: Joins the bootstrap peers; returns the addresses of those that were reached.

        Returns:
            What ``join`` returned.

        Raises:
            NodeError: ``E-DIR-001``, or what ``join`` raised.
        """
        serves, reach, local = (
            self._config["serves"],
            self._config["reach"],
            is_loopback(self._config["listen"]),
        )
        known = () if serves or reach != "relayed" else self._relays()
        public = reach == "direct" or self._config["announce"] is not None
        await self._begin(
            HelperStanding(local=local, public=public, relays=known, serves=tuple(serves) if serves else None)
        )
        joined = await join()
        if not local and not public and not serves:
            await self.ask_seen([peer_in(address) for address in joined])
            hidden = reach == "relayed" or (self.seen and all(seen.directory for seen in self.seen))
            relays = self._relays()
            if hidden and set(relays) - set(known):
                self._progress("others do not reach this node: starting again with a place at a relay")
                await self.end()
                await self._begin(HelperStanding(relays=relays))
                joined = await join()
        return joined

    async def _begin(self, standing: HelperStanding) -> None:
        """Starts the helper, and takes streams from it."""
        self._standing = standing
        self._progress("starting the network helper")
        helper = self.helper = await Helper.start(
            program=Path(self._config["program"]),
            seed=self._identity.seed,
            public_key=self._identity.public_key,
            folder=Path(self._config["folder"]),
            listen=str(self._config["listen"]),
            announce=self._config["announce"],
            standing=standing,
            limit=timedelta(seconds=float(self._config["startup"])),
            progress=self._progress,
        )
        self._emit({"event": "helper", "pid": helper.pid})
        self.control = Control(self._messages)
        await self.control.open(helper.door)
        ways = self._ways = Ways(
            self._messages,
            helper,
            self.control.ask,
            self._introduce,
            self._emit,
            relay=standing.serves is not None,
            seen=self._hidden_at,
        )
        await ways.start(self._config["data"])
        if standing.serves is not None:
            await self._check_relay(helper, standing.serves[2])

    async def _check_relay(self, helper: Helper, most: int) -> None:
        self._progress("looking at what this relay offers")
        offer = await offered(
            self._messages,
            program=Path(self._config["program"]),
            folder=Path(self._config["folder"]),
            relay=self._identity.peer_id,
            addresses=await self.control.addresses(),
        )
        if offer == most:
            return
        self._relay_tries += 1
        if self._relay_tries >= RELAY_TRIES:
            raise NodeError(
                Code.DIR_START,
                f"The network helper does not serve as a relay: it offers {offer} bytes a connection, not {most}.",
                fix="Start the node without --relay, or once more.",
            )
        self._progress("the network helper offers another relay than it was told to: starting it again")
        await self.end()
        await self._begin(self._standing)

    async def end(self) -> None:
        """Ends the helper and everything that goes through it."""
        if self._ways is not None:
            await self._ways.stop()
        self.control.close()
        if self.helper is not None:
            await self.helper.stop()

    def _relays(self) -> tuple[str, ...]:
        """Relays for this node: those it was told, and the peers by which it joins that say they are one."""
        serving = {seen.by for seen in self.seen if seen.relay}
        joined = [address for address in self._config["bootstrap"] if peer_in(address) in serving]
        me = self._identity.peer_id
        told = dict.fromkeys([*joined, *self._config["relays"]])
        return tuple(address for address in told if peer_in(address) != me and not is_circuit(address))[
            :MAX_RELAYS
        ]

    def _hidden_at(self) -> str:
        """The address that others see this node at, if they do not reach it there."""
        if not self.seen or any(not seen.data for seen in self.seen) or ":" in self.seen[0].host:
            return ""
        return self.seen[0].host

    async def ask_seen(self, peers: list[str]) -> list[dict[str, str]]:
        """Asks up to three peers how they see this node."""
        data = self._config["data"]
        others = [peer for peer in peers if peer != self._identity.peer_id]
        if data is None or not others:
            return []
        port = _port_of(await self.control.addresses())
        chosen = random.sample(others, min(3, len(others)))
        answers = await asyncio.gather(*(self.ways.ask_seen(PeerId(peer), data, port) for peer in chosen))
        self.seen = [answer for answer in answers if answer is not None and answer.host] or self.seen
        return [vars(seen) for seen in self.seen]

    async def multiaddrs(self) -> list[str]:
        """Where others reach this node, with its peer id; loopback only if there is nothing else."""
        every = await self.control.addresses()
        found = [address for address in every if not is_loopback(address)] or every
        reached = next((seen.host for seen in self.seen if not seen.directory), None)
        if reached is not None and self._config["announce"] is None:
            version = 6 if ":" in reached else 4
            found.insert(0, f"/ip{version}/{reached}/tcp/{_port_of(every)}")
        if self._standing.relays:
            connected = await self.control.connected()
            relays = [address for address in self._standing.relays if peer_in(address) in connected]
            found = [f"{address}/p2p-circuit" for address in relays] + found
        return [f"{address}/p2p/{self._identity.peer_id}" for address in dict.fromkeys(found)]


def _port_of(addresses: list[str]) -> int:
    """The TCP port on which the helper listens."""
    for address in addresses:
        parts = address.split("/")
        if len(parts) == 5 and parts[3] == "tcp":
            return int(parts[4])
    return 0
