"""Wall clocks that agree: a node whose machine is an hour off, liars, and clocks that are set while nodes run."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import field, message, request
from protocol.clock import PeerClock, difference
from protocol.directory.limits import CLOCK_TOLERANCE
from protocol.directory.records import Guard, PeerRecord, dht_expiry
from protocol.envelope import Sealed, seal
from protocol.rpc import Context
from protocol.testing import Host
from protocol.testing.fixtures import swarm, swarm_seed, virtual
from protocol.testing.swarm import Swarm

__all__ = ["swarm", "swarm_seed"]

HOUR = 3600.0


class Watch:
    """A machine's two clocks."""

    def __init__(self, wrong_by: float = 0.0) -> None:
        self.true, self.wrong_by = 1_800_000_000.0, wrong_by

    def clock(self) -> PeerClock:
        return PeerClock(lambda: self.true + self.wrong_by, ticks=lambda: self.true - 1e9)


def ahead(clock: PeerClock, other: PeerClock) -> float:
    return other.now() - clock.now()


def test_a_newcomer_adopts_the_median_of_those_who_are_there_and_warns() -> None:
    right = [Watch(error).clock() for error in (-2.0, 0.0, 3.0)]
    newcomer = Watch(HOUR).clock()
    newcomer.agree(ahead(newcomer, each) for each in right)
    assert newcomer.now() == right[1].now()
    assert newcomer.wrong_by == HOUR
    assert newcomer.warning is not None and "60 min ahead" in newcomer.warning
    assert right[1].warning is None


def test_who_is_there_does_not_follow_a_newcomer() -> None:
    founder, newcomer = Watch().clock(), Watch(-HOUR).clock()
    founder.found()
    newcomer.agree([ahead(newcomer, founder)])
    before = founder.now()
    for _ in range(10):
        founder.agree([ahead(founder, newcomer)])
        newcomer.agree([ahead(newcomer, founder)])
    assert founder.now() == newcomer.now() == before


def test_nobody_to_hear_changes_nothing() -> None:
    clock = Watch(5.0).clock()
    before = clock.now()
    assert clock.agree([]) == 0.0
    assert clock.now() == before


@given(
    honest=st.lists(st.floats(-5, 5), min_size=2, max_size=8),
    lies=st.lists(st.floats(-1e9, 1e9), max_size=7),
)
def test_a_minority_of_liars_moves_a_clock_no_further_than_an_honest_peer_would(
    honest: list[float], lies: list[float]
) -> None:
    clock = Watch().clock()
    clock.found()
    shift = clock.agree([*honest, *lies[: len(honest)]])  # with itself the honest are one more
    assert min(0.0, *honest) <= shift <= max(0.0, *honest)


def test_setting_the_machines_clock_while_the_node_runs_changes_nothing_but_the_warning() -> None:
    watch = Watch(HOUR)
    clock = watch.clock()
    clock.agree([-HOUR])
    watch.true += 10.0
    before = clock.now()
    watch.wrong_by = 0.0
    assert clock.now() == before == watch.true
    assert clock.warning is None


@pytest.mark.parametrize(
    ("wrong_by", "words"), [(-31.0, "31 s behind"), (-9000.0, "2.5 h behind"), (29.0, None)]
)
def test_a_warning_names_the_difference(wrong_by: float, words: str | None) -> None:
    clock = Watch(wrong_by).clock()
    clock.agree([-wrong_by])
    assert clock.warning is None if words is None else words in str(clock.warning)


# --- the same among nodes ---------------------------------------------------------------------------------------


@message("clock-test.time", version=1, max_bytes="64 B", rate="100/s", audience="anyone")
class Time:
    now: float = field(1)


@request("clock-test.ask-time", version=1, max_bytes="64 B", rate="100/s", timeout="5 s", replies=Time)
class AskTime: ...


class TimeKeeper:
    """A node that tells its time, and keeps records by it."""

    def __init__(self, node: Host) -> None:
        self.node = node
        self.clock = PeerClock(node.wall, ticks=node.monotonic)
        self.guard = Guard({b"key": "members"}, self.clock.now, verifier=node.swarm.verifier)
        node.handle(self.on_ask_time)

    async def on_ask_time(self, message: AskTime, context: Context) -> Time:
        return Time(self.clock.now())

    async def agree(self, others: "list[TimeKeeper]") -> None:
        heard = []
        for other in others:
            asked = self.clock.now()
            answer = await self.node.request(other.node.peer_id, AskTime())
            heard.append(difference(answer.now, asked, self.clock.now()))
        self.clock.agree(heard)

    def record(self) -> Sealed[PeerRecord]:
        now, me = self.clock.now(), self.node.peer_id
        run = self.node.endpoint.run
        said = PeerRecord(peer=me, run=str(run), host="h", port=1, issued_at=now, expires_at=now + 240.0)
        return seal(self.node.identity, run, said)

    def keeps(self, record: Sealed[PeerRecord]) -> bool:
        return self.guard.accepts(b"key", record.sender, record.raw, dht_expiry(record.message))


@virtual
async def test_a_node_whose_clock_is_an_hour_off_works_with_a_warning(swarm: Swarm) -> None:
    nodes = swarm.nodes(4)
    nodes[3].skew = timedelta(hours=1)
    founder, *joiners = [TimeKeeper(node) for node in nodes]
    wrong = joiners[-1]
    assert not founder.keeps(wrong.record())  # issued an hour from now, as far as the founder can see
    assert CLOCK_TOLERANCE.total_seconds() < HOUR
    founder.clock.found()
    there = [founder]
    for each in joiners:
        await each.agree(there)
        there.append(each)
    assert all(one.keeps(other.record()) for one in there for other in there)
    assert [each.clock.warning is None for each in there] == [True, True, True, False]
    for each in there:  # and it stays so
        await each.agree([other for other in there if other is not each])
    assert all(abs(each.clock.now() - swarm.wall()) < 1 for each in there)
