"""What the operator does over HTTP with the node that has the key: invitations, bans that end, orders that wait."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from diloco.member.admission import seats
from diloco.member.setting import rules_of
from node.roles.coordinator import Coordinator
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from tests.diloco.member.fleet import OPERATOR, tiny_genesis
from tests.node.coordinator.site import TOKEN, Site, site

SOMEBODY = Identity.ephemeral(b"\7" * 32).peer_id
API = "/api/v1"


class Voters:
    """They take nothing up."""

    order_number = 0

    def __init__(self) -> None:
        self.orders: list[Any] = []

    def give_order(self, sealed: Any) -> None:
        """Note an order."""
        self.orders.append(sealed.message)


@pytest.fixture
def office(tmp_path: Path) -> Coordinator:
    genesis = tiny_genesis()
    network: Any = SimpleNamespace(
        banned=frozenset(), members={}, newcomers={}, me=OPERATOR.peer_id, roles=()
    )
    return Coordinator(
        OPERATOR, genesis, rules_of(genesis, seats(genesis.run_id, genesis.operator)), network, lambda: None,
        lambda kind, **fields: None, lambda: 1_000.0, tmp_path / "invited.json",
    )  # fmt: skip


@pytest.fixture
def voters() -> Voters:
    return Voters()


@pytest.fixture
def here(tmp_path: Path, office: Coordinator, voters: Voters) -> Iterator[Site]:
    with site(f"sqlite:///{tmp_path / 'c.sqlite'}", tmp_path, office=(office, voters)) as found:
        yield found


def done(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_invitation_is_made_listed_used_and_ended_and_its_token_is_shown_once(
    here: Site, office: Coordinator
) -> None:
    wanted = {"uses": 2, "seconds": 60, "note": "the lab", "reason": "they asked"}
    with here.client(TOKEN) as operator, here.client() as stranger:
        made = done(operator.post(f"{API}/invitations", json=wanted))
        assert made["number"] == 1 and len(made["token"]) > 20
        office.tokens.redeem(made["token"], SOMEBODY, office.now())
        (entry,) = done(operator.get(f"{API}/invitations"))["invitations"]
        assert entry == {
            "number": 1, "note": "the lab", "uses": 2, "used": [SOMEBODY], "expires_at": 1_060.0, "open": True,
        }  # fmt: skip
        done(operator.delete(f"{API}/invitations/1", params={"reason": "enough"}))
        assert not done(operator.get(f"{API}/invitations"))["invitations"][0]["open"]
        with pytest.raises(NodeError) as refused:
            office.tokens.redeem(made["token"], OPERATOR.peer_id, office.now())
        assert refused.value.code == Code.RND_NOT_ADMITTED
        audit = stranger.get(f"{API}/audit").text
        assert "they asked" in audit and "enough" in audit and made["token"] not in audit
        assert operator.delete(f"{API}/invitations/9", params={"reason": "x"}).status_code == 400
        for change in ({"uses": 0}, {"uses": 10**6}, {"seconds": 0}, {"reason": " "}, {"more": 1}):
            assert operator.post(f"{API}/invitations", json=wanted | change).status_code == 422, change
        for answer in (
            stranger.get(f"{API}/invitations"), stranger.post(f"{API}/invitations", json=wanted),
            stranger.delete(f"{API}/invitations/1", params={"reason": "x"}), stranger.get(f"{API}/planned"),
        ):  # fmt: skip
            assert answer.status_code == 401


def test_a_ban_may_end_by_itself_and_an_order_may_wait_for_its_round(here: Site, voters: Voters) -> None:
    ban = {"action": "ban", "peer": SOMEBODY, "reason": "noise", "confirm": True, "seconds": 3600}
    pause = {"action": "pause", "reason": "a release", "confirm": True, "round": 12}
    with here.client(TOKEN) as operator:
        entry = done(operator.post(f"{API}/actions", json=ban))
        assert entry["after"] == {"banned": True, "for seconds": 3600} and entry["order"] == 1
        entry = done(operator.post(f"{API}/actions", json=pause))
        assert entry["order"] == 0 and entry["after"] == {"paused": True, "from round": 12}
        assert [order.kind for order in voters.orders] == ["ban"]
        waiting = done(operator.get(f"{API}/planned"))["planned"]
        assert [(each["action"], each["at"], each["round"]) for each in waiting] == [
            ("unban", 4_600.0, -1), ("pause", 0.0, 12),
        ]  # fmt: skip
        drop = {"action": "drop", "value": str(entry["waits"]), "reason": "no release", "confirm": True}
        done(operator.post(f"{API}/actions", json=drop))
        assert [each["action"] for each in done(operator.get(f"{API}/planned"))["planned"]] == ["unban"]
        for change in ({"seconds": -1}, {"seconds": 10**10}, {"round": 2**60}, {"seconds": True}):
            assert operator.post(f"{API}/actions", json=ban | change).status_code == 422, change
        assert operator.post(f"{API}/actions", json=pause | {"seconds": 60}).status_code == 400
