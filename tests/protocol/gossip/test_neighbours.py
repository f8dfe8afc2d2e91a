import itertools

from protocol.gossip.limits import COURTESY, FORWARDED, HELLO, PING, REDIAL_MOST
from protocol.gossip.neighbours import Neighbourhood
from protocol.units import PeerId


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def anyone(node: PeerId) -> bool:
    return False


ME, LESS, GREATER = PeerId("m"), PeerId("a"), PeerId("z")


def called(around: Neighbourhood, count: int = 6) -> list[str]:
    return [host for host, _ in around.to_call(count, anyone)]


def test_of_two_nodes_the_one_with_the_smaller_id_calls_first() -> None:
    clock = Clock()
    around = Neighbourhood(ME, clock)
    around.know(LESS, "host a", ("/a",))
    around.know(GREATER, "host z", ("/z",))
    assert called(around) == ["host z"]
    around.came("host z").node = GREATER
    clock.now += COURTESY.total_seconds()
    assert called(around) == ["host a"]


def test_a_host_that_does_not_answer_is_called_ever_more_seldom() -> None:
    clock = Clock()
    around = Neighbourhood(ME, clock)
    around.know(GREATER, "host", ("/z",))
    calls = []
    for _ in range(600):
        if called(around):
            calls.append(clock.now)
        clock.now += 1.0
    pauses = [after - before for before, after in itertools.pairwise(calls)]
    assert pauses[0] < pauses[2] < pauses[-1] <= 1 + REDIAL_MOST.total_seconds() * 1.2
    around.came("host").node = GREATER
    around.reached(GREATER)
    around.went("host")
    clock.now += 80
    called(around)
    clock.now += 4
    assert called(around) == ["host"], "after an answer the pauses are short again"


def test_no_one_is_called_who_is_there_or_cut_off_or_this_node() -> None:
    around = Neighbourhood(ME, Clock())
    around.know(ME, "my host", ("/m",))
    around.know(GREATER, "host z", ("/z",))
    around.know(PeerId("y"), "host y", ("/y",))
    around.came("another host of z").node = GREATER
    assert around.to_call(6, lambda node: node == "y") == []


def test_a_new_host_of_a_node_takes_the_place_of_the_old() -> None:
    around = Neighbourhood(ME, Clock())
    around.know(GREATER, "old", ("/old",))
    around.know(GREATER, "new", ("/new",))
    assert around.to_call(6, anyone) == [("new", ("/new",))]


def test_strangers_are_those_that_do_not_say_whose_they_are_in_time() -> None:
    clock = Clock()
    around = Neighbourhood(ME, clock)
    around.came("silent")
    around.came("friend").node = GREATER
    assert (around.strangers(), around.strangers(overdue=True)) == (["silent"], [])
    clock.now += HELLO.total_seconds() + 1
    assert around.strangers(overdue=True) == ["silent"]


def test_a_neighbour_is_asked_for_a_sign_of_life_now_and_then() -> None:
    clock = Clock()
    around = Neighbourhood(ME, clock)
    around.came("host")
    assert around.to_ask(PING) == []
    clock.now += PING.total_seconds()
    assert (around.to_ask(PING), around.to_ask(PING)) == (["host"], [])


def test_a_neighbour_sends_as_fast_as_it_may_and_no_faster() -> None:
    connected = Neighbourhood(ME, Clock()).came("host")
    assert sum(connected.may_send(1.0) for _ in range(10_000)) == FORWARDED.burst
    assert sum(connected.may_send(2.0) for _ in range(10_000)) == FORWARDED.count
