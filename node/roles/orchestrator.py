"""The orchestrator of a trainer as others see it: work is asked of it, files are sent to it, verdicts come to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from diloco.member.setting import Emit, Tasks
from node.network import Network
from node.roles.publishing import PolicyPublisher
from node.roles.taking_over import TakingOver
from protocol.errors import Code, NodeError
from protocol.identity import Signer
from protocol.rpc import Context
from protocol.units import Digest, PeerId
from rl import messages
from rl.messages import (
    FRAME,
    MOST_FILES,
    Abandon,
    Appeal,
    AskFile,
    AskFiles,
    AskReceipt,
    AskWork,
    Draw,
    FilePart,
    Files,
    Policy,
    PutRollouts,
    Receipt,
    Report,
    Verdict,
    WorkLease,
)
from rl.orchestration.desk import Orchestrator, Outward
from rl.orchestration.events import AskVerdict, Ban, Give, Lift
from rl.orchestration.events import Report as Told
from rl.orchestration.folder import Folder
from rl.orchestration.moving import holding
from rl.orchestration.rows import Opinion
from rl.rollouts.files import load, marker_of
from rl.rollouts.limits import Limits
from rl.rollouts.signing import Signed
from rl.validation.verdict import STRIKES, Outcome

if TYPE_CHECKING:
    from diloco.member.member import Member
    from node.roles.coordinator import Coordinator

_TICK = timedelta(seconds=1)
_TRIES = 5
_UPLOADS = 4
"""Uploads of one worker at once."""


class OrchestratorRole:
    """Serves workers and validators, and carries out what the orchestrator asks for.

    Args:
        network: Who is there.
        me: This trainer, which signs what it gives to validators.
        folder: Its files.
        publisher: The policy's versions.
        emit: The event log.
        order: Orders a ban, on the node that has the operator's key; None on others.
    """

    def __init__(
        self,
        network: Network,
        me: Signer,
        folder: Folder,
        publisher: PolicyPublisher,
        emit: Emit,
        order: Callable[[str, str], None] | None,
    ) -> None:
        self._network, self._endpoint, self._me = network, network.endpoint, me
        self._folder, self._publisher = folder, publisher
        self._emit, self._order = emit, order
        self._limits = Limits()
        self._taking = TakingOver(network.endpoint, folder, emit)
        self._desk: Orchestrator | None = None
        self._uploads: dict[PeerId, int] = {}
        self._banned: dict[str, Ban] = {}
        self._tasks = Tasks(lambda name, error: emit("task.failed", task=name, reason=str(error)))

    def serve(self, desk: Orchestrator) -> None:
        """Begin to answer."""
        self._desk = desk
        for handler in (
            self._publisher.on_ask_policies, self.on_ask_work, self.on_abandon, self.on_ask_receipt,
            self.on_put_rollouts, self.on_ask_file, self.on_ask_files, self.on_verdict, self.on_appeal,
        ):  # fmt: skip
            self._endpoint.handle(handler)
        self._tasks.keep(self._tick, "orchestrator")

    async def close(self) -> None:
        """Stop what is under way."""
        await self._tasks.close()

    @property
    def desk(self) -> Orchestrator:
        """The orchestrator, once it is there."""
        if self._desk is None:
            raise NodeError(Code.NET_BUSY, "This trainer is still starting.")
        return self._desk

    async def _tick(self) -> None:
        while True:
            judges = {
                peer
                for peer in self._network.peers("validator")
                if "validator" in self._network.given_roles(peer)
            }
            self.desk.validators(frozenset(judges))
            self.desk.tick()
            await asyncio.sleep(_TICK.total_seconds())

    # ---- workers

    async def on_ask_work(self, message: AskWork, context: Context) -> WorkLease:
        """Give work, or say why there is none.

        Raises:
            NodeError: RL_NO_WORK for a banned worker.
        """
        given = self.desk.ask(context.sender, message.holding, message.most)
        if isinstance(given, Give):
            work = given.work
            return WorkLease(
                counter=work.counter, version=work.version, positions=work.positions,
                seconds=max(0.0, given.until - self.desk.now),
            )  # fmt: skip
        until = given.until
        return WorkLease(
            seconds=2.0 if until is None else max(0.2, until - self.desk.now), reason=given.reason[:60],
            sentence=given.sentence[:500],
        )  # fmt: skip

    async def on_abandon(self, message: Abandon, context: Context) -> None:
        """A worker gives work back."""
        self.desk.abandon(context.sender, message.counter, message.reason)

    async def on_ask_receipt(self, message: AskReceipt, context: Context) -> Receipt:
        """Say how much of a file is here.

        Raises:
            NodeError: NET_BUSY when it is not this file's turn; RL_LEASE, STO_FULL.
        """
        known = self.desk.state.kept.files.get(message.digest.hex())
        if known is not None and known.worker == context.sender:
            return Receipt(held=known.nbytes, done=True, taken=True)
        path = self._folder.coming(context.sender, message.counter)
        return Receipt(held=path.stat().st_size if path.exists() else 0)

    async def on_put_rollouts(self, messages: AsyncIterator[PutRollouts], context: Context) -> Receipt:
        """Take a file, from where it broke off.

        Raises:
            NodeError: NET_BUSY when it is not its turn or too many come at once; RL_LEASE; RL_FILE_…; STO_….
        """
        worker = context.sender
        if self._uploads.get(worker, 0) >= _UPLOADS:
            raise NodeError(Code.NET_BUSY, f"{_UPLOADS} files of this worker are coming already.")
        self._uploads[worker] = self._uploads.get(worker, 0) + 1
        try:
            return await self._upload(worker, messages)
        finally:
            self._uploads[worker] -= 1
            if not self._uploads[worker]:
                del self._uploads[worker]

    async def _upload(self, worker: PeerId, messages: AsyncIterator[PutRollouts]) -> Receipt:
        first = await anext(messages)
        if not 0 < first.size <= self._limits.file_bytes:
            raise NodeError(
                Code.RL_FILE_TOO_LARGE, f"A file of {first.size} bytes is not taken.", peer=worker
            )
        waiting = self.desk.begin_upload(worker, first.counter, first.size)
        if waiting is not None:
            raise NodeError(Code.NET_BUSY, waiting.sentence)
        path = self._folder.coming(worker, first.counter)
        signed = Signed(worker, Digest(first.digest), first.signature)
        await _write(path, first, messages)
        held = path.stat().st_size
        if held < first.size:
            return Receipt(held=held)
        try:
            data = await asyncio.to_thread(path.read_bytes)
            await asyncio.to_thread(signed.check, data)
        except NodeError:
            self._folder.drop(path)
            raise
        marker_of(path).write_bytes(signed.to_json())
        receipt = await self.desk.receive(worker, first.counter)
        if receipt.taken:
            self._tasks.spawn(self.desk.plant(signed.digest), "planting")
        return Receipt(
            held=held,
            done=True,
            taken=receipt.taken,
            code=receipt.reason[:60],
            sentence=receipt.sentence[:1000],
        )

    async def on_appeal(self, message: Appeal, context: Context) -> None:
        """A worker wants another opinion."""
        self.desk.appeal(context.sender, message.digest)

    # ---- validators

    async def on_ask_file(self, message: AskFile, context: Context) -> AsyncIterator[FilePart]:
        """Give a file to a validator, or to another trainer.

        A validator gets it with this trainer's own signature: so what is planted among the others does not show.

        Raises:
            NodeError: RL_FILE_UNREADABLE when it is not here; NET_AUDIENCE for a worker.
        """
        roles = set(self._network.given_roles(context.sender))
        if not {"validator", "trainer"} & roles:
            raise NodeError(Code.NET_AUDIENCE, "Rollout files are given to validators and trainers.")
        path = self._folder.path(message.digest)
        if not path.exists():
            path = self._folder.evidence(message.digest) or path
        data, signed = await asyncio.to_thread(load, path, self._limits)
        if "trainer" not in roles:
            signed = Signed.make(self._me, data)
        view = memoryview(data)
        yield FilePart(data=view[:FRAME], signer=signed.signer, signature=signed.signature, size=len(data))
        for start in range(FRAME, len(data), FRAME):
            yield FilePart(data=view[start : start + FRAME])

    def take_over(self, positions: tuple[int, ...]) -> None:
        """Have, in the background, what other trainers had made of positions that fell to this one."""
        for trainer in self._network.peers("trainer"):
            self._tasks.spawn(self._taking.ask(self.desk, trainer, positions), "taking over")

    async def on_ask_files(self, message: AskFiles, context: Context) -> Files:
        """Tell another trainer which files hold positions that are its own now."""
        return Files(digests=holding(self.desk.state, message.positions)[:MOST_FILES])

    async def on_verdict(self, message: Verdict, context: Context) -> None:
        """A validator has judged a file."""
        findings = message.findings
        self._emit(
            "verdict.received", validator=context.sender, worker=message.worker, digest=message.digest.hex(),
            outcome=message.outcome, code=findings[0].code if findings else "",
            reason=findings[0].sentence if findings else "", rollouts=message.rollouts, audited=message.audited,
            seconds=message.seconds, evidence=[each.evidence for each in findings],
            doubts=[each.sentence for each in message.doubts],
        )  # fmt: skip
        accepted = message.outcome == Outcome.ACCEPTED
        first = (
            findings[0]
            if findings
            else messages.Finding(code=str(Code.RL_UNJUDGED), sentence="No reason is given.")
        )
        opinion = Opinion(
            context.sender, accepted,
            "" if accepted else first.code, "" if accepted else first.sentence,
            0 if accepted else max((strikes_of(each.code) for each in findings), default=0),
            undecided=message.outcome == Outcome.UNDECIDED, doubt=bool(message.doubts),
        )  # fmt: skip
        self.desk.judged(message.digest, opinion)

    # ---- outward

    def outward(self, effect: Outward) -> None:
        """Carry out what the orchestrator asks for, in the background."""
        match effect:
            case AskVerdict():
                self._tasks.spawn(self._ask_verdict(effect), "draw")
            case Told(worker, digest, accepted, code, sentence):
                report = Report(digest=digest, accepted=accepted, code=code[:60], sentence=sentence[:2000])
                self._tasks.spawn(self._tell(PeerId(worker), report), "report")
            case Ban():
                self._tasks.spawn(self._ban(effect), "ban")
            case Lift(worker, sentence):
                report = Report(accepted=True, sentence=sentence[:2000])
                self._tasks.spawn(self._tell(PeerId(worker), report), "report")
            case _:
                pass  # its event says all that there is to say

    async def _ask_verdict(self, effect: AskVerdict) -> None:
        file = self.desk.state.kept.files.get(effect.digest.hex())
        if file is None:
            return
        made = self._publisher.made(file.version)
        draw = Draw(
            digest=effect.digest, worker=file.worker, counter=file.counter,
            policy=Policy(version=made.version, weights=made.weights, beacon=made.beacon, size=made.size),
            positions=tuple(group.position for group in file.groups), newest=self._publisher.newest,
            standing=effect.standing.value, number=effect.number, link=effect.link,
            again=bool(file.opinions) or file.heard, trainer=file.trainer,
        )  # fmt: skip
        try:
            await self._endpoint.send(PeerId(effect.validator), draw)
        except NodeError as error:
            self._emit("draw.failed", validator=effect.validator, code=str(error.code), reason=error.sentence)

    async def _ban(self, effect: Ban) -> None:
        """Tell the worker why before the ban cuts it off."""
        report = Report(
            digest=effect.evidence[0] if effect.evidence else b"", banned=True, code=str(Code.RL_BANNED),
            sentence=effect.sentence[:2000], evidence=effect.evidence[:8],
        )  # fmt: skip
        await self._tell(PeerId(effect.worker), report)
        if self._order is not None:
            self._order(effect.worker, effect.sentence)

    async def _tell(self, worker: PeerId, report: Report) -> None:
        for attempt in range(_TRIES):
            with suppress(NodeError):
                await self._endpoint.send(worker, report)
                return
            await asyncio.sleep(attempt + 1)
        self._emit("report.failed", worker=worker, digest=report.digest.hex())


async def _write(path: Path, first: PutRollouts, messages: AsyncIterator[PutRollouts]) -> None:
    """Append the frames of a file, in order, up to its size.

    Raises:
        NodeError: RL_FILE_UNREADABLE when a frame does not go on where the one before ended; RL_FILE_TOO_LARGE.
    """
    held = path.stat().st_size if path.exists() else 0
    if first.offset > held:
        raise NodeError(
            Code.RL_FILE_UNREADABLE, f"The upload begins at byte {first.offset}; {held} bytes are here."
        )
    with path.open("r+b" if held else "wb") as file:
        file.truncate(first.offset)
        file.seek(first.offset)
        frame: PutRollouts | None = first
        while frame is not None:
            if frame.offset != file.tell():
                raise NodeError(
                    Code.RL_FILE_UNREADABLE, f"A frame for byte {frame.offset} came after byte {file.tell()}."
                )
            if file.tell() + len(frame.data) > first.size:
                raise NodeError(
                    Code.RL_FILE_TOO_LARGE, f"More than the {first.size} bytes that were announced come."
                )
            file.write(frame.data)
            frame = await anext(messages, None)


def strikes_of(code: str) -> int:
    """What a finding costs a worker."""
    with suppress(ValueError):
        return STRIKES.get(Code(code), 1)
    return 1


def ban_of(
    coordinator: "Coordinator | None", member: "Callable[[], Member | None]"
) -> Callable[[str, str], None] | None:
    """Orders bans of workers where this node has the operator's key."""
    if coordinator is None:
        return None

    def order(worker: str, sentence: str) -> None:
        here = member()
        if here is not None:
            coordinator.order(here, "ban", sentence[:200], peer=worker)

    return order
