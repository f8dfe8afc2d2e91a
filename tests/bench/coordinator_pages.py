"""The dashboard of 256 members with 10,000 rounds of history, in a real browser: how soon it can be used and keeps up.

The server is the real one, in this process. The browser begins without a cache each time. An event is a member's word
that its contribution is ready, while nothing else happens; it is on screen when the phase strip counts it. Processor
time is the server's, with 10 open pages, while a round of five minutes is learned in 30 s.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Page

from node.coordinator.api.app import make_app
from node.coordinator.api.guard import Buckets
from node.coordinator.pages.all import mounted
from node.coordinator.service import Service
from node.coordinator.store import Store
from node.coordinator.web import Web
from protocol.units import Address
from tests.bench.coordinator import HISTORY, MEMBERS, VIEWERS, fill, processor
from tests.bench.measurement import Measurement
from tests.node.coordinator.browsing import chromium, open_page, watched
from tests.node.coordinator.sample import START, history, one_round, peer, report
from tests.node.coordinator.site import Site

TIMES = 7
_THROUGH = """() => [...document.querySelectorAll(".phase")].find((e) => e.innerText.startsWith("Ready")).innerText
    .match(/(\\d+) of/)[1]"""


def run() -> Measurement:
    """Measure; takes about two minutes."""
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as here, ExitStack() as stack:
        browser = stack.enter_context(chromium())
        first = []
        for _ in range(TIMES):
            with watched(browser, here.url) as (page, _):
                began = time.perf_counter()
                open_page(page, "/")
                page.wait_for_function("() => window.socket?.connected")
                first.append(time.perf_counter() - began)
        page, _ = stack.enter_context(watched(browser, here.url))
        open_page(page, "/")
        late = [on_screen(here, page, place) for place in range(TIMES)]
        for _ in range(VIEWERS - 1):
            open_page(stack.enter_context(watched(browser, here.url))[0], "/")
        figures = {
            "first_page_s": statistics.median(first),
            "update_median_s": statistics.median(late),
            "update_slowest_s": max(late),
            "percent_of_a_core_with_10_pages_at_10_times_the_pace": busy(here),
        }
    return Measurement(figures=figures)


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    """The pages of a run whose database has a long history, and whose present is after three rounds."""
    service = Service(Store(f"sqlite:///{folder / 'c.sqlite'}"), folder)
    service.begin()
    here = Site(service, "")
    here.learn(history(3, MEMBERS))
    service.fold_taken()
    fill(here)
    app = make_app(service, more=mounted(service), buckets=Buckets(1e9, 1e9))
    web = Web(app, Address("127.0.0.1", 0))
    here.url = f"http://127.0.0.1:{web.start().port}"
    try:
        yield here
    finally:
        service.release()
        web.stop()
        service.end()


def on_screen(here: Site, page: Page, place: int) -> float:
    """Seconds from an event until a page shows it."""
    before = page.evaluate(_THROUGH)
    time.sleep(0.37 * place)  # at another place between two pictures each time
    began = time.perf_counter()
    here.service.take(report(peer(place), 1000 + place, START + 181.0, "ready.sent", round=3, attempt=0))
    page.wait_for_function(f"before => ({_THROUGH})() !== before", arg=before)
    return time.perf_counter() - began


def busy(here: Site) -> float:
    """The server's processor time while a round is learned, in percent of a core."""
    facts = list(one_round(HISTORY, MEMBERS))
    before, began = processor(), time.perf_counter()
    for place in range(60):
        for fact in facts[place * len(facts) // 60 : (place + 1) * len(facts) // 60]:
            here.service.take(fact)
        time.sleep(0.5)
    return 100 * (processor() - before) / (time.perf_counter() - began)
