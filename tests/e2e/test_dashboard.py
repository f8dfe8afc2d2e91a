"""The dashboard in a real browser: ``intellect-node coordinator --demo-data``, every page, light, dark and narrow."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from node.coordinator.demo_data import DemoRun
from node.coordinator.demo_site import ROUNDS
from tests.node.coordinator.browsing import (
    NARROW,
    PAGES,
    PATIENCE,
    chromium,
    low_contrast,
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
            console.error("seen"); }""")
        assert any("pale" in each for each in low_contrast(page))
        assert too_wide(page)
        assert problems == ["console: seen"]


def test_a_number_on_screen_changes_without_a_reload_and_its_age_is_counted(served: Served) -> None:
    with watched(served.browser, served.url) as (page, _):
        open_page(page, "/")
        dots = page.locator(".strip").inner_text()
        page.wait_for_function(
            "before => document.querySelector('.strip').innerText !== before", arg=dots, timeout=40_000
        )
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


def order(page: Page, button: str, reason: str, token: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()
    page.get_by_label("Reason, which everybody may read").fill(reason)
    page.get_by_label("Operator's token").fill(token)
    page.get_by_test_id("sure").click()


def test_a_node_is_banned_with_a_reason_leaves_and_stands_in_the_audit_log(served: Served) -> None:
    peer = DemoRun().peer(21)
    with watched(served.browser, served.url) as (page, problems):
        open_page(page, f"/peers/{peer}")
        order(page, "Ban", "It sends <u>noise</u>.", "wrong")
        expect(page.get_by_role("alert").filter(has_text="not the operator's token")).to_be_visible()
        page.get_by_label("Operator's token").fill(served.token)
        page.get_by_label("Reason, which everybody may read").fill("")
        page.get_by_test_id("sure").click()
        expect(page.get_by_role("alert").filter(has_text="needs a reason")).to_be_visible()
        page.get_by_label("Reason, which everybody may read").fill("It sends <u>noise</u>.")
        page.get_by_label("Operator's token").fill(served.token)
        page.get_by_test_id("sure").click()
        expect(page.get_by_text("ban was ordered")).to_be_visible()
        open_page(page, "/audit")
        row = page.locator("tbody tr", has_text="It sends <u>noise</u>.")
        expect(row).to_contain_text("banned: false → true")
        open_page(page, f"/peers/{peer}")
        expect(page.locator(".card", has_text="Standing").locator(".value").first).to_have_text(
            "banned", timeout=5 * PATIENCE
        )
        assert problems == []
