"""The latency matrix: what members measured of one another, the newest of each pair."""

from dataclasses import replace

from node.coordinator.pages.matrix import SHOWN, Matrix
from node.coordinator.reading import Stored
from node.coordinator.view import Tip, View
from tests.node.coordinator.sample import peer, report


def told(sequence: int, who: int, **seconds: object) -> Stored:
    fields = {peer(int(name[1:])): value for name, value in seconds.items()}
    return Stored(sequence, report(peer(who), sequence, 100.0 + sequence, "peer.round-trips", seconds=fields))


def test_the_newest_of_each_pair_counts_and_each_direction_is_a_pair() -> None:
    matrix = Matrix.of([told(3, 1, p2=0.03), told(2, 2, p1=0.02), told(1, 1, p2=0.5, p3=0.1)])
    assert matrix.seconds == {
        (peer(1), peer(2)): 0.03, (peer(2), peer(1)): 0.02, (peer(1), peer(3)): 0.1,
    }  # fmt: skip
    assert matrix.as_of == 103.2 and matrix.slowest()[0] == (peer(1), peer(3), 0.1)


def test_what_is_no_round_trip_is_left_out() -> None:
    bad = told(1, 1, p2=float("nan"), p3=-1, p4="0.1", p5=1e9, p6=[0.1])
    odd = Stored(2, replace(bad.fact, fields={"seconds": ["x"]}))  # type: ignore[type-var]
    assert Matrix.of([odd, bad]).seconds == {}


def test_voters_come_first_and_not_all_are_shown() -> None:
    many = [told(number, number, p0=0.1) for number in range(1, 60)]
    tip = Tip(electorate=(peer(50),), members=tuple(peer(number) for number in range(50)))
    members = Matrix.of(many).members(View(tip=tip))
    assert members[0] == peer(50) and len(members) == SHOWN
