import time

import pytest

from protocol.directory.limits import CLOCK_TOLERANCE, MAX_REMEMBERED
from protocol.directory.records import Guard, dht_expiry
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from tests.protocol.directory.scene import RUN, Admission, admission, record

ME, OTHER, OPERATOR = (Identity.ephemeral(bytes([number]) * 32) for number in range(3))
SHELVES = {b"m": "members", b"n": "newcomers"}


@pytest.fixture
def guard() -> Guard:
    return Guard(SHELVES, time.time)


def test_a_record_of_its_peer_is_accepted(guard: Guard) -> None:
    mine = record(ME)
    assert guard.accepts(b"n", ME.peer_id, mine.raw, dht_expiry(mine.message))
    assert guard.refused == 0


def test_a_record_under_another_name_is_refused(guard: Guard) -> None:
    mine = record(ME)
    assert not guard.accepts(b"n", OTHER.peer_id, mine.raw, dht_expiry(mine.message))
    about_me = record(OTHER, peer=ME.peer_id)
    assert not guard.accepts(b"n", ME.peer_id, about_me.raw, dht_expiry(about_me.message))
    assert not guard.accepts(b"n", OTHER.peer_id, about_me.raw, dht_expiry(about_me.message))
    assert guard.refused == 3


@pytest.mark.parametrize("place", range(0, 300, 7))
def test_a_changed_byte_is_refused(guard: Guard, place: int) -> None:
    mine = record(ME)
    raw = bytearray(mine.raw)
    raw[place % len(raw)] ^= 1
    assert not guard.accepts(b"n", ME.peer_id, bytes(raw), dht_expiry(mine.message))


def test_an_old_record_cannot_be_kept_alive_by_a_later_expiry(guard: Guard) -> None:
    mine = record(ME)
    for shift in (-1, 1, 1e9, float("nan"), float("inf")):
        assert not guard.accepts(b"n", ME.peer_id, mine.raw, dht_expiry(mine.message) + shift)


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\xff" * 100, None, 7, "text", [b""]])
def test_what_is_no_record_is_refused(guard: Guard, raw: object) -> None:
    assert not guard.accepts(b"n", ME.peer_id, raw, time.time() + 600)


def test_another_message_is_refused(guard: Guard) -> None:
    raw = admission(ME, ME)
    assert not guard.accepts(b"n", ME.peer_id, raw, time.time() + 600)


def test_nothing_but_the_shelves_is_kept(guard: Guard) -> None:
    mine = record(ME)
    assert not guard.accepts(b"x", ME.peer_id, mine.raw, dht_expiry(mine.message))


@pytest.mark.parametrize(
    ("shelf", "run", "wrong"),
    [
        ("newcomers", None, {"lifetime": 601}),
        ("newcomers", None, {"lifetime": -1}),
        ("newcomers", None, {"lifetime": float("nan")}),
        ("newcomers", None, {"lifetime": float("inf")}),
        ("newcomers", None, {"ahead": CLOCK_TOLERANCE.total_seconds() + 300}),
        ("members", RUN, {"lifetime": 3601}),
        ("members", None, {}),
        ("members", RUN, {"run_said": "cd" * 32}),
    ],
)
def test_each_rule_is_applied(guard: Guard, shelf: str, run: None, wrong: dict[str, object]) -> None:
    fields = {"run" if key == "run_said" else key: value for key, value in wrong.items()}
    if "ahead" in fields:
        fields["now"] = time.time() + fields.pop("ahead")  # type: ignore[operator]
    said = fields.pop("run", None)
    sealed = record(ME, run=run, **fields)  # type: ignore[arg-type]
    if said is not None:
        changed = {**vars(sealed.message), "run": said}
        sealed = seal(ME, RUN, type(sealed.message)(**changed))
    with pytest.raises(NodeError) as caught:
        guard.check(sealed.raw, peer=ME.peer_id, shelf=shelf)
    assert caught.value.code is Code.DIR_RECORD


def test_an_addressed_record_is_refused(guard: Guard) -> None:
    sealed = seal(ME, None, record(ME).message, recipient=OTHER.peer_id, boot=bytes(16))
    with pytest.raises(NodeError, match="addressed"):
        guard.check(sealed.raw, peer=ME.peer_id, shelf="newcomers")


def test_a_record_stays_valid_as_time_goes_by() -> None:
    now = [1000.0]
    guard = Guard(SHELVES, lambda: now[0])
    mine = record(ME, now=1000.0)
    guard.check(mine.raw, peer=ME.peer_id, shelf="newcomers")
    now[0] = 1e6  # else a node would drop what an honest one sends; expiry is judged where records are read
    guard.check(mine.raw, peer=ME.peer_id, shelf="newcomers")


def test_an_admission_is_only_good_for_its_peer_from_its_operator_in_its_run(guard: Guard) -> None:
    guard.set_operator(OPERATOR.peer_id, Admission)
    good = record(ME, run=RUN, admission=admission(OPERATOR, ME))
    for _ in range(2):
        guard.check(good.raw, peer=ME.peer_id, shelf="members")
    elsewhere = seal(OPERATOR, None, Admission(peer=ME.peer_id)).raw
    for bad in (b"", admission(OTHER, ME), admission(OPERATOR, OTHER), elsewhere):
        with pytest.raises(NodeError):
            guard.check(record(ME, run=RUN, admission=bad).raw, peer=ME.peer_id, shelf="members")
    guard.set_operator(OTHER.peer_id, Admission)
    with pytest.raises(NodeError) as caught:
        guard.check(good.raw, peer=ME.peer_id, shelf="members")
    assert caught.value.code is Code.RND_NOT_ADMITTED


def test_addresses_are_remembered_within_bounds_and_only_a_peers_own(guard: Guard) -> None:
    for number in range(MAX_REMEMBERED + 5):
        guard.remember(f"peer-{number}", ("somewhere",))
    assert len(guard.addresses) == MAX_REMEMBERED
    for owner in (ME, OTHER):
        address = f"/ip4/10.0.0.1/tcp/1/p2p/{owner.peer_id}"
        guard.addresses.clear()
        mine = record(ME, multiaddrs=(address,))
        assert guard.accepts(b"n", ME.peer_id, mine.raw, dht_expiry(mine.message))
        assert (ME.peer_id in guard.addresses) is (owner is ME)
