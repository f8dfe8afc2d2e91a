"""A coordinator's application over a real port, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from node.coordinator.actions import Actions
from node.coordinator.api.app import make_app
from node.coordinator.api.guard import Buckets
from node.coordinator.facts import Fact
from node.coordinator.service import Service
from node.coordinator.store import Store
from node.coordinator.web import Web
from node.roles.coordinator import Coordinator
from node.roles.wish import Done, Wish
from node.roles.wishes import carry_out as carried_out
from node.roles.wishes import listed
from protocol.units import Address

TOKEN = "a-token-that-only-tests-know"
PATIENCE = 60


@dataclass
class Site:
    """What a test needs of a running site."""

    service: Service
    url: str
    wishes: list[Wish] = field(default_factory=list)

    def client(self, token: str = "") -> httpx.Client:
        """A client, with the operator's token or without."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE)

    def learn(self, facts: list[Fact]) -> None:
        """Facts, durable when this returns."""
        for done in [self.service.take(fact) for fact in facts]:
            done.result(PATIENCE)


@contextmanager
def site(
    url: str, folder: Path, office: tuple[Coordinator, Any] | None = None, **options: Any
) -> Iterator[Site]:
    """A served application; every wish is noted, and carried out by the office, or granted where there is none."""
    service = Service(Store(url), folder)
    service.begin()
    found = Site(service, "")

    async def carry_out(wish: Wish) -> Done:
        found.wishes.append(wish)
        if office is not None:
            return carried_out(*office, wish)
        return Done(f"{wish.do} was ordered.", len(found.wishes))

    def what(name: str) -> list[dict[str, Any]]:
        return listed(office[0], name) if office is not None else []

    options.setdefault("buckets", Buckets(1e9, 1e9))
    app = make_app(service, Actions(service, TOKEN, carry_out, what), **options)
    web = Web(app, Address("127.0.0.1", 0))
    found.url = f"http://127.0.0.1:{web.start().port}"
    try:
        yield found
    finally:
        service.release()
        web.stop()
        service.end()
