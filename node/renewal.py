"""A node's admission is renewed long before it expires, while a coordinator can be reached.

An expired one bars only entry: a member stays one whatever the clock says, and asks on.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from diloco.genesis import Genesis
from diloco.member.admission import read_admission
from diloco.member.setting import Emit
from node.joining import ADMISSION_FILE, ask_coordinators
from node.network import Network
from node.roles.coordinator import RENEWED_BEFORE, Coordinator
from protocol.errors import NodeError
from protocol.files import write_whole

_LOOK = timedelta(minutes=1)


class Renewal:
    """Keeps one node's admission fresh.

    Args:
        network: The node's network.
        genesis: The run.
        coordinator: The coordinator on this node, if it has one.
        folder: The node's data directory.
        emit: The event log.
        took: Given each new admission (envelope bytes).
    """

    def __init__(
        self,
        network: Network,
        genesis: Genesis,
        coordinator: Coordinator | None,
        folder: Path,
        emit: Emit,
        took: Callable[[bytes], None],
    ) -> None:
        self._network, self._genesis, self._coordinator = network, genesis, coordinator
        self._path, self._emit, self._took = folder / ADMISSION_FILE, emit, took

    async def run(self, admission: bytes) -> None:
        """Renew an admission whenever it is due, until cancelled."""
        while True:
            admission = await self.renew(admission)
            await asyncio.sleep(_LOOK.total_seconds())

    async def renew(self, admission: bytes) -> bytes:
        """The admission, or a newer one where it is due and a coordinator gives one."""
        held = self._read(admission)
        if held - self._network.now() > RENEWED_BEFORE.total_seconds():
            return admission
        new = await self._new(admission)
        if new is None or self._read(new) <= held:
            return admission
        with suppress(NodeError):  # the next start asks again
            write_whole(self._path, [new])
        self._emit("admission.renewed", expires_at=self._read(new))
        self._took(new)
        await self._network.readmitted(new)
        return new

    def _read(self, admission: bytes) -> int:
        genesis, me = self._genesis, self._network.me
        return read_admission(admission, genesis.run_id, genesis.operator, me).message.expires_at

    async def _new(self, held: bytes) -> bytes | None:
        if self._coordinator is not None:
            with suppress(NodeError):
                return self._coordinator.admit(self._network.me, self._network.roles, held)
            return None
        return (await ask_coordinators(self._network, self._genesis, held)).admission
