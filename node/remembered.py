"""Addresses that a node keeps for its next start: of members, and of relays."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from protocol.errors import NodeError
from protocol.files import write_whole

_PEERS_FILE = "peers.json"
_RELAYS_FILE = "relays.json"
_KEPT = 256
_RELAYS = 16


class Remembered:
    """The addresses in one node's folder. What cannot be written is not remembered, and nothing else happens."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def peers(self) -> tuple[str, ...]:
        """Multiaddresses of members, those of the last look first."""
        return self._read(_PEERS_FILE)

    def relays(self, seen: Iterable[str] = ()) -> tuple[str, ...]:
        """Multiaddresses of relays, those that are seen at this moment first."""
        return tuple(dict.fromkeys([*seen, *self._read(_RELAYS_FILE)]))[:_RELAYS]

    def keep_peers(self, now: list[str]) -> None:
        """Keep where members are, those that left last as well: after a stop of all they are the way back."""
        known = self.peers()
        here = {_peer_in(address) for address in now}
        addresses = [*now, *(address for address in known if _peer_in(address) not in here)][:_KEPT]
        if now and sorted(addresses) != sorted(known):
            self._write(_PEERS_FILE, addresses)

    def keep_relays(self, relays: tuple[str, ...]) -> None:
        """Keep where relays are, where that changed."""
        if relays and set(relays) != set(self._read(_RELAYS_FILE)):
            self._write(_RELAYS_FILE, list(relays))

    def _read(self, name: str) -> tuple[str, ...]:
        try:
            addresses = json.loads((self._folder / name).read_bytes())
            return tuple(str(address) for address in addresses)[:_KEPT]
        except (OSError, ValueError, TypeError):
            return ()

    def _write(self, name: str, addresses: list[str]) -> None:
        with suppress(NodeError):
            write_whole(self._folder / name, [json.dumps(addresses).encode()])


def _peer_in(address: str) -> str:
    return address.rsplit("/p2p/", 1)[-1]
