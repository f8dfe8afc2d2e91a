"""Members in one process over real gRPC, with real disks; only the workers are scripted."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diloco.architecture import layout_of
from diloco.config import (
    DeadlineSection,
    InnerSection,
    ModelSection,
    OuterSection,
    RoundSection,
    RunSection,
    RunSections,
)
from diloco.creation import _initial, grid_of, initial_state
from diloco.genesis import CorpusFile, Genesis
from diloco.member.admission import Admission, admit, seats
from diloco.member.member import Member
from diloco.member.setting import Outcome, Setting, codec_of, rules_of, timing_of
from diloco.outer_state import OuterState
from diloco.rounds import planning
from diloco.rounds.certificate import Certified
from diloco.rounds.statements import Lease, Start
from protocol.envelope import seal
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
        model=ModelSection(hidden=8, layers=1, heads=2, kv_heads=1, intermediate=8, vocab=260, context=8),
        inner=InnerSection(batch=2),
        outer=OuterSection(**changes.pop("outer", {})),
        round=RoundSection(inner_steps=4, chunk=256, checkpoint_every=2, **changes.pop("round", {})),
        deadline=DeadlineSection(**{**seconds, **changes.pop("deadline", {})}),
    )
    layout = layout_of(sections.model)
    digest = "0" * 64
    return Genesis(
        sections=sections,
        operator_root=OPERATOR.peer_id,
        parameters=layout.size,
        layout_digest=layout.digest.hex(),
        initial_digest=_initial(sections)[1].hex(),
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
        self.loss = 1.0
        self._stop = False

    async def train(
        self, lease: Lease, round_number: int, *, done: int, on_step: Callable[[int, float, int], None]
    ) -> Outcome:
        self._stop = False
        samples = 0
        while done + samples < lease.count:
            await asyncio.sleep(self.step_time)
            samples += 2
            on_step(samples // 2 - 1, self.loss, 16)
            if self._stop:
                break
        self.state.gradient[:] = self.gradient(self.number, round_number, self.state)
        self.trained.append((round_number, lease.start + done, samples))
        return Outcome(samples, samples * 8, samples // 2, self.loss, bool(np.isfinite(self.loss)))

    def request_stop(self) -> None:
        self._stop = True

    async def evaluate(self) -> float:
        return 1.0


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

    def build(self) -> None:
        genesis = self.fleet.genesis
        self.boots += 1
        boot = bytes([self.number, self.boots]) * 8
        self.tls = make_certificate(self.peer)
        self.endpoint = Endpoint(
            self.identity, self.tls, self.trust, run=genesis.run_id, boot=boot, upload=self.fleet.upload,
            audience=lambda peer, audience: True,
        )  # fmt: skip
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
        )
        self.state = initial_state(genesis)
        self.trainer = ScriptedTrainer(self.number, self.state, self.fleet.gradient, self.fleet.step)
        self.member = Member(setting, self.state, self.trainer)

    def emit(self, kind: str, /, **fields: Any) -> None:
        self.events.append((kind, {**fields, "t": time.monotonic()}))

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

    async def kill(self) -> None:
        """End it without a goodbye, as a killed process would: sockets close, nothing is written."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.endpoint.stop()
        self.task = None

    @property
    def alive(self) -> bool:
        return self.task is not None and not self.task.done()

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
        step: float = 0.01,
    ) -> None:
        self.folder, self.genesis, self.gradient = folder, genesis, gradient
        self.upload, self.step = upload, step
        self.posts: list[Post] = []
        self.started = False
        self.knows: Callable[[Post, Post], bool] = lambda a, b: True

    async def add(self, *, seated: bool = True) -> Post:
        number = len(self.posts) + 1
        post = Post(self, number, self.folder / f"node-{number}")
        post.seated = seated
        self.posts.append(post)
        await post.start()
        return post

    def begin(self) -> None:
        """Write the start record with everyone who is there, and let all run."""
        rules = self.posts[0].member.setting.rules
        value = planning.make_start(
            rules, self.genesis.base, {p.peer: p.seated for p in self.posts}, b"\5" * 32
        )
        data = encode(value)
        sealed = seal(OPERATOR, self.genesis.run_id, Start(value=data))
        start = Certified(value, data, planning.value_digest(data), start=sealed.raw)
        self.posts[0].member.found(start)
        self.started = True
        for post in self.posts:
            post.run()

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                for post in self.posts:
                    if post.task is not None and post.task.done() and not post.task.cancelled():
                        post.task.result()
                await asyncio.sleep(0.02)

    def living(self) -> list[Post]:
        return [post for post in self.posts if post.alive]

    async def all_finished(self, seconds: float = 60.0) -> None:
        await self.until(lambda: all(post.of("run.finished") for post in self.living()), seconds)

    def check_equal(self) -> None:
        """Every round's digest is the same on all members that applied it."""
        seen: dict[int, str] = {}
        for post in self.posts:
            for number, digest in post.digests().items():
                assert seen.setdefault(number, digest) == digest, (
                    f"member {post.number} differs in round {number}"
                )


@contextlib.asynccontextmanager
async def fleet(
    folder: Path, count: int, gradient: Gradient, genesis: Genesis | None = None, **options: Any
) -> AsyncIterator[Fleet]:
    """A fleet of ``count`` members that has begun."""
    crowd = Fleet(folder, genesis or tiny_genesis(), gradient, **options)
    try:
        for _ in range(count):
            await crowd.add()
        crowd.begin()
        yield crowd
    finally:
        for post in crowd.living():
            await post.kill()
        for post in crowd.posts:
            await post.endpoint.stop()


def names(posts: Sequence[Post]) -> set[PeerId]:
    return {post.peer for post in posts}
