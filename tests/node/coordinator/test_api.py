"""The API: snapshot and changes, pages, the operator's actions, and what it refuses."""

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyarrow import parquet

from node.coordinator import service as service_module
from node.coordinator.actions import load_token
from node.coordinator.api.answers import exported
from node.coordinator.api.guard import Buckets, Guard
from node.coordinator.database import StoreError
from node.coordinator.view_json import applied, snapshot
from node.roles.wish import MAX_REASON
from protocol.identity import Identity
from tests.node.coordinator.sample import START, history, one_round, opening, peer, report
from tests.node.coordinator.site import TOKEN, Site, site

SOMEBODY = Identity.ephemeral(b"\7" * 32).peer_id


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(f"sqlite:///{tmp_path / 'c.sqlite'}", tmp_path) as found:
        yield found


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def sse(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    """Id, event and data of server-sent events."""
    held: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            held[name] = value
        elif "event" in held:
            yield held["id"], held["event"], json.loads(held["data"])
            held = {}


def test_who_takes_the_snapshot_and_the_changes_after_it_holds_the_view(here: Site) -> None:
    with here.client() as client, client.stream("GET", "/api/v1/deltas") as stream:
        events = sse(stream.iter_lines())
        _, event, begin = next(events)
        assert event == "begin"
        with here.client() as other:
            first = get(other, "snapshot", rounds=64)
        held, number = first["view"], first["number"]
        here.learn(history(3))
        while (
            held["tip"]["round"] != 2
            or "2" not in held["rounds"]
            or "applied" not in held["rounds"]["2"]["marks"].get(peer(2), {})
        ):
            identity, event, deltas = next(events)
            boot, _, at = identity.partition(".")
            assert (boot, event) == (begin["boot"], "deltas")
            if int(at) <= number:
                continue
            assert int(at) == number + 1, "no gap"
            number = int(at)
            for delta in deltas:
                applied(held, delta)
        with here.client() as other:
            while (last := get(other, "snapshot", rounds=64))["number"] != number:
                _, _, deltas = next(events)
                number += 1
                for delta in deltas:
                    applied(held, delta)
        assert held == last["view"] | {"sequence": 0} | {"sequence": held["sequence"]}


def test_a_client_that_comes_back_goes_on_where_it_stopped_and_one_from_before_begins_anew(
    here: Site,
) -> None:
    with here.client() as client:
        here.learn(opening())
        while get(client, "snapshot")["number"] == 0:
            time.sleep(0.01)
        now = get(client, "snapshot")
        with client.stream("GET", "/api/v1/deltas", params={"after": f"{now['boot']}.0"}) as stream:
            identity, event, _ = next(sse(stream.iter_lines()))
            assert (identity, event) == (f"{now['boot']}.1", "deltas")
        for unknown in (f"{now['boot']}.99999", "00000000.1"):
            with client.stream("GET", "/api/v1/deltas", headers={"Last-Event-ID": unknown}) as stream:
                assert next(sse(stream.iter_lines()))[1] == "begin"


def test_pages_follow_one_another_and_hold_everything_once(here: Site) -> None:
    here.learn(history(7))
    with here.client() as client:
        rounds, before = [], None
        while True:
            page = get(client, "rounds", limit=3, **({} if before is None else {"before": before}))
            rounds += [entry["round"] for entry in page["rounds"]]
            before = page["next"]
            if before is None:
                break
        assert rounds == [6, 5, 4, 3, 2, 1, 0]
        first = get(client, "credits", limit=10)
        rest = get(client, "credits", limit=100, after=first["next"])
        assert len(first["credits"]) + len(rest["credits"]) == 21 and rest["next"] is None
        assert get(client, "credits/totals")["totals"][0] == {
            "peer": peer(0),
            "verified": 7 * 18_000,
            "rounds": 7,
        }
        while len(get(client, "members")["members"]) < 3:
            time.sleep(0.01)
        assert [entry["peer"] for entry in get(client, "members", limit=2)["members"]] == [peer(0), peer(1)]
        assert get(client, "members", limit=2)["next"] == peer(1)
        assert len(get(client, "series")["points"]) == 7
        events = get(client, "events", kind="decided", limit=2)["events"]
        assert [entry["round"] for entry in events] == [6, 5]


def test_a_round_and_a_peer_have_pages_of_their_own(here: Site) -> None:
    here.learn(
        [
            *history(2),
            report(peer(0), 77, START + 130, "chunk.refused", peer=peer(1), reason="too long", round=1),
        ]
    )
    with here.client() as client:
        while get(client, "snapshot")["view"]["totals"]["refused"] != 1:
            time.sleep(0.01)
        assert get(client, "rounds/1")["outcome"] == "decided"
        assert get(client, "rounds/2")["outcome"] == "running"
        assert client.get("/api/v1/rounds/99").status_code == 404
        page = get(client, f"members/{peer(1)}")
        assert page["refusals"][0]["reason"] == "too long" and page["member"]["tally"]["refused"] == 1
        assert client.get("/api/v1/members/12D3KooWnobody").status_code == 404


def test_the_ledger_is_exported_for_spreadsheets_and_for_tables(here: Site) -> None:
    here.learn(history(4))
    with here.client() as client:
        lines = client.get("/api/v1/credits/export.csv").text.splitlines()
        assert lines[0] == "epoch,round,peer,at,claimed,verified,total,rounds" and len(lines) == 13
        table = parquet.read_table(io.BytesIO(client.get("/api/v1/credits/export.parquet").content))
        assert table.num_rows == 12 and max(table.column("total").to_pylist()) == 72_000
        assert client.get("/api/v1/credits/export.xlsx").status_code == 422


def test_an_answer_that_the_client_has_is_not_sent_again(here: Site) -> None:
    here.learn(history(1))
    with here.client() as client:
        for path in ("snapshot", "rounds", "credits"):
            while True:
                first = client.get(f"/api/v1/{path}")
                again = client.get(f"/api/v1/{path}", headers={"If-None-Match": first.headers["etag"]})
                if again.status_code == 304:
                    break
            assert again.content == b""


def test_an_action_needs_token_confirmation_and_reason_and_is_in_the_audit_log(here: Site) -> None:
    order = {"action": "ban", "peer": SOMEBODY, "reason": "sends noise", "confirm": True}
    with here.client() as stranger, here.client("wrong") as wrong, here.client(TOKEN) as operator:
        for client in (stranger, wrong):
            refused = client.post("/api/v1/actions", json=order)
            assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert stranger.post("/api/v1/actions", params={"token": TOKEN}, json=order).status_code == 401
        for change in (
            {"confirm": False}, {"reason": ""}, {"reason": "  "}, {"reason": "x" * (MAX_REASON + 1)}, {"peer": ""},
            {"peer": "12D3KooWnobody"}, {"action": "forgive"}, {"confirm": "yes"}, {"more": 1},
        ):  # fmt: skip
            assert operator.post("/api/v1/actions", json=order | change).status_code in (400, 422), change
        assert here.wishes == []
        done = operator.post("/api/v1/actions", json=order)
        assert done.status_code == 200 and done.json()["order"] == 1
        assert [wish.do for wish in here.wishes] == ["ban"]
        entry = get(stranger, "audit")["entries"][0]
        assert (entry["actor"], entry["action"], entry["peer"]) == ("operator", "ban", SOMEBODY)
        assert (entry["before"], entry["after"]) == ({"banned": False}, {"banned": True})
        assert entry["reason"] == "sends noise" and get(stranger, "audit")["broken"] is None


def test_a_form_of_another_site_can_order_nothing(here: Site) -> None:
    order = json.dumps({"action": "pause", "reason": "x", "confirm": True})
    with here.client(TOKEN) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = client.post("/api/v1/actions", content=order, headers={"Content-Type": kind})
            assert answer.status_code == 422
        assert here.wishes == []


def test_where_the_audit_log_cannot_be_written_nothing_is_done(here: Site) -> None:
    here.service.recorder.stuck = True
    with here.client(TOKEN) as client:
        refused = client.post("/api/v1/actions", json={"action": "pause", "reason": "x", "confirm": True})
    assert refused.status_code == 400 and here.wishes == []


def test_a_run_that_is_not_public_shows_nothing_without_the_token(tmp_path: Path) -> None:
    with (
        site(f"sqlite:///{tmp_path / 'c.sqlite'}", tmp_path, public=False) as here,
        here.client() as stranger,
        here.client(TOKEN) as operator,
    ):
        for path in ("snapshot", "members", "audit", "health", "deltas"):
            assert stranger.get(f"/api/v1/{path}").status_code == 401
        assert operator.get("/api/v1/snapshot").status_code == 200


def test_every_answer_carries_the_security_headers(here: Site) -> None:
    with here.client() as client:
        for path in ("/api/v1/health", "/api/v1/rounds/77", "/nowhere"):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"


def test_a_client_that_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    buckets = Buckets(rate=1e-3, burst=3)
    with (
        site(f"sqlite:///{tmp_path / 'c.sqlite'}", tmp_path, buckets=buckets) as here,
        here.client() as client,
    ):
        answers = [client.get("/api/v1/health") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert int(answers[3].headers["retry-after"]) > 900


def test_a_bucket_fills_again_and_strangers_do_not_fill_memory() -> None:
    now = [0.0]
    buckets = Buckets(rate=2, burst=2, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    assert buckets.take("b") == 0.0
    now[0] = 0.5
    assert buckets.take("a") == 0.0
    for each in range(10_000):
        buckets.take(str(each))
    assert len(buckets._held) == 4096


def test_a_body_beyond_the_limit_is_refused(here: Site) -> None:
    with here.client(TOKEN) as client:
        assert client.post("/api/v1/actions", content=b"x" * 100_000).status_code == 413

        def endless() -> Iterator[bytes]:
            for _ in range(100):
                yield b"x" * 10_000

        try:
            status = client.post("/api/v1/actions", content=endless()).status_code
        except httpx.HTTPError:
            status = 0
        assert status != 200


def test_while_the_database_is_gone_the_present_is_shown_with_a_banner(
    here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.learn(history(2))

    def gone(*words: Any, **more: Any) -> None:
        raise StoreError("The database cannot be used: it is gone")

    for name in ("append", "spilled", "round_texts", "audit", "credits", "newest"):
        monkeypatch.setattr(here.service.store, name, gone)
    with here.client() as client:
        here.service.take(next(iter(one_round(2)))).result(30)
        while not get(client, "health")["trouble"] or get(client, "snapshot")["view"]["tip"]["round"] != 1:
            time.sleep(0.01)
        verdict = get(client, "verdict")
        assert [alert["name"] for alert in verdict["alerts"]].count("database") == 1
        answer = client.get("/api/v1/rounds")
        assert answer.status_code == 503 and answer.headers["retry-after"]


def test_the_token_is_kept_for_its_owner_alone_and_stays(tmp_path: Path) -> None:
    token = load_token(tmp_path)
    assert len(token) > 40 and load_token(tmp_path) == token
    assert (tmp_path / "operator.token").stat().st_mode & 0o777 == 0o600


async def test_a_web_socket_of_another_sites_page_is_closed() -> None:
    said: list[Any] = []

    async def app(*words: Any) -> None:
        said.append("through")

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message["type"])

    guard = Guard(app)
    for origin in ("http://here:1", "http://evil"):
        headers = [(b"host", b"here:1"), (b"origin", origin.encode())]
        await guard({"type": "websocket", "headers": headers}, receive, send)
    assert said == ["through", "websocket.close"]


def test_an_earlier_time_is_replayed(here: Site) -> None:
    here.learn(history(3))
    with here.client() as client:
        then = get(client, "replay", at=START + 115)
        assert then["view"]["tip"]["round"] == 1 and then["times"] == [START, START + 172.2]
        assert snapshot(here.service.store.view(until=START + 115)) == then["view"]


def test_a_cell_that_a_spreadsheet_would_compute_is_quoted() -> None:
    rows = [{"peer": text, "n": -1} for text in ("=1+1", "@x", "plain")]
    lines = exported(rows, ("peer", "n"), "csv").decode().splitlines()
    assert lines == ["peer,n", "'=1+1,-1", "'@x,-1", "plain,-1"]


def test_changes_are_kept_for_who_comes_back_but_not_without_bounds(
    here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "KEPT_BYTES", 40_000)
    with here.client() as client:
        for number in range(12):
            here.learn(list(one_round(number)) if number else history(1))
            while get(client, "snapshot")["view"]["tip"]["round"] != number:
                pass
        held = here.service._batches
        assert held and sum(len(batch.body) for batch in held) == here.service._kept <= 40_000
        first = held[0].number
        assert first > 1
        now = get(client, "snapshot")
        for after, event in ((first - 2, "begin"), (first, "deltas")):
            with client.stream("GET", "/api/v1/deltas", params={"after": f"{now['boot']}.{after}"}) as stream:
                assert next(sse(stream.iter_lines()))[1] == event
