"""A coordinator over real daemons, in a real browser: it shows rounds, bans with a reason, is killed, loses nothing.

One run for all tests, each of which goes on where the one before it stopped: `office` makes it and trains nothing,
`ada`, `bob` and `cyd` train; ada serves a dashboard too, without the operator's key.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.cluster import RUN, Cluster, Daemon, cluster, command, free_port, settings
from tests.e2e.remains import PATIENCE
from tests.node.coordinator.browsing import (
    NARROW,
    chromium,
    low_contrast,
    open_page,
    too_wide,
    watched,
    why_not,
)
from tests.repository import documents

OPEN = settings(RUN, {"start_members = 3": 'start_members = 3\nstart_within = "10 min"'})
TRAINERS = ("ada", "bob", "cyd")

browsed = pytest.mark.skipif(bool(why_not()), reason=why_not() or "Chromium is here")


class Dashboard:
    """The API of a node that serves the dashboard."""

    def __init__(self, node: Daemon, since: int = 0) -> None:
        self.node = node
        self.url = str(node.wait("dashboard.ready", since=since)["url"])
        token = node.folder / "coordinator" / "operator.token"
        self.token = token.read_text().strip() if token.exists() else ""
        self.client = httpx.Client(base_url=f"{self.url}/api/v1", timeout=PATIENCE)
        self.operator = {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def until(self, path: str, holds: Callable[[Any], bool], **query: Any) -> Any:
        """What a path shows once something holds for it."""
        deadline = time.monotonic() + PATIENCE
        while not holds(found := self.get(path, **query)):
            assert time.monotonic() < deadline, f"{str(found)[:3000]}\n{self.node.last_words()}"
            time.sleep(0.1)
        return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("coordinator")) as made:
        office = made.add("office", run=OPEN)
        office.start("coordinator", "--listen", f"127.0.0.1:{free_port()}")
        made.add("ada", run=OPEN).start("run", "--join", office.address, "--dashboard", "127.0.0.1:0")
        for name in ("bob", "cyd"):
            made.add(name, run=OPEN).start("run", "--join", office.address)
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def shown_round(page: Page) -> int:
    """The round under way by the overview."""
    return int(re.search(r"Round (\d+)", page.locator("#content").inner_text())[1])  # type: ignore[index]


def wait_for_round(page: Page, number: int) -> None:
    """Wait until the overview shows a round of at least that number, without loading the page again."""
    page.wait_for_function(
        "n => Number((document.querySelector('#content')?.innerText.match(/Round (\\d+), epoch/) || [])[1]) >= n",
        arg=number,
    )  # fmt: skip


def test_rounds_are_seen_with_what_every_member_did_in_them(run: Cluster) -> None:
    shown = Dashboard(run["office"])
    peers = {name: run[name].peer for name in TRAINERS}

    def all_contributed(answer: Any) -> bool:
        members = answer["view"]["members"]
        return all(members.get(peer, {}).get("tally", {}).get("accepted", 0) > 1 for peer in peers.values())

    view = shown.until("/snapshot", all_contributed)["view"]
    assert {view["members"][peer]["who"]["name"] for peer in peers.values()} == set(peers)
    assert run["office"].peer not in view["tip"]["electorate"], "who trains nothing has no vote"

    def whole(page: Any) -> list[Any]:
        wanted = {"compute", "computed", "ready", "applied"}
        return [
            each for each in page["rounds"][1:]
            if len(each["roster"]) == 3 and all(wanted <= set(each["marks"].get(peer, ())) for peer in peers.values())
        ]  # fmt: skip

    entry = whole(shown.until("/rounds", lambda page: bool(whole(page))))[0]
    assert len(set(entry["states"].values())) == 1 and entry["voters"] and entry["losses"]
    agreement = shown.until("/snapshot", lambda answer: answer["view"]["agreement"]["agree"] == 3)["view"][
        "agreement"
    ]
    assert agreement["dissenters"] == [] and agreement["first_divergent"] == -1
    assert shown.get("/verdict")["line"]["level"] in ("good", "attention")
    totals = {each["peer"]: each["verified"] for each in shown.get("/credits/totals")["totals"]}
    assert set(peers.values()) <= set(totals) and all(totals.values())


def test_a_member_without_the_key_shows_the_same_run_and_takes_no_orders(run: Cluster) -> None:
    shown = Dashboard(run["ada"])
    assert not shown.token
    shown.until("/rounds", lambda page: any(len(each["roster"]) == 3 for each in page["rounds"]))
    order = {"action": "pause", "reason": "mine", "confirm": True}
    answer = shown.client.post("/actions", json=order, headers=Dashboard(run["office"]).operator)
    assert answer.status_code == 404


@browsed
def test_a_round_is_watched_in_a_browser(run: Cluster, browser: Browser) -> None:
    with watched(browser, Dashboard(run["office"]).url) as (page, problems):
        open_page(page, "/")
        first = shown_round(page)
        wait_for_round(page, first + 1)
        expect(page.locator(".verdict .sentence")).to_contain_text("of 3 members")
        expect(page.locator("#content")).to_contain_text("All agree after round")
        open_page(page, "/members")
        for name in TRAINERS:
            expect(page.locator(".ag-row", has_text=name)).to_be_visible()
        for name in TRAINERS:
            run[name].wait("peer.round-trips", lambda event: len(event["seconds"]) >= 2)
        open_page(page, "/network")
        for name in TRAINERS:
            row = page.get_by_role("region", name="Round trips among members").locator(
                "tr", has_text=f"{name} ("
            )
            expect(row).to_contain_text(re.compile(r"\d"))
        open_page(page, f"/rounds/{first}")
        for name in TRAINERS:
            expect(page.locator(".ag-row", has_text=name)).to_contain_text("✔ accepted")
        assert problems == []


@browsed
def test_a_node_is_banned_with_a_reason_leaves_and_stands_in_the_audit_log(
    run: Cluster, browser: Browser
) -> None:
    shown, cyd = Dashboard(run["office"]), run["cyd"]
    order = {"action": "ban", "peer": cyd.peer, "reason": "It sends <u>noise</u>.", "confirm": True}
    assert shown.client.post("/actions", json=order).status_code == 401
    with watched(browser, shown.url) as (page, problems):
        frames, asked = list[str](), list[Any]()
        page.on("websocket", lambda socket: socket.on("framesent", lambda said: frames.append(str(said))))
        page.on("request", lambda request: asked.append(request))
        open_page(page, f"/peers/{cyd.peer}")
        page.get_by_role("button", name="Ban", exact=True).click()
        sure, alert = page.get_by_test_id("sure"), page.locator(".ask [role=alert]")
        for token, reason, sentence in (
            ("wrong", order["reason"], "not the operator's token"),
            (shown.token, " ", "needs a reason"),
        ):
            page.get_by_label("Operator's token").fill(token)
            page.get_by_label("Reason, which everybody may read").fill(reason)
            sure.click()
            expect(alert).to_contain_text(sentence)
            expect(page.get_by_label("Operator's token")).to_have_value("")
        problems[:] = [each for each in problems if "401" not in each]  # the wrong token's
        page.get_by_label("Operator's token").fill(shown.token)
        page.get_by_label("Reason, which everybody may read").fill(order["reason"])
        sure.click()
        expect(page.locator(".q-notification", has_text="Order ")).to_be_visible()
        sent = [each for each in asked if each.header_value("authorization") == f"Bearer {shown.token}"]
        assert [each.method for each in sent] == ["POST"], "the token travels once, in a header"
        assert frames and not any(shown.token in each for each in (*frames, *(each.url for each in asked)))
        assert shown.token not in run["office"].said() + (run["office"].folder / "events.jsonl").read_text()
        assert cyd.ended() != 0
        expect(page.locator(".card", has_text="Standing").locator(".value").first).to_have_text("banned")
        open_page(page, "/audit")
        row = page.locator("tbody tr", has_text="It sends <u>noise</u>.")
        expect(row).to_contain_text("banned: false → true")
        expect(row).to_contain_text("taken up by round")
        assert problems == []
    entry = shown.get("/audit")["entries"][0]
    assert (entry["peer"], entry["reason"]) == (cyd.peer, order["reason"])


def test_orders_of_the_command_line_stand_in_the_audit_log_too(run: Cluster) -> None:
    shown, cyd = Dashboard(run["office"]), run["cyd"]
    ended = command("admin", "unban", cyd.peer, "--reason", "it was repaired", "--dir", run["office"].folder)
    assert ended.status == 0, ended.err
    entry = shown.until("/audit", lambda page: page["entries"][0]["action"] == "unban")["entries"][0]
    assert (entry["actor"], entry["reason"]) == ("command line", "it was repaired")


def order(page: Page, shown: Dashboard, button: str, reason: str, **fields: str) -> None:
    """Order something in the dialog that a button opens."""
    page.get_by_role("button", name=button, exact=True).click()
    for label, value in {"Reason, which everybody may read": reason, **fields}.items():
        page.get_by_label(label).fill(value)
    page.get_by_label("Operator's token").fill(shown.token)
    page.get_by_test_id("sure").click()


@browsed
def test_invitations_are_made_and_ended_and_orders_wait_on_a_page(run: Cluster, browser: Browser) -> None:
    shown = Dashboard(run["office"])
    with watched(browser, shown.url, width=NARROW) as (page, problems):
        frames = list[str]()
        page.on("websocket", lambda socket: socket.on("framesent", lambda said: frames.append(str(said))))
        open_page(page, "/operator")
        order(
            page, shown, "Invite", "they asked", **{"For whom": "the lab", "How many peers it lets in": "3"}
        )
        expect(page.locator(".ask output")).to_contain_text("Its token, shown only now: ")
        token = page.locator(".ask output").inner_text().rpartition(" ")[2]
        assert len(token) > 20 and frames and not any(token in each for each in frames)
        assert low_contrast(page) == [] and too_wide(page) == []
        page.locator(".ask").get_by_role("button", name="Close").click()
        expect(page.locator(".ask")).to_have_count(0)
        row = page.get_by_role("region", name="Invitations").locator("tbody tr").first
        expect(row).to_contain_text("0 of 3")
        order(page, shown, "End", "they are here")
        expect(row).to_contain_text("closed")
        order(page, shown, "Pause", "later", **{"From this round on; empty for at once": "90000"})
        waiting = page.get_by_role("region", name="Orders that wait").locator("tbody tr")
        expect(waiting).to_contain_text("from round 90000")
        order(page, shown, "Drop", "never mind")
        expect(waiting).to_have_count(0)
        assert problems == []


@browsed
def test_a_killed_coordinator_goes_on_where_it_stopped_and_nothing_is_lost(
    run: Cluster, browser: Browser
) -> None:
    office, ada = run["office"], run["ada"]
    shown = Dashboard(office)
    before, audit = shown.get("/credits/totals")["totals"], shown.get("/audit")["entries"]
    rounds = {each["round"]: each["digest"] for each in shown.get("/rounds", limit=500)["rounds"]}
    with watched(browser, shown.url) as (page, _):
        open_page(page, "/")
        os.kill(office.pid, signal.SIGKILL)
        office.ended()
        place, since = ada.mark(), office.mark()
        newest = int(ada.wait("commit", since=place)["round"])  # rounds go on
        office.start("coordinator", "--listen", shown.url.removeprefix("http://"), "--join", ada.address)
        again = Dashboard(office, since)
        assert again.url == shown.url and again.token == shown.token
        wait_for_round(page, newest + 2)  # the page that was open comes back by itself
        open_page(page, "/audit")
        for entry in audit:
            expect(page.locator("tbody tr", has_text=entry["reason"])).to_be_visible()
        expect(page.locator("#content")).to_contain_text("none was altered")
    assert again.get("/audit")["entries"] == audit and again.get("/audit")["broken"] is None
    found = again.until(
        "/rounds", lambda page: page["rounds"] and page["rounds"][0]["round"] > newest + 1, limit=500
    )
    numbers = [each["round"] for each in found["rounds"]]
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1)), "no round is missing"
    assert {each["round"]: each["digest"] for each in found["rounds"]}.items() >= rounds.items()
    after = {each["peer"]: each["verified"] for each in again.get("/credits/totals")["totals"]}
    assert all(after[each["peer"]] >= each["verified"] for each in before)
    done = again.client.post(
        "/actions", json={"action": "pause", "reason": "it is late", "confirm": True}, headers=again.operator
    )
    assert done.status_code == 200, done.text
    again.until("/snapshot", lambda answer: answer["view"]["tip"]["paused"])


STARTED = {"coordinator", "init", "run", "join"}
"""Commands of the operator's page that the run of these tests was begun with, or test_dashboard.py begins with."""


def test_every_command_of_the_operators_page_does_what_it_says(run: Cluster, tmp_path: Path) -> None:
    office, cyd, text = run["office"], run["cyd"].peer, documents.page("docs/operator.md")
    shown, wanted = Dashboard(office), list(documents.commands(text, "intellect-node"))
    for words in wanted:
        if words[0] in ("admin", "status"):
            given = [cyd if word == "PEER" else word for word in words]
            ended = command(*given, "--dir", office.folder)
            assert ended.status == 0, (words, ended.err)
    for words in documents.commands(text, "curl"):
        given = [word.replace("http://127.0.0.1:8080", shown.url) for word in words]
        given = [re.sub(r"\$\(cat [^)]*\)", shown.token, word) for word in given]
        answer = json.loads(subprocess.run(["curl", "-sf", *given], check=True, capture_output=True).stdout)
        assert answer["action"] == "pause" and answer["order"] > 0
    newest = shown.until("/audit", lambda found: found["entries"][0]["reason"] == "a new release")
    copy = tmp_path / "backup"
    for words in [*wanted, *documents.commands(text, "cp")]:
        given = [
            {"runs/my-run-coordinator": str(office.folder), "backup": str(copy)}.get(word, word)
            for word in words
        ]
        if words[0] == "stop":
            assert command(*given).status == 0
            assert office.ended() == 0
        elif words[0] == "-a":
            subprocess.run(["cp", *given], check=True)
    with sqlite3.connect(copy / "coordinator" / "coordinator.sqlite") as kept:
        ((count,),) = kept.execute("SELECT count(*) FROM audit")
    assert count == newest["entries"][0]["number"]
    assert {words[0] for words in wanted} <= STARTED | {"admin", "status", "stop"}


def test_a_dashboards_address_that_is_taken_or_none_is_refused(tmp_path: Path, run: Cluster) -> None:
    command("init", run["ada"].file, "--dir", tmp_path / "x", "--dashboard", "nowhere").refused("E-CFG-006")
