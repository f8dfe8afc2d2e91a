"""Alerts reach the operator's addresses: signed, once, and again until they are taken."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from node.coordinator.facts import Acted
from node.coordinator.service import Service
from node.coordinator.store import Store
from node.coordinator.webhooks import SIGNATURE, Hook, Webhooks, load_hooks
from protocol.errors import Code, NodeError
from tests.node.coordinator.sample import START, history, peer

SECRET = "sixteen characters or more"


class Address:
    """An address that answers as it is told, and remembers."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.news = asyncio.Event()
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        self.news.set()
        return web.Response(
            status=self.answers.pop(0) if self.answers else 204, headers={"Location": "/other"}
        )

    async def until(self, count: int) -> None:
        while len(self.got) < count:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 60)


@pytest.fixture
async def address() -> AsyncIterator[Address]:
    made = Address()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield made
    await runner.cleanup()


def banned(folder: Path) -> Service:
    """A run in which somebody has just been banned."""
    service = Service(Store(f"sqlite:///{folder / 'c.sqlite'}"), folder, clock=lambda: START + 170)
    service._begun = True
    ban = Acted(seen_at=START + 160, number=1, actor="op", action="ban", peer=peer(1), reason="sends noise")
    for fact in [*history(3), ban]:
        service.take(fact)
    service.fold_taken()
    return service


async def test_an_alert_is_told_once_and_again_until_it_is_taken(tmp_path: Path, address: Address) -> None:
    address.answers = [500, 503, 302]
    hooks = (Hook(address.url, SECRET), Hook(address.url, SECRET, ("stalled",)))
    webhooks = Webhooks(banned(tmp_path), hooks, first_again=0.01)
    async with aiohttp.ClientSession() as session:
        webhooks.look(session)
        await address.until(4)
        webhooks.look(session)
        await asyncio.gather(*webhooks._under_way)
    assert len(address.got) == 4, (
        "taken once; who wants other alerts hears nothing; a redirect is not followed"
    )
    assert len({headers["X-Intellect-Id"] for headers, _ in address.got}) == 1
    headers, body = address.got[-1]
    content = json.loads(body)
    assert content["alert"]["name"] == "ban" and "sends noise" in content["alert"]["sentence"]
    at, _, made = headers[SIGNATURE].partition(",v1=")
    expected = hmac.new(
        SECRET.encode(), at.removeprefix("t=").encode() + b"." + body, hashlib.sha256
    ).hexdigest()
    assert hmac.compare_digest(made, expected)


async def test_an_address_that_will_never_take_it_is_not_asked_again(
    tmp_path: Path, address: Address
) -> None:
    address.answers = [404]
    failed: list[str] = []
    webhooks = Webhooks(
        banned(tmp_path), (Hook(address.url, SECRET),), lambda url, why: failed.append(why), 0.01
    )
    async with aiohttp.ClientSession() as session:
        webhooks.look(session)
        await asyncio.gather(*webhooks._under_way)
    assert failed == ["it answered 404"] and len(address.got) == 1


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "7",
        '[{"url": "ftp://x", "secret": "sixteen characters or more"}]',
        '[{"url": "https://x", "secret": "short"}]',
    ],
)
def test_a_file_that_is_no_list_of_webhooks_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "w.json").write_text(text)
    with pytest.raises(NodeError) as caught:
        load_hooks(tmp_path / "w.json")
    assert caught.value.code == Code.CFG_BAD_VALUE


def test_webhooks_are_read_with_the_alerts_that_they_want(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(
        json.dumps([{"url": "https://x/y", "secret": SECRET, "alerts": ["ban"]}])
    )
    assert load_hooks(tmp_path / "w.json") == (Hook("https://x/y", SECRET, ("ban",)),)
    assert load_hooks(tmp_path / "none.json") == ()
