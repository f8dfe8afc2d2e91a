"""A dashboard over real daemons: it sees rounds, bans with a reason, survives being killed, and loses nothing."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.cluster import RUN, Cluster, Daemon, cluster, command, settings
from tests.e2e.remains import PATIENCE

OPEN = settings(RUN, {"start_members = 3": "start_members = 2"})


class Dashboard:
    """The API of a node that serves the dashboard."""

    def __init__(self, node: Daemon, since: int = 0) -> None:
        self.node = node
        url = node.wait("dashboard.ready", since=since)["url"]
        token = (node.folder / "coordinator" / "operator.token").read_text().strip()
        self.client = httpx.Client(base_url=f"{url}/api/v1", timeout=PATIENCE)
        self.operator = {"Authorization": f"Bearer {token}"}

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
    folder = tmp_path_factory.mktemp("coordinator")
    with cluster(folder) as made:
        first = made.add("ada", run=OPEN)
        first.start("init", "--dashboard", "127.0.0.1:0")
        for name in ("bob", "cyd"):
            made.add(name, run=OPEN).start("run", "--join", first.address)
        yield made


def test_rounds_are_seen_with_what_every_member_did_in_them(run: Cluster) -> None:
    shown = Dashboard(run["ada"])
    peers = {name: run[name].peer for name in ("ada", "bob", "cyd")}

    def all_contributed(answer: Any) -> bool:
        members = answer["view"]["members"]
        return all(members.get(peer, {}).get("tally", {}).get("accepted", 0) > 1 for peer in peers.values())

    view = shown.until("/snapshot", all_contributed)["view"]
    assert {view["members"][peer]["who"]["name"] for peer in peers.values()} == set(peers)
    decided = shown.until(
        "/rounds", lambda page: any(len(each["roster"]) == 3 for each in page["rounds"][1:])
    )
    entry = next(each for each in decided["rounds"][1:] if len(each["roster"]) == 3)
    for peer in peers.values():
        assert {"compute", "computed", "ready", "applied"} <= set(entry["marks"][peer])
    assert len(set(entry["states"].values())) == 1 and entry["voters"] and entry["losses"]
    agreement = shown.until("/snapshot", lambda answer: answer["view"]["agreement"]["agree"] == 3)["view"][
        "agreement"
    ]
    assert agreement["dissenters"] == [] and agreement["first_divergent"] == -1
    assert shown.get("/verdict")["line"]["level"] in ("good", "attention")
    totals = {each["peer"]: each["verified"] for each in shown.get("/credits/totals")["totals"]}
    assert set(peers.values()) <= set(totals) and all(totals.values())


def test_a_node_is_banned_with_a_reason_leaves_and_stands_in_the_audit_log(run: Cluster) -> None:
    shown, cyd = Dashboard(run["ada"]), run["cyd"]
    order = {"action": "ban", "peer": cyd.peer, "reason": "sends noise", "confirm": True}
    assert shown.client.post("/actions", json=order).status_code == 401
    done = shown.client.post("/actions", json=order, headers=shown.operator)
    assert done.status_code == 200, done.text
    assert cyd.ended() != 0
    shown.until("/snapshot", lambda answer: answer["view"]["members"][cyd.peer]["standing"] == "banned")
    taken = shown.until("/snapshot", lambda answer: answer["view"]["actions"][-1]["taken_up"] >= 0)
    entry = shown.get("/audit")["entries"][0]
    assert (entry["peer"], entry["reason"], entry["order"]) == (cyd.peer, "sends noise", done.json()["order"])
    assert taken["view"]["actions"][-1]["number"] == entry["number"]


def test_orders_of_the_command_line_stand_in_the_audit_log_too(run: Cluster) -> None:
    shown = Dashboard(run["ada"])
    ended = command(
        "admin", "unban", run["cyd"].peer, "--reason", "it was repaired", "--dir", run["ada"].folder
    )
    assert ended.status == 0, ended.err
    entry = shown.until("/audit", lambda page: page["entries"][0]["action"] == "unban")["entries"][0]
    assert (entry["actor"], entry["reason"]) == ("command line", "it was repaired")


def test_a_killed_coordinator_goes_on_where_it_stopped_and_nothing_is_lost(run: Cluster) -> None:
    ada, bob = run["ada"], run["bob"]
    shown = Dashboard(ada)
    before, audit = shown.get("/credits/totals")["totals"], shown.get("/audit")["entries"]
    rounds = {each["round"]: each["digest"] for each in shown.get("/rounds", limit=500)["rounds"]}
    os.kill(ada.pid, signal.SIGKILL)
    ada.ended()
    since = ada.mark()
    ada.start("run", "--dashboard", "127.0.0.1:0", "--join", bob.address)
    again = Dashboard(ada, since)
    assert again.get("/audit")["entries"] == audit and again.get("/audit")["broken"] is None
    newest = max(rounds)
    page = again.until(
        "/rounds", lambda page: page["rounds"] and page["rounds"][0]["round"] > newest + 1, limit=500
    )
    numbers = [each["round"] for each in page["rounds"]]
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1)), "no round is missing"
    assert {each["round"]: each["digest"] for each in page["rounds"]}.items() >= rounds.items()
    after = {each["peer"]: each["verified"] for each in again.get("/credits/totals")["totals"]}
    assert all(after[each["peer"]] >= each["verified"] for each in before)


def test_a_dashboards_address_that_is_taken_or_none_is_refused(tmp_path: Path, run: Cluster) -> None:
    file = run["ada"].file
    command("init", file, "--dir", tmp_path / "x", "--dashboard", "nowhere").refused("E-CFG-006")


def test_a_coordinator_that_trains_nothing_makes_a_run_admits_orders_and_may_be_killed(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path) as made:
        office = made.add("office", run=OPEN)
        office.start("coordinator", "--listen", "127.0.0.1:0")
        for name in ("ada", "bob"):
            made.add(name, run=OPEN).start("run", "--join", office.address)
        shown, ada, bob = Dashboard(office), made["ada"], made["bob"]
        ada.contributed(bob.peer)
        view = shown.until("/snapshot", lambda answer: answer["view"]["tip"]["round"] > 0)["view"]
        assert set(view["tip"]["electorate"]) == {ada.peer, bob.peer}, "who trains nothing has no seat"
        page = shown.until("/rounds", lambda page: any(len(each["marks"]) >= 2 for each in page["rounds"]))
        assert page["rounds"]
        os.kill(office.pid, signal.SIGKILL)
        office.ended()
        place, since = ada.mark(), office.mark()
        ada.wait("commit", since=place)  # rounds go on
        office.start("coordinator", "--listen", "127.0.0.1:0", "--join", ada.address)
        again = Dashboard(office, since)
        order = {"action": "pause", "reason": "it is late", "confirm": True}
        done = again.client.post("/actions", json=order, headers=again.operator)
        assert done.status_code == 200, done.text
        again.until("/snapshot", lambda answer: answer["view"]["tip"]["paused"])
        refused = again.client.post("/actions", json=order | {"action": "reset"}, headers=again.operator)
        assert refused.status_code == 400 and "no outer state" in refused.text
