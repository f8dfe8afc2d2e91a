"""Members in one process over real gRPC, with real disks; only the workers are scripted."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from diloco.architecture import initial_parameters, layout_of
from diloco.config import (
    DeadlineSection,
    InnerSection,
    ModelSection,
    OuterSection,
    RoundSection,
    RunSection,
    RunSections,
)
from diloco.creation import grid_of, initial_state
from diloco.data.corpus import Corpus
from diloco.digest import state_digest
from diloco.genesis import CorpusFile, Genesis
from diloco.layout import Grid
from diloco.member.admission import Admission, admit, seats
from diloco.member.member import Member
from diloco.member.setting import Outcome, Setting, codec_of, rules_of, timing_of
from diloco.outer_state import OuterState
from diloco.rounds import founding
from diloco.rounds.certificate import Certified
from diloco.rounds.leases import cut, samples_of, spans_of
from diloco.rounds.records import Start
from diloco.rounds.roster import included
from diloco.rounds.values import Lease, Span, Value, value_digest
from protocol.envelope import Sealed, seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.messages import encode
from protocol.rpc import Endpoint
from protocol.tls import make_certificate
from protocol.trust import Trust
from protocol.units import Bytes, PeerId

OPERATOR = Identity.ephemeral(b"o" * 32)

Gradient = Callable[[int, int, OuterState], np.ndarray]
"""(member number, round, state) -> pseudo-gradient."""


def tiny_genesis(rounds: int = 4, **changes: Any) -> Genesis:
    """A genesis with a model of some thousand parameters; nothing of its corpus is ever read."""
    seconds = {
        "ready_floor": "1 s",
        "attempt": "3 s",
        "progress": "1 s",
        "heartbeat": "250 ms",
        "silence": "2 s",
    }
    sections = RunSections(
        run=RunSection(rounds=rounds),
        model=ModelSection(
            **{
                "hidden": 8,
                "layers": 1,
                "heads": 2,
                "kv_heads": 1,
                "intermediate": 8,
                "vocab": 260,
                "context": 8,
                **changes.pop("model", {}),
            }
        ),
        inner=InnerSection(batch=2),
        outer=OuterSection(**changes.pop("outer", {})),
        round=RoundSection(
            **{"inner_steps": 4, "chunk": 256, "checkpoint_every": 2, **changes.pop("round", {})}
        ),
        deadline=DeadlineSection(**{**seconds, **changes.pop("deadline", {})}),
    )
    layout = layout_of(sections.model)
    params = initial_parameters(sections.model, sections.run.seed)
    grid = Grid(layout.size, sections.round.chunk)
    digest = "0" * 64
    return Genesis(
        sections=sections,
        operator_root=OPERATOR.peer_id,
        parameters=layout.size,
        layout_digest=layout.digest.hex(),
        initial_digest=state_digest(0, params, np.zeros_like(params), grid).hex(),
        tokenizer="{}",
        files=(
            CorpusFile(name="a", size=1, digest=digest, part="train"),
            CorpusFile(name="b", size=1, digest=digest, part="validation"),
        ),
    )


class ScriptedTrainer:
    """Workers that write a given pseudo-gradient instead of training."""

    def __init__(self, number: int, state: OuterState, gradient: Gradient, step: float = 0.01) -> None:
        self.number, self.state, self.gradient, self.step_time = number, state, gradient, step
        self.trained: list[tuple[int, int, int]] = []
        self.rates: dict[int, float] = {}
        self.loss: Callable[[int], float] = lambda round_number: 1.0
        self.gate: Callable[[int, int], asyncio.Event | None] = lambda round_number, step: None
        self.most = 10**9  # samples until the time of a round is over
        self._stop = asyncio.Event()

    async def train(
        self,
        lease: Lease,
        round_number: int,
        *,
        done: int,
        lr: float,
        on_step: Callable[[int, float, int], None],
    ) -> Outcome:
        self.rates[round_number] = lr
        self._stop.clear()
        samples, loss = 0, self.loss(round_number)
        while done + samples < min(samples_of(lease), self.most):
            gate = self.gate(round_number, (done + samples) // 2)
            if gate is not None:
                await _either(gate, self._stop)
            if self._stop.is_set():
                break
            await asyncio.sleep(self.step_time)
            samples += 2
            on_step(samples // 2 - 1, loss, 16)
        self.state.gradient[:] = self.gradient(self.number, round_number, self.state)
        used = cut(cut(spans_of(lease), done)[1], samples)[0]
        self.trained += [(round_number, span.start, span.count) for span in used]
        return Outcome(samples, samples * 8, samples // 2, loss, bool(np.isfinite(loss)))

    def request_stop(self) -> None:
        self._stop.set()

    async def evaluate(self) -> float:
        return 1.0


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class Wire(Endpoint):
    """An endpoint whose links the fleet can cut: a cut peer is silent, a killed one's port refuses."""

    post_of: "Post"

    def _check(self, peer: PeerId) -> None:
        fleet, here = self.post_of.fleet, self.post_of
        there = next((post for post in fleet.posts if post.peer == peer), None)
        if here.killed or (there is not None and there.killed):
            raise NodeError(Code.NET_UNREACHABLE, "The port refuses connections.", peer=peer)
        if there is not None and fleet.cut(here, there):
            raise NodeError(Code.NET_TIMEOUT, "Nothing comes back.", peer=peer)

    async def send(self, peer: PeerId, message: Any, *, timeout: timedelta | None = None) -> None:
        self._check(peer)
        await super().send(peer, message, timeout=timeout)

    async def post(self, peer: PeerId, sealed: Sealed[Any], *, timeout: timedelta | None = None) -> None:
        self._check(peer)
        await super().post(peer, sealed, timeout=timeout)

    async def request(self, peer: PeerId, request: Any, *, timeout: timedelta | None = None) -> Any:
        self._check(peer)
        return await super().request(peer, request, timeout=timeout)

    async def stream(
        self, peer: PeerId, request: Any, *, progress: timedelta | None = None
    ) -> AsyncGenerator[Any, None]:
        self._check(peer)
        async with contextlib.aclosing(super().stream(peer, request, progress=progress)) as frames:
            async for frame in frames:
                self._check(peer)
                yield frame


class Post:
    """One member with its endpoint, folder and event list; can be killed and started again."""

    def __init__(self, fleet: "Fleet", number: int, folder: Path) -> None:
        self.fleet, self.number, self.folder = fleet, number, folder
        self.identity = Identity.ephemeral(bytes([number]) * 32)
        self.peer = self.identity.peer_id
        self.trust = Trust()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.boots = 0
        self.seated = True
        self.task: asyncio.Task[None] | None = None
        self.killed = False
        self.hooks: list[Callable[[str, dict[str, Any]], None]] = []
        self.trained: list[tuple[int, int, int]] = []
        self.paths: dict[int, np.ndarray] = {}

    def build(self) -> None:
        genesis = self.fleet.genesis
        self.boots += 1
        boot = bytes([self.number, self.boots]) * 8
        self.tls = make_certificate(self.peer)
        self.endpoint = Wire(
            self.identity, self.tls, self.trust, run=genesis.run_id, boot=boot,
            upload=self.fleet.slow.get(self.number, self.fleet.upload),
            audience=lambda peer, audience: True,
        )  # fmt: skip
        self.endpoint.post_of = self
        admission = Admission(peer=self.peer, roles=("trainer",), seat=self.seated)
        setting = Setting(
            genesis=genesis,
            run=genesis.run_id,
            rules=rules_of(genesis, seats(genesis.run_id, genesis.operator)),
            timing=timing_of(genesis),
            grid=grid_of(genesis),
            codec=codec_of(genesis),
            endpoint=self.endpoint,
            folder=self.folder,
            peers=lambda: [
                post.peer
                for post in self.fleet.posts
                if post.peer != self.peer and self.fleet.knows(self, post)
            ],
            admission=admit(OPERATOR, genesis.run_id, admission),
            emit=self.emit,
            corpus=self.fleet.corpus,
        )
        self.state = initial_state(genesis, self.fleet.corpus)
        self.trainer = ScriptedTrainer(self.number, self.state, self.fleet.gradient, self.fleet.step)
        self.trainer.trained = self.trained
        self.fleet.prepare(self)
        self.member = Member(setting, self.state, self.trainer)

    def emit(self, kind: str, /, **fields: Any) -> None:
        if self.killed:
            return
        self.events.append((kind, {**fields, "t": time.monotonic()}))
        if kind == "apply":
            self.paths[fields["round"]] = self.state.params.copy()
        for hook in list(self.hooks):
            hook(kind, fields)

    def on(self, kind: str, action: Callable[[], None], **where: Any) -> None:
        """Do something once, at the first event of a kind whose fields are these (or pass these tests)."""

        def hook(name: str, fields: dict[str, Any]) -> None:
            if name != kind or hook not in self.hooks:
                return
            for key, wanted in where.items():
                if not (wanted(fields[key]) if callable(wanted) else fields[key] == wanted):
                    return
            self.hooks.remove(hook)
            action()

        self.hooks.append(hook)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == kind]

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.build()
        await self.endpoint.start()
        for other in self.fleet.posts:
            if (
                other is not self
                and getattr(other, "endpoint", None) is not None
                and other.endpoint.address is not None
            ):
                other.trust.learn(self.peer, self.tls.certificate_pem, (self.endpoint.address,))
                self.trust.learn(other.peer, other.tls.certificate_pem, (other.endpoint.address,))
        if self.fleet.started:
            self.run()

    def run(self) -> None:
        self.task = asyncio.ensure_future(self.member.run())

    def die(self) -> None:
        """From this moment on nothing comes from it and nothing reaches it; ``kill`` cleans up."""
        if not self.killed:
            self.killed = True
            self.fleet.dying.append(asyncio.ensure_future(self.kill()))

    async def kill(self) -> None:
        """End it without a goodbye, as a killed process would: sockets close, nothing is written."""
        self.killed = True
        self.hooks.clear()
        task, self.task = self.task, None
        await self.endpoint.stop()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.member.ledger.close()
            self.state.close()

    async def restart(self) -> None:
        """Start it again on the same folder."""
        await asyncio.gather(*self.fleet.dying)
        self.killed = False
        await self.start()

    @property
    def alive(self) -> bool:
        return self.task is not None and not self.task.done() and not self.killed

    @property
    def round(self) -> int:
        return -1 if self.member.state is None else self.member.state.round

    def digests(self) -> dict[int, str]:
        return {fields["round"]: fields["digest"] for fields in self.of("apply")}


class Fleet:
    """Several posts that know one another."""

    def __init__(
        self,
        folder: Path,
        genesis: Genesis,
        gradient: Gradient,
        *,
        upload: Bytes | None = None,
        slow: Mapping[int, Bytes] | None = None,
        step: float = 0.01,
    ) -> None:
        self.folder, self.genesis, self.gradient = folder, genesis, gradient
        self.upload, self.step = upload, step
        self.slow = slow or {}
        self.posts: list[Post] = []
        self.started = False
        self.knows: Callable[[Post, Post], bool] = lambda a, b: True
        self.cut: Callable[[Post, Post], bool] = lambda a, b: False
        self.prepare: Callable[[Post], None] = lambda post: None
        self.corpus: Corpus | None = None
        self.dying: list[asyncio.Future[None]] = []

    def by(self, peer: str) -> Post:
        return next(post for post in self.posts if post.peer == peer)

    async def add(self, *, seated: bool = True) -> Post:
        number = len(self.posts) + 1
        post = Post(self, number, self.folder / f"node-{number}")
        post.seated = seated
        self.posts.append(post)
        await post.start()
        return post

    def begin(self, wanted: Callable[[Value], bool] = lambda value: True) -> Value:
        """Write the first start record that is as wanted, with everyone who is there, and let all run."""
        rules = self.posts[0].member.setting.rules
        peers = {post.peer: post.seated for post in self.posts}
        boots = {post.peer: post.endpoint.boot for post in self.posts}
        base = self.genesis.base
        values = (founding.make_start(rules, base, peers, boots, bytes([n]) * 32) for n in range(256))
        value = next(value for value in values if wanted(value))
        data = encode(value)
        sealed = seal(OPERATOR, self.genesis.run_id, Start(value=data))
        start = Certified(value, data, value_digest(data), start=sealed.raw)
        self.posts[0].member.found(start)
        self.started = True
        for post in self.posts:
            post.run()
        return value

    async def until(self, condition: Callable[[], bool], seconds: float = 150.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                for post in self.posts:
                    if post.task is not None and post.task.done() and not post.task.cancelled():
                        post.task.result()
                await asyncio.sleep(0.01)

    def living(self) -> list[Post]:
        return [post for post in self.posts if post.alive]

    async def all_finished(self, seconds: float = 150.0) -> None:
        await self.until(lambda: all(post.of("run.finished") for post in self.living()), seconds)

    def check_equal(self) -> None:
        """Every round's digest is the same on all members that applied it."""
        seen: dict[int, str] = {}
        for post in self.posts:
            for number, digest in post.digests().items():
                assert seen.setdefault(number, digest) == digest, (
                    f"member {post.number} differs in round {number}"
                )

    def chain(self) -> list[Certified]:
        """The longest chain of a living member, the start record first."""
        return max((list(post.member.ledger.after(0, -2)) for post in self.living()), key=len)

    def check_books(self) -> set[int]:
        """No sample position is lost, none is certified twice, and who is credited trained it; what was certified."""
        chain, taken = self.chain(), set[int]()
        for before, after in pairwise(chain):
            leases = {lease.peer: lease for lease in before.value.leases}
            for position, entry in enumerate(after.value.roster):
                if not any(included(chunk, position) for chunk in after.value.chunks):
                    continue
                span = positions(cut(spans_of(leases[entry.peer]), entry.samples)[0])
                assert not span & taken, f"positions of round {after.value.round} are in committed work twice"
                done = {
                    p for _, first, count in self.by(entry.peer).trained for p in range(first, first + count)
                }
                assert span <= done, f"{entry.peer} is credited for what it did not train on"
                taken |= span
        last = chain[-1].value
        kept = positions([*(s for lease in last.leases for s in spans_of(lease)), *last.returned])
        assert taken | kept == set(range(last.cursor)), "a sample position is lost"
        assert not taken & kept, "a committed position would be trained on again"
        return taken


def positions(spans: Iterable[Span]) -> set[int]:
    return {p for span in spans for p in range(span.start, span.start + span.count)}


@contextlib.asynccontextmanager
async def fleet(
    folder: Path,
    count: int,
    gradient: Gradient,
    genesis: Genesis | None = None,
    *,
    begin: bool = True,
    **options: Any,
) -> AsyncIterator[Fleet]:
    """A fleet of ``count`` members that has begun, unless it is told to wait."""
    crowd = Fleet(folder, genesis or tiny_genesis(), gradient, **options)
    try:
        for _ in range(count):
            await crowd.add()
        if begin:
            crowd.begin()
        yield crowd
    finally:
        await asyncio.gather(*crowd.dying, *(post.kill() for post in crowd.posts))


def names(posts: Sequence[Post]) -> set[PeerId]:
    return {post.peer for post in posts}


def heavy_tailed(number: int, round_number: int, state: OuterState) -> np.ndarray:
    """Student-t with three degrees of freedom, another one for each member and round."""
    random = np.random.default_rng((number, round_number))
    return (random.standard_t(3, state.layout.size) * 1e-3).astype(np.float32)
