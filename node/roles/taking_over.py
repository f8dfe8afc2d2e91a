"""What other trainers had made of positions that fell to this one: asked for, fetched, judged again."""

import asyncio

from diloco.member.setting import Emit
from node.roles.files import fetch_file
from protocol.errors import NodeError
from protocol.rpc import Endpoint
from protocol.units import PeerId
from rl.messages import MOST_POSITIONS, AskFiles
from rl.orchestration.desk import Orchestrator
from rl.orchestration.folder import Folder
from rl.orchestration.rows import File
from rl.rollouts.files import store
from rl.rollouts.limits import Limits


class TakingOver:
    """Asks other trainers.

    Args:
        endpoint: To ask them.
        folder: Where this trainer's rollout files lie.
        emit: The event log.
    """

    def __init__(self, endpoint: Endpoint, folder: Folder, emit: Emit) -> None:
        self._endpoint, self._folder, self._emit = endpoint, folder, emit
        self._limits = Limits()

    async def ask(self, desk: Orchestrator, trainer: PeerId, positions: tuple[int, ...]) -> None:
        """Fetch a trainer's files that hold some positions, until none of these is without a file here."""
        try:
            answer = await self._endpoint.request(trainer, AskFiles(positions=positions[:MOST_POSITIONS]))
        except NodeError as error:
            self._emit("files.unknown", trainer=trainer, code=str(error.code), reason=error.sentence)
            return
        for digest in answer.digests:
            if not set(positions) & _without_file(desk):
                return
            try:
                await self._fetch(desk, trainer, digest)
            except NodeError as error:
                self._emit(
                    "file.not-taken", trainer=trainer, digest=digest.hex(), code=str(error.code),
                    reason=error.sentence,
                )  # fmt: skip

    async def _fetch(self, desk: Orchestrator, trainer: PeerId, digest: bytes) -> None:
        if digest.hex() in desk.state.kept.files:
            return
        data, signed = await fetch_file(self._endpoint, trainer, digest, self._limits)
        path = self._folder.coming(trainer, int.from_bytes(digest[:8]))
        self._folder.reserve(path, len(data))
        await asyncio.to_thread(store, path, data, signed)
        await desk.found(path)
        if digest.hex() in desk.state.kept.files:
            self._emit("file.taken", trainer=trainer, digest=digest.hex(), worker=signed.signer)


def _without_file(desk: Orchestrator) -> set[int]:
    """The positions that this trainer needs and has no file of."""
    state = desk.state
    held = state.holders()
    return {each.position for each in state.wanted if not isinstance(held.get(each.position), File)}
