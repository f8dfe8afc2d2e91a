"""A desk with everything real around it but the network: rows, files, the reader of strangers' files, signatures."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from diloco.rounds.values import Value
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.units import PeerId
from rl.orchestration.audits import Audits
from rl.orchestration.desk import Orchestrator, Outward
from rl.orchestration.events import AskVerdict, Give, Receipt
from rl.orchestration.folder import Folder
from rl.orchestration.rows import Opinion, Work
from rl.orchestration.rules import Rules
from rl.orchestration.store import Store
from rl.rollouts.files import write
from rl.rollouts.limits import Limits
from rl.rollouts.reading import Reader
from rl.rollouts.record import Group, Provenance, Rollout
from rl.validation.draw import Shares
from tests.rl.orchestration.world import first_value
from tests.rl.rollouts.making import ANA, TOM, provenance

RUN = "ab" * 32
VALIDATORS = frozenset({"v1", "v2", "v3"})
NOTHING_HIDDEN = Shares(twice=0.0, planted=0.0)
RULES = Rules(
    rounds=0, lease_size=4, window=2, group_size=2, groups_per_work=2, trusted_after=100, newcomer_positions=100,
    verdict_within=timedelta(seconds=5),
)  # fmt: skip


def made(work: Work, position: int, rewards: tuple[float, ...], length: int = 12) -> Group:
    """A group of short transcripts that a small model could have sampled."""
    rollouts = []
    for index, reward in enumerate(rewards):
        sampled = np.arange(length) >= 4
        chance = np.random.default_rng((position, index, work.version))
        rollouts.append(
            Rollout(
                position, index, chance.integers(1, 256, length, dtype=np.int32), sampled,
                np.where(sampled, -1.0, 0.0).astype(np.float32), np.where(sampled, work.version, -1).astype(np.int32),
                (b"p" * 258,), (work.version,), reward, "length",
            )
        )  # fmt: skip
    return Group(position, work.version, tuple(rollouts))


class Bench:
    """One trainer's desk over its lives."""

    def __init__(
        self,
        folder: Path,
        rules: Rules = RULES,
        budget: int = 2**24,
        *,
        shares: Shares = NOTHING_HIDDEN,
        me: Identity = TOM,
        trainers: tuple[Identity, ...] = (TOM,),
    ) -> None:
        self.path, self.rules, self.budget, self.shares, self.me = folder, rules, budget, shares, me
        self.now = 1000.0
        self.value: Value = first_value(tuple(sorted(each.peer_id for each in trainers)))
        self.told: list[Outward] = []
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.news = asyncio.Event()
        self.reader = Reader(Limits())
        self.desk: Orchestrator
        self.start()

    def start(self) -> None:
        """A new life on the same disk."""
        self.store = Store(self.path / "orchestrator.sqlite", RUN)
        self.folder = Folder(self.path / "rollouts", self.budget)
        self.desk = Orchestrator(
            self.me, self.rules, self.value, store=self.store, folder=self.folder, reader=self.reader,
            expected=self.expected, audits=Audits(b"k" * 32, RUN, self.shares), outward=self.told.append,
            emit=self.emit, clock=lambda: self.now,
        )  # fmt: skip
        self.desk.validators(VALIDATORS)
        self.desk.published(self.desk.state.policy)

    def emit(self, kind: str, /, **fields: object) -> None:
        self.log.append((kind, fields))
        self.news.set()
        self.news = asyncio.Event()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for each, fields in self.log if each == kind]

    async def until(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The count-th event of a kind."""
        while len(self.of(kind)) < count:
            await self.news.wait()
        return self.of(kind)[count - 1]

    def expected(self, work: Work) -> Provenance:
        """As a trainer does that has all versions up to the newest."""
        if work.version > self.desk.state.policy:
            raise NodeError(Code.RL_POLICY, f"Policy version {work.version} is not known here.")
        return provenance(
            worker=PeerId(work.worker), trainer=self.me.peer_id, counter=work.counter, version=work.version
        )

    def ask(self, worker: Identity = ANA) -> Work:
        given = self.desk.ask(
            worker.peer_id, tuple(w.counter for w in self.desk.state.works_of(worker.peer_id))
        )
        assert isinstance(given, Give), given
        return given.work

    def write(self, work: Work, rewards: tuple[float, ...] = (0.0, 1.0), **changes: Any) -> Path:
        """What a worker sends lies where it comes in."""
        path = self.folder.coming(work.worker, work.counter)
        groups = tuple(made(work, position, rewards) for position in work.positions)
        write(path, replace(self.expected(work), **changes), groups, ANA)
        return path

    async def answer(self, work: Work, rewards: tuple[float, ...] = (0.0, 1.0), **changes: Any) -> Receipt:
        assert self.desk.begin_upload(ANA.peer_id, work.counter, 10_000) is None
        self.write(work, rewards, **changes)
        return await self.desk.receive(ANA.peer_id, work.counter)

    def asked(self) -> AskVerdict:
        return [each for each in self.told if isinstance(each, AskVerdict)][-1]

    def asked_of(self, digest: bytes) -> str:
        """Who was asked about a file last."""
        return [e.validator for e in self.told if isinstance(e, AskVerdict) and e.digest == digest][-1]

    async def make(self, rewards: tuple[float, ...] = (0.0, 1.0)) -> bytes:
        """Work, answered and accepted."""
        receipt = await self.answer(self.ask(), rewards)
        assert receipt.taken, receipt
        asked = self.asked()
        self.desk.judged(asked.digest, Opinion(asked.validator, True))
        return asked.digest

    async def close(self) -> None:
        await self.reader.close()
        self.store.close()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """No row can be written."""
        self.store._db.execute("PRAGMA query_only = 1")
        yield
        self.store._db.execute("PRAGMA query_only = 0")
