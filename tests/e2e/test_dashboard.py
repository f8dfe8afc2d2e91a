"""The dashboard in a real browser: ``intellect-node coordinator --demo-data``, every page, light, dark and narrow."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, expect

from node.coordinator.demo_data import DemoRun
from node.coordinator.demo_site import ROUNDS, demo_site
from protocol.units import Address
from tests.node.coordinator.browsing import (
    NARROW,
    PAGES,
    chromium,
    low_contrast,
    nameless,
    open_page,
    too_wide,
    watched,
    why_not,
)

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "Chromium is here")


@dataclass(frozen=True)
class Served:
    """A dashboard that is served by a process of its own."""

    url: str
    token: str
    browser: Browser


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    command = [sys.executable, "-m", "node", "coordinator", "--demo-data", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().removeprefix("Dashboard: ").strip()
            token = process.stdout.readline().removeprefix("Operator's token: ").strip()
            assert url.startswith("http://127.0.0.1:"), "the command said no address"
            with chromium() as browser:
                yield Served(url, token, browser)
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def where(path: str) -> str:
    return path.format(round=ROUNDS - 1, peer=DemoRun().peer(1))


@pytest.mark.parametrize(("dark", "width"), [(False, NARROW), (True, 1280)])
def test_every_page_is_drawn_without_an_error_fits_and_can_be_read(
    served: Served, dark: bool, width: int
) -> None:
    with watched(served.browser, served.url, dark, width) as (page, problems):
        for path in PAGES:
            open_page(page, where(path))
            assert too_wide(page) == [], path
            assert low_contrast(page) == [], path
            assert nameless(page) == [], path
            assert problems == [], path


def test_what_peers_write_is_shown_as_they_wrote_it_and_does_nothing(served: Served) -> None:
    run = DemoRun()
    with watched(served.browser, served.url) as (page, problems):
        for place, shown in (
            (1, "<b onmouseover=alert(1)>bold</b>"),
            (2, "<script>document.title='taken'</script>"),
            (3, "⟨202E⟩gnp.sselmrah⟨202C⟩"),
            (5, "{{ 7 * 7 }} ${7*7}"),
        ):
            open_page(page, f"/peers/{run.peer(place)}")
            expect(page.locator(".peer.value")).to_have_text(shown)
        open_page(page, "/members")
        expect(page.locator(".ag-row")).not_to_have_count(0)
        assert page.locator("b[onmouseover]").count() == 0
        assert "taken" not in page.title()
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.inner_text("body"))
        assert problems == []


def test_the_checks_see_what_they_look_for(served: Served) -> None:
    with watched(served.browser, served.url, width=NARROW) as (page, problems):
        open_page(page, "/operator")
        page.evaluate("""() => { const wide = document.createElement("p"); wide.textContent = "pale";
            wide.style = "width: 700px; color: #999; background: #fff"; document.querySelector("main").append(wide);
            const blank = document.createElement("button"); document.querySelector("#content").append(blank);
            console.error("seen"); }""")
        assert nameless(page)
        assert any("pale" in each for each in low_contrast(page))
        assert too_wide(page)
        assert problems == ["console: seen"]


def test_a_number_on_screen_changes_without_a_reload_and_its_age_is_counted(served: Served) -> None:
    with watched(served.browser, served.url) as (page, _):
        open_page(page, "/")
        dots = page.locator(".strip").inner_text()
        page.wait_for_function("before => document.querySelector('.strip').innerText !== before", arg=dots)
        expect(page.locator(".age").first).to_have_text(re.compile(r"as of \d+ s ago|as of \d+ min"))


def test_a_phase_says_who_is_not_through_it_by_keyboard_too(served: Served) -> None:
    with watched(served.browser, served.url) as (page, _):
        open_page(page, "/")
        apply = page.locator(".phase", has_text="Apply")
        apply.focus()
        page.keyboard.press("Enter")
        expect(apply).to_have_attribute("aria-expanded", "true")
        expect(
            page.get_by_role("region", name="Members that are not through the phase").locator("tbody tr")
        ).not_to_have_count(0)


def test_the_table_of_members_filters(served: Served) -> None:
    with watched(served.browser, served.url) as (page, _):
        open_page(page, "/members")
        expect(page.locator(".ag-row")).not_to_have_count(0)
        page.get_by_label("Search all columns").fill("heron-007")
        expect(page.locator(".ag-center-cols-container .ag-row")).to_have_count(1)


def test_the_keyboard_alone_reaches_the_content_an_action_and_its_way_out(served: Served) -> None:
    with watched(served.browser, served.url, width=NARROW) as (page, problems):
        open_page(page, "/operator")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="To the content")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Pause")).to_be_focused()
        page.keyboard.press("Enter")
        reason = page.get_by_label("Reason, which everybody may read")
        expect(page.get_by_label("From this round on; empty for at once")).to_be_focused()
        assert too_wide(page) == [] and low_contrast(page) == []
        page.keyboard.press("Tab")
        page.keyboard.type("a new release")
        expect(reason).to_have_value("a new release")
        page.keyboard.press("Escape")
        expect(reason).to_have_count(0)
        assert problems == []


def test_the_run_is_played_from_its_events_and_the_log_is_filtered(served: Served) -> None:
    with watched(served.browser, served.url) as (page, problems):
        open_page(page, "/events")
        slider = page.get_by_label("Time, from the first event to now")
        slider.evaluate("each => { each.value = 500; each.dispatchEvent(new Event('change')); }")
        then = page.get_by_role("region", name="The run then")
        expect(then).to_contain_text("Rounds decided")
        expect(page.get_by_test_id("time")).to_have_text(re.compile(r"\d+ min \d+ s ago"))
        before = then.inner_text()
        page.get_by_label("Speed").select_option("60")
        page.get_by_role("button", name="▶ Play").click()
        page.wait_for_function(
            "before => document.querySelector('[aria-label=\"The run then\"]').innerText !== before",
            arg=before,
        )
        page.get_by_role("button", name="⏸ Pause").click()
        page.wait_for_function("each => Number(each.value) > 500", arg=slider.element_handle())
        page.get_by_role("button", name="Newest").click()
        page.get_by_label("Kind").select_option("verdict")
        kinds = page.get_by_role("region", name="Events").locator("tbody tr td:nth-child(4)")
        expect(kinds.filter(has_text="verdict").first).to_be_visible()
        expect(kinds.filter(has_not_text="verdict")).to_have_count(0)
        page.get_by_label("Kind").select_option("")
        page.get_by_label("Only of this node").fill("heron-007")
        about = page.get_by_role("region", name="Events").locator("tbody tr td:nth-child(3)")
        expect(about.filter(has_text="heron-007").first).to_be_visible()
        expect(about.filter(has_not_text="heron-007")).to_have_count(0)
        assert problems == []


def test_a_run_that_is_not_public_is_read_by_who_has_the_token_and_orders_need_it_again(
    served: Served,
) -> None:
    with demo_site(Address("127.0.0.1", 0), members=12, rounds=2, public=False) as (url, _, token):
        order = {"action": "pause", "reason": "x", "confirm": True}
        with watched(served.browser, url, width=NARROW) as (page, problems):
            page.goto("/audit")
            expect(page.get_by_role("heading")).to_have_text("This run is not public")
            assert page.request.get("/api/v1/snapshot").status == page.request.get("/metrics").status == 401
            assert too_wide(page) == [] and low_contrast(page) == []
            page.get_by_label("Operator's token").fill("wrong")
            page.get_by_role("button", name="Enter").click()
            expect(page.get_by_role("alert")).to_contain_text("not the operator's token")
            page.get_by_label("Operator's token").fill(token)
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name="Audit log")).to_be_visible()
            problems[:] = [each for each in problems if "401" not in each]  # what was refused before
            open_page(page, "/")
            assert page.request.get("/api/v1/credits/export.csv").ok
            assert page.request.post("/api/v1/actions", data=order).status == 401
            (cookie,) = page.context.cookies()
            assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and token not in cookie["value"]
            assert problems == []
        with watched(served.browser, url) as (page, _):
            page.context.add_cookies([{"name": "reader", "value": "made-up", "url": url}])
            page.goto("/")
            expect(page.get_by_role("heading")).to_have_text("This run is not public")
