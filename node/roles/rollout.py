"""A rollout worker: takes work from trainers, lets its engine and the environment talk, hands in files with proofs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np

from diloco.member.setting import Emit
from node.roles.policies import Known, PolicyFollower
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.rpc import Context, Endpoint
from protocol.units import PeerId
from rl.engine.interface import Engine, Former, Request
from rl.environments.interface import Remote, Task
from rl.environments.play import End, Room, Turn, play
from rl.environments.transcript import Conversation, Renderer
from rl.messages import FRAME, Abandon, AskReceipt, AskWork, PutRollouts, Receipt, Report, WorkLease
from rl.rollouts.files import load, write
from rl.rollouts.limits import Limits
from rl.rollouts.record import SCHEMA, Group, Provenance, Rollout
from rl.rollouts.signing import Signed
from rl.sampling.settings import Sampling
from rl.validation.terms import Terms
from rl.work.seeds import task_seed, token_seed

OPEN = 2
"""Leases of work that a worker has at once, so that its engine is not idle while it asks."""

_TRIES = 5
_PAUSE = timedelta(seconds=1)


@dataclass
class _Sampler:
    """One rollout's turns, sampled by the engine; what proves them stays here.

    Attributes:
        proofs: So far.
        proof_versions: Of each.
    """

    engine: Engine
    name: str
    seed: bytes
    sampling: Sampling
    more: bool
    prompt: int = 0
    turns: int = 0
    refills: int = 0
    length: int = 0
    proofs: tuple[bytes, ...] = ()
    proof_versions: tuple[int, ...] = ()
    said: list[str] = field(default_factory=list)

    async def turn(self, tokens: Sequence[int], first: int, room: int) -> Turn:
        """See `rl.environments.play.Sampler`."""
        self.prompt = self.prompt or len(tokens)
        former = None
        if self.said:
            former = Former(self.said[-1], self.length, self.proofs, self.proof_versions, self.refills)
        self.said.append(f"{self.name}/{len(self.said)}")
        request = Request(
            self.said[-1], tuple(tokens), self.seed, self.sampling, first, self.prompt,
            proofs=True, former=former, keep=self.more,
        )  # fmt: skip
        said: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        async for piece in self.engine.generate(request):
            said += piece.tokens
            logprobs += piece.logprobs
            versions += piece.versions
            if piece.finish is not None:
                self.proofs, self.proof_versions = piece.proofs, piece.proof_versions
                self.refills, self.length = piece.refills, len(tokens) + len(said)
                return Turn(said, logprobs, versions, piece.finish)
        raise NodeError(Code.RL_ENGINE, "The engine ended a turn without saying why.")


def record(
    position: int, index: int, conversation: Conversation, sampler: _Sampler, end: End, reward: float
) -> Rollout:
    """A conversation with its proofs and its reward."""
    return Rollout(
        position=position,
        index=index,
        tokens=np.array(conversation.tokens, np.int32),
        sampled=np.array(conversation.sampled, np.bool_),
        logprobs=np.array(conversation.logprobs, np.float32),
        versions=np.array(conversation.versions, np.int32),
        proofs=sampler.proofs,
        proof_versions=sampler.proof_versions,
        reward=reward,
        finish=end,
    )


class RolloutWorker:
    """Works until cancelled, or until it is banned.

    Args:
        identity: The node.
        endpoint: To call trainers.
        trainers: Those that are there now.
        terms: The run's terms.
        renderer: Its tokens.
        environment: Where tasks and rewards come from.
        engine: What samples.
        version: The policy version that it runs on.
        policies: The policy's versions.
        folder: Where files wait until they are taken.
        emit: The event log.
        say: Says a phase, a reason and a sentence.
    """

    def __init__(
        self,
        identity: Identity,
        endpoint: Endpoint,
        trainers: Callable[[], Iterable[PeerId]],
        terms: Terms,
        renderer: Renderer,
        environment: Remote,
        engine: Engine,
        version: int,
        policies: PolicyFollower,
        folder: Path,
        emit: Emit,
        say: Callable[[str, str, str], None],
    ) -> None:
        self._identity, self._endpoint, self._trainers = identity, endpoint, trainers
        self._terms, self._renderer, self._environment = terms, renderer, environment
        self._engine, self._policies, self._folder = engine, policies, folder
        self._emit, self._say = emit, say
        self._limits = Limits()
        self._room = Room(terms.turns, terms.sampling.max_tokens, terms.context)
        self._works: dict[tuple[PeerId, int], asyncio.Task[None]] = {}
        self._freed = asyncio.Event()
        self._given: dict[PeerId, int] = {}  # by turns: when each trainer gave work last
        self._silent: set[PeerId] = set()
        self._turn = 0
        self._version = version
        self._updated = asyncio.Condition()
        self._banned: asyncio.Future[NodeError] = asyncio.get_running_loop().create_future()
        endpoint.handle(self.on_report)

    async def run(self) -> None:
        """Follow the policy, ask for work, do it.

        Raises:
            NodeError: RL_BANNED: a trainer gives this worker no more work, and says why.
        """
        tasks = [asyncio.ensure_future(each) for each in (self._follow(), self._ask(), self._end())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, *self._works.values()):
                task.cancel()
            await asyncio.gather(*tasks, *self._works.values(), return_exceptions=True)

    async def _end(self) -> None:
        raise await self._banned

    async def on_report(self, message: Report, context: Context) -> None:
        """A trainer says what was found about a file of this node's."""
        self._emit(
            "rollouts.judged", trainer=context.sender, digest=message.digest.hex(), accepted=message.accepted,
            banned=message.banned, code=message.code, reason=message.sentence,
            evidence=[each.hex() for each in message.evidence],
        )  # fmt: skip
        if message.banned and not self._banned.done():
            self._banned.set_result(
                NodeError(
                    Code.RL_BANNED,
                    f"{context.sender} takes no more rollouts of this node: {message.sentence}",
                )
            )

    # ---- policy

    async def _follow(self) -> None:
        while True:
            newest = await self._policies.after(self._version)
            try:
                await self._update(newest)
            except NodeError as error:
                self._emit(
                    "policy.waits", version=newest.version, code=str(error.code), reason=error.sentence
                )
                await asyncio.sleep(_PAUSE.total_seconds())

    async def _update(self, known: Known) -> None:
        path = await self._policies.bring(known)
        began = monotonic()
        cpu = await self._engine.update(known.version, path, known.weights)
        self._emit("policy.running", version=known.version, seconds=monotonic() - began, cpu=cpu)
        async with self._updated:
            self._version = known.version
            self._updated.notify_all()

    async def _has(self, version: int) -> None:
        """Wait until the engine runs on a version, or a newer one."""
        async with self._updated:
            await self._updated.wait_for(lambda: self._version >= version)

    # ---- work

    async def _ask(self) -> None:
        await self._has(0)
        while True:
            if len(self._works) >= OPEN:
                self._freed.clear()
                await self._freed.wait()
                continue
            wait = await self._ask_all()
            if wait is not None:
                self._freed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._freed.wait()

    async def _ask_all(self) -> float | None:
        """Take work of whoever gave none for longest; None when there was some, else how many seconds to wait.

        Who does not answer comes last the next time, so that it delays nobody else's work.
        """
        waits: list[float] = []
        trainers = sorted(
            self._trainers(),
            key=lambda trainer: (trainer in self._silent, self._given.get(trainer, 0), trainer),
        )
        for trainer in trainers:
            holding = tuple(counter for peer, counter in self._works if peer == trainer)
            try:
                lease = await self._endpoint.request(trainer, AskWork(holding=holding))
            except NodeError as error:
                self._silent.add(trainer)
                self._say("waiting", "trainer", f"{trainer} does not answer: {error.sentence}")
                continue
            self._silent.discard(trainer)
            if lease.counter >= 0:
                self._turn += 1
                self._given[trainer] = self._turn
                self._begin(trainer, lease)
                return None
            waits.append(lease.seconds)
            if not self._works:
                self._say("waiting", lease.reason, lease.sentence)
        if not waits and not self._works:
            self._say("waiting", "trainers", "No trainer of the run can be reached.")
        return max(0.1, min(waits, default=_PAUSE.total_seconds()))

    def _begin(self, trainer: PeerId, lease: WorkLease) -> None:
        key = (trainer, lease.counter)
        if key in self._works:
            return
        task = self._works[key] = asyncio.ensure_future(self._work(trainer, lease))

        def ended(task: "asyncio.Task[None]") -> None:
            self._works.pop(key, None)
            self._freed.set()
            if not task.cancelled() and (error := task.exception()) is not None:
                self._emit("task.failed", task="work", reason=f"{type(error).__name__}: {error}")

        task.add_done_callback(ended)

    async def _work(self, trainer: PeerId, lease: WorkLease) -> None:
        self._say(
            "working", "rollouts",
            f"Making {len(lease.positions)} groups of {self._terms.group_size} rollouts with policy {lease.version}.",
        )  # fmt: skip
        try:
            async with asyncio.timeout(lease.seconds):
                path, signed = await self._make(trainer, lease)
                await self._hand_in(trainer, lease.counter, path, signed)
        except (NodeError, TimeoutError) as error:
            why = error.sentence if isinstance(error, NodeError) else "It took longer than it may."
            self._emit("work.abandoned", trainer=trainer, counter=lease.counter, reason=why)
            with suppress(NodeError):
                await self._endpoint.send(trainer, Abandon(counter=lease.counter, reason=why[:500]))

    async def _make(self, trainer: PeerId, lease: WorkLease) -> tuple[Path, Signed]:
        path = self._folder / f"{trainer}-{lease.counter}.parquet"
        with suppress(NodeError):  # made before this process began, and perhaps sent in part
            _, signed = load(path, self._limits)
            return path, signed
        known = await self._policies.told(lease.version, timedelta(seconds=lease.seconds))
        await self._has(lease.version)
        began = monotonic()
        groups = await asyncio.gather(*(self._group(known, position) for position in lease.positions))
        provenance = Provenance(
            schema=SCHEMA, run=self._terms.run, worker=self._identity.peer_id, trainer=trainer,
            counter=lease.counter, version=lease.version, weights=known.weights, beacon=known.beacon,
            environment=self._terms.environment, environment_version=self._terms.environment_version,
            tokenizer=self._terms.tokenizer, sampling=self._terms.sampling,
        )  # fmt: skip
        self._folder.mkdir(parents=True, exist_ok=True)
        signed = await asyncio.to_thread(write, path, provenance, groups, self._identity)
        rewards = [rollout.reward for group in groups for rollout in group.rollouts]
        self._emit(
            "rollouts.made", trainer=trainer, counter=lease.counter, version=lease.version,
            groups=len(groups), tokens=sum(int(r.sampled.sum()) for group in groups for r in group.rollouts),
            reward=float(np.mean(rewards)), seconds=monotonic() - began, digest=signed.digest.hex(),
        )  # fmt: skip
        return path, signed

    async def _group(self, known: Known, position: int) -> Group:
        task = await self._environment.task(task_seed(known.beacon, position))
        made = await asyncio.gather(
            *(self._play(known, task, position, index) for index in range(self._terms.group_size))
        )
        rewards = await self._environment.score(task, [conversation.messages for conversation, _, _ in made])
        return Group(
            position,
            known.version,
            tuple(
                record(position, index, conversation, sampler, end, reward)
                for index, ((conversation, sampler, end), reward) in enumerate(
                    zip(made, rewards, strict=True)
                )
            ),
        )

    async def _play(
        self, known: Known, task: Task, position: int, index: int
    ) -> tuple[Conversation, _Sampler, End]:
        sampler = _Sampler(
            self._engine, f"{known.version}-{position}-{index}",
            token_seed(known.beacon, position, self._identity.peer_id, index), self._terms.sampling,
            more=self._terms.turns > 1,
        )  # fmt: skip
        try:
            conversation, end = await play(self._environment, self._renderer, task, sampler, self._room)
        finally:
            if sampler.more and sampler.said:
                await self._engine.release(sampler.said[-1])
        return conversation, sampler, end

    # ---- handing in

    async def _hand_in(self, trainer: PeerId, counter: int, path: Path, signed: Signed) -> None:
        data = await asyncio.to_thread(path.read_bytes)
        for attempt in range(_TRIES):
            try:
                receipt = await self._endpoint.request(
                    trainer, AskReceipt(counter=counter, digest=signed.digest)
                )
                if not receipt.done:
                    receipt = await self._endpoint.feed(
                        trainer, PutRollouts, _frames(data, counter, signed, receipt.held)
                    )
                if receipt.done:
                    break
            except NodeError as error:
                if not error.retriable or attempt == _TRIES - 1:
                    raise
            await asyncio.sleep(_PAUSE.total_seconds() * attempt)
        else:
            raise NodeError(Code.RL_NO_WORK, f"{trainer} did not take the file after {_TRIES} tries.")
        self._told(trainer, counter, receipt, len(data))
        for each in (path, path.with_name(path.name + ".signed")):
            each.unlink(missing_ok=True)

    def _told(self, trainer: PeerId, counter: int, receipt: Receipt, size: int) -> None:
        self._emit(
            "rollouts.handed-in", trainer=trainer, counter=counter, taken=receipt.taken, code=receipt.code,
            reason=receipt.sentence, bytes=size,
        )  # fmt: skip


async def _frames(data: bytes, counter: int, signed: Signed, held: int) -> AsyncIterator[PutRollouts]:
    """A file from a byte on; the first frame says which it is."""
    view = memoryview(data)
    yield PutRollouts(
        data=view[held : held + FRAME], counter=counter, digest=signed.digest, signature=signed.signature,
        size=len(data), offset=held,
    )  # fmt: skip
    for start in range(held + FRAME, len(data), FRAME):
        yield PutRollouts(data=view[start : start + FRAME], offset=start)
