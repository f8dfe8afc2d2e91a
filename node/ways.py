"""How this node is reached, and by which way it reaches each peer."""

import asyncio
import socket
from datetime import timedelta
from typing import Any

from diloco.member.setting import Emit
from protocol.directory import Directory, PeerRecord
from protocol.paths import Offer, Standing, Way, candidates, stand
from protocol.paths.tunnel import PLANES
from protocol.trust import Trust
from protocol.units import Address, PeerId

_SAY_AGAIN = timedelta(seconds=30)


class Ways:
    """What the node knows of ways; it dials by them through the addresses that it gives to the trust.

    Args:
        trust: Whom the node knows.
        emit: The event log.
        outward: This machine's own address towards others.
        announced: The host that the operator says others dial; empty finds it out.
        wanted: ``auto``, or ``direct`` or ``relayed`` as the run file says.

    Attributes:
        standing: How this node is reached, and why.
    """

    def __init__(self, trust: Trust, emit: Emit, *, outward: str, announced: str, wanted: str) -> None:
        self._trust, self._emit = trust, emit
        self._outward, self._announced, self._wanted = outward, announced, wanted
        self.standing = Standing()
        self._taken: dict[tuple[PeerId, str], Way] = {}
        self._tunnels: dict[PeerId, dict[str, Address]] = {}
        self._said: dict[tuple[PeerId, str], float] = {}

    def begin_anew(self) -> None:
        """Another directory starts: the tunnels of the one before are gone."""
        self._tunnels.clear()

    def take_stand(self, directory: Directory) -> bool:
        """Concludes how this node is reached from what peers saw; whether that changed."""
        standing = stand(self._outward, self._announced, self._wanted, directory.seen)
        if standing == self.standing:
            return False
        self.standing = standing
        self._emit(
            "node.reach", reach=standing.reach.value, host=standing.host, seen=standing.seen,
            sentence=standing.sentence, multiaddrs=list(directory.multiaddrs),
        )  # fmt: skip
        return True

    def to(self, peer: PeerId) -> str:
        """The way to a peer: ``direct``, ``punched`` or ``relayed``; empty for a tunnel that was not yet used.

        Control and bulk connect by themselves; where their ways differ, it is that of control.
        """
        if peer in self._tunnels:
            return self._taken.get((peer, "control"), self._taken.get((peer, "bulk"), ""))
        return Way.DIRECT if self._trust.find(peer) is not None else ""

    async def addresses(
        self, directory: Directory, record: PeerRecord
    ) -> tuple[tuple[Address, ...], tuple[Address, ...]]:
        """Where to connect for a peer's control and for its bulk, best first; nothing for bulk means the same.

        Raises:
            NodeError: ``E-DIR-003`` if a tunnel is needed and the directory died.
        """
        offer = Offer(record.reach, Address(record.host, record.port), record.seen)
        best = candidates(self.standing, offer)
        direct = tuple(each for each in best if each is not None)
        if len(direct) == len(best):
            await self.forget(directory, record.peer)
            return direct, ()
        tunnel = self._tunnels.setdefault(record.peer, {})
        for plane in PLANES:
            if plane not in tunnel:
                tunnel[plane] = await directory.tunnel(record.peer, plane)
        return (*direct, tunnel["control"]), (*direct, tunnel["bulk"])

    async def forget(self, directory: Directory, peer: PeerId) -> None:
        """Closes the tunnel to a peer, if there is one; connections under way go on.

        Raises:
            NodeError: ``E-DIR-003`` if the directory died.
        """
        if peer in self._tunnels:
            await directory.forget_tunnel(peer)
            self._tunnels.pop(peer, None)
        for plane in PLANES:
            self._taken.pop((peer, plane), None)
            self._said.pop((peer, plane), None)

    def on_tunnel(self, event: dict[str, Any]) -> None:
        """The directory says that a tunnel opened, or could not."""
        peer, plane = PeerId(event["peer"]), event["plane"]
        if peer not in self._tunnels:
            return  # it was forgotten meanwhile
        if event["event"] == "way":
            way = Way(event["way"])
            if self._taken.get((peer, plane)) is not way:
                self._taken[peer, plane] = way
                self._emit("peer.path", peer=peer, plane=plane, path=way.value, address=event["address"])
            return
        now = asyncio.get_running_loop().time()
        if (
            now - self._said.get((peer, plane), -1e9) > _SAY_AGAIN.total_seconds()
        ):  # it is tried every few seconds
            self._said[peer, plane] = now
            self._emit("peer.no-path", peer=peer, plane=plane, reason=event["reason"])


def outward(host: str) -> str:
    """The address that this machine's route to others has, where it listens on all of them; never its own host name."""
    if host not in ("0.0.0.0", "::"):
        return host
    family = socket.AF_INET6 if host == "::" else socket.AF_INET
    target = "2001:db8::1" if host == "::" else "192.0.2.1"  # documentation addresses: nothing is sent
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1" if family == socket.AF_INET else "::1"
