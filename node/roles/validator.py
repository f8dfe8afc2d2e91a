"""A validator: fetches the files that trainers draw for it, judges them, and signs what it found."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from diloco.member.setting import Emit
from node.roles.files import fetch_file
from node.roles.policies import PolicyFollower
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.rpc import Context, Endpoint
from protocol.units import Digest, PeerId
from rl import messages
from rl.messages import Draw
from rl.rollouts.files import marker_of, store
from rl.rollouts.limits import Limits
from rl.rollouts.reading import Reader
from rl.validation.draw import LINKS, Shares, follows, is_audited
from rl.validation.judging import Judge
from rl.validation.terms import Lease
from rl.validation.verdict import Finding, Outcome, Verdict
from rl.work.standing import Standing

AT_ONCE = 2
"""Files that are judged at the same time."""

MOST_WAITING = 256
"""Draws that wait; more are refused, and the trainer asks somebody else."""

_TRIES = 8
_PAUSE = timedelta(seconds=1)


class Validator:
    """Judges until cancelled.

    Args:
        me: This node.
        endpoint: To fetch files and to send verdicts.
        trainers: Those that are there now.
        judge: What judges.
        shares: How much is audited.
        policies: The policy's versions.
        folder: Where files lie while they are judged.
        emit: The event log.
        say: Says a phase, a reason and a sentence.
    """

    def __init__(
        self,
        me: PeerId,
        endpoint: Endpoint,
        trainers: Callable[[], Iterable[PeerId]],
        judge: Judge,
        shares: Shares,
        policies: PolicyFollower,
        folder: Path,
        emit: Emit,
        say: Callable[[str, str, str], None],
    ) -> None:
        self._me, self._endpoint, self._trainers = me, endpoint, trainers
        self._judge, self._shares, self._policies = judge, shares, policies
        self._folder, self._emit, self._say = folder, emit, say
        self._limits = Limits()
        self._reader = Reader(self._limits)
        self._draws: asyncio.Queue[tuple[PeerId, Draw]] = asyncio.Queue(MOST_WAITING)
        self._links: dict[tuple[PeerId, int], tuple[int, bytes]] = {}
        self._under_way: set[tuple[PeerId, bytes]] = set()
        endpoint.handle(self.on_draw)

    async def on_draw(self, message: Draw, context: Context) -> None:
        """A trainer has a file judged.

        Raises:
            NodeError: NET_BUSY when too many wait; RL_DRAW when the link is not one of the trainer's chain.
        """
        key = (context.sender, message.digest)
        if key in self._under_way:
            return
        await self._check_link(context.sender, message)
        try:
            self._draws.put_nowait((context.sender, message))
        except asyncio.QueueFull:
            raise NodeError(Code.NET_BUSY, f"{MOST_WAITING} files wait for this validator.") from None
        self._under_way.add(key)

    async def _check_link(self, trainer: PeerId, draw: Draw) -> None:
        """Whether a revealed link is of the chain that the trainer committed to before there was any work.

        Raises:
            NodeError: RL_DRAW.
        """
        chain, place = divmod(draw.number - 1, LINKS)
        anchor = self._policies.anchor(trainer, chain)
        if anchor is None:
            await self._policies.ask(trainer)
            anchor = self._policies.anchor(trainer, chain)
        number, link = self._links.get((trainer, chain), (0, anchor or b""))
        if place + 1 <= number:
            number, link = 0, anchor or b""
        if anchor is None or not await asyncio.to_thread(follows, draw.link, place + 1, link, number):
            raise NodeError(
                Code.RL_DRAW,
                f"Link {draw.number} is not one of the chain that {trainer} committed to.",
                peer=trainer,
            )
        if place + 1 > self._links.get((trainer, chain), (0, b""))[0]:
            self._links[(trainer, chain)] = (place + 1, draw.link)

    async def run(self) -> None:
        """Judge what is drawn until cancelled."""
        try:
            await asyncio.gather(*(self._work() for _ in range(AT_ONCE)))
        finally:
            await self._reader.close()

    async def _work(self) -> None:
        while True:
            if self._draws.empty() and len(self._under_way) == 0:
                self._say("waiting", "files", "Waiting for a trainer to send files to be judged.")
            trainer, draw = await self._draws.get()
            try:
                await self._one(trainer, draw)
            except NodeError as error:
                self._emit(
                    "verdict.failed", digest=draw.digest.hex(), code=str(error.code), reason=error.sentence
                )
            finally:
                self._under_way.discard((trainer, draw.digest))

    async def _one(self, trainer: PeerId, draw: Draw) -> None:
        self._say("judging", "files", f"Judging a file of {draw.worker} with {len(draw.positions)} groups.")
        began = monotonic()
        path = self._folder / f"{draw.digest.hex()}.parquet"
        try:
            verdict = await self._verdict(trainer, draw, path)
        finally:
            for each in (path, marker_of(path)):
                with suppress(OSError):
                    each.unlink(missing_ok=True)
        seconds = monotonic() - began
        self._emit(
            "verdict.given", trainer=trainer, worker=draw.worker, digest=draw.digest.hex(), outcome=verdict.outcome,
            code=str(verdict.code or ""), reason=verdict.sentence, rollouts=verdict.rollouts,
            audited=verdict.audited, seconds=seconds,
            evidence=[dict(finding.evidence) for finding in verdict.findings],
        )  # fmt: skip
        await self._send(trainer, message_of(verdict, seconds))

    async def _verdict(self, trainer: PeerId, draw: Draw, path: Path) -> Verdict:
        lease = Lease(
            worker=PeerId(draw.worker), trainer=PeerId(draw.trainer or trainer), counter=draw.counter,
            version=draw.policy.version,
            weights=Digest(draw.policy.weights), beacon=Digest(draw.policy.beacon), positions=draw.positions,
            newest=draw.newest,
        )  # fmt: skip
        file = Digest(draw.digest)
        try:
            await self._policies.told(draw.policy.version, 10 * _PAUSE)
            if not self._policies.known(draw.policy):
                raise NodeError(
                    Code.RL_UNJUDGED, f"{trainer} names another policy {draw.policy.version} than is known."
                )
            await self._fetch(trainer, draw, path)
        except NodeError as error:
            return _undecided(self._me, file, lease, error)
        try:
            provenance, groups, _ = await self._reader.read(path, courier=trainer)
        except NodeError as error:
            return Verdict(
                file, lease.worker, trainer, lease.counter, self._me, Outcome.REFUSED,
                (Finding(error.code, error.sentence),),
            )  # fmt: skip
        audited = draw.again or is_audited(Digest(draw.link), file, Standing(draw.standing), self._shares)
        return await self._judge.judge(file, provenance, groups, lease, audited=audited)

    async def _fetch(self, trainer: PeerId, draw: Draw, path: Path) -> None:
        """Bring a file, which the trainer signs: it may have made it to test this validator.

        Raises:
            NodeError: It does not come, or is not what was named.
        """
        data, signed = await fetch_file(self._endpoint, trainer, draw.digest, self._limits)
        if signed.signer != trainer:
            raise NodeError(Code.RL_FILE_SIGNATURE, f"A file of {trainer} is signed by {signed.signer}.")
        self._folder.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(store, path, data, signed)

    async def _send(self, trainer: PeerId, verdict: messages.Verdict) -> None:
        for attempt in range(_TRIES):
            try:
                await self._endpoint.send(trainer, verdict)
                return
            except NodeError as error:
                if not error.retriable or attempt == _TRIES - 1:
                    raise
            await asyncio.sleep(_PAUSE.total_seconds() * (attempt + 1))


def _undecided(me: PeerId, file: Digest, lease: Lease, error: NodeError) -> Verdict:
    return Verdict(
        file, lease.worker, lease.trainer, lease.counter, me, Outcome.UNDECIDED,
        (Finding(Code.RL_UNJUDGED, error.sentence),),
    )  # fmt: skip


def message_of(verdict: Verdict, seconds: float) -> messages.Verdict:
    """A verdict as it travels."""
    return messages.Verdict(
        digest=verdict.file, worker=verdict.worker, counter=verdict.counter, outcome=verdict.outcome.value,
        findings=_findings(verdict.findings), doubts=_findings(verdict.doubts), rollouts=verdict.rollouts,
        audited=verdict.audited, seconds=seconds,
    )  # fmt: skip


def _findings(findings: Sequence[Finding]) -> tuple[messages.Finding, ...]:
    return tuple(
        messages.Finding(
            code=str(each.code), sentence=each.sentence[:500],
            position=-1 if each.position is None else each.position,
            index=-1 if each.index is None else each.index,
            evidence=json.dumps(dict(each.evidence))[:1000],
        )
        for each in findings
    )  # fmt: skip
