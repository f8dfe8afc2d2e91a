"""A dashboard over demo data that goes on in real time: what ``intellect-node coordinator --demo-data`` serves."""

import asyncio
import heapq
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from node.coordinator.actions import Actions, load_token
from node.coordinator.api.app import make_app
from node.coordinator.database import database_url
from node.coordinator.demo_data import ROUND, DemoRun
from node.coordinator.facts import Fact
from node.coordinator.pages.all import mounted
from node.coordinator.service import Service
from node.coordinator.store import Store
from node.coordinator.web import Web
from node.roles.wish import Done, Wish
from protocol.units import Address

ROUNDS = 30
"""Decided rounds of the made-up run at the start."""

NOTICE = "▲ Demo data: everything on these pages is made up."
_STEP = 0.2


@dataclass
class Stage:
    """What happens live: facts in their time, and what the operator's orders do to them."""

    run: DemoRun
    number: int
    banned: set[str] = field(default_factory=set)
    orders: list[int] = field(default_factory=list)
    _waiting: list[tuple[float, int, Fact]] = field(default_factory=list)
    _count: int = 0

    def due(self, now: float) -> Iterator[Fact]:
        """The facts up to a time, each once."""
        while self.run.start + self.number * ROUND <= now:
            orders, self.orders = tuple(self.orders), []
            for fact in self.run.one_round(self.number, banned=frozenset(self.banned), orders=orders):
                self._count += 1
                heapq.heappush(self._waiting, (fact.seen_at, self._count, fact))
            self.number += 1
        while self._waiting and self._waiting[0][0] <= now:
            yield heapq.heappop(self._waiting)[2]

    async def carry_out(self, wish: Wish) -> Done:
        """What an order does to the made-up run: bans act from the next round on, the rest is only numbered."""
        if wish.do == "ban":
            self.banned.add(wish.peer)
        elif wish.do == "unban":
            self.banned.discard(wish.peer)
        number = int(time.time())
        self.orders.append(number)
        return Done(f"{wish.do} was ordered; it acts once a round's value names it.", number)


@contextmanager
def demo_site(
    listen: Address, members: int = 256, rounds: int = ROUNDS, seed: int = 7, live: bool = True,
    clock: Callable[[], float] = time.time, database: str = "", public: bool = True,
) -> Iterator[tuple[str, Service, str]]:  # fmt: skip
    """Serve demo data while the context lasts.

    Args:
        listen: Where.
        members: Of the made-up run.
        rounds: Decided before it begins.
        seed: Of the data.
        live: Whether rounds go on.
        clock: Unix seconds.
        database: As ``database_url``; empty for a file that is gone afterwards.
        public: Whether everybody may read.

    Yields:
        The address to open, the service, and the operator's token.
    """
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        folder = Path(name)
        run = DemoRun(members=members, seed=seed, start=clock() - rounds * ROUND - 4.0)
        service = Service(Store(database_url(database, folder)), folder, clock)
        service.begin()
        done = [service.take(fact) for fact in run.history(rounds)]
        service.fold_taken()
        for each in done[-1:]:
            each.result(300)
        stage, token = Stage(run, rounds), load_token(folder)
        actions = Actions(service, token, stage.carry_out, lambda what: [])
        for fact in stage.due(clock()):
            service.take(fact)

        async def play() -> None:
            while True:
                for fact in stage.due(clock()):
                    service.take(fact)
                await asyncio.sleep(_STEP)

        more = mounted(service, actions, NOTICE, play if live else None, public)
        app = make_app(service, actions, public=public, more=more)
        web = Web(app, listen)
        address = web.start()
        try:
            yield f"http://{address.host}:{address.port}", service, token
        finally:
            web.stop()
            service.end()


def serve_demo(listen: Address, database: str = "") -> int:
    """Serve demo data until the process is asked to end; prints the address and the operator's token."""
    with demo_site(listen, database=database) as (url, _, token):
        print(f"Dashboard: {url}", flush=True)
        print(f"Operator's token: {token}", flush=True)
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        ended.wait()
    return 0
