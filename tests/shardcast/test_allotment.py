from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.units import PeerId
from shardcast import limits
from shardcast.allotment import Allotment

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")
MIB = 1024 * 1024


def book(count: int, size: int = MIB) -> Allotment:
    return Allotment(dict.fromkeys(range(count), size))


def test_a_holder_gets_one_shard_until_it_has_shown_its_speed() -> None:
    shards = book(100)
    assert shards.draw(A, 0.0) == (0,)
    shards.came(A, MIB)
    assert shards.finish(0)
    shards.end(A, 0.1)  # 10 MiB/s: 20 MiB keep it busy for two seconds
    assert shards.draw(A, 0.1) == tuple(range(1, 21))


def test_one_draw_is_bounded_however_fast_a_holder_is() -> None:
    shards = book(100)
    shards.draw(A, 0.0)
    shards.came(A, MIB)
    shards.finish(0)
    shards.end(A, 1e-6)
    assert len(shards.draw(A, 1.0)) == limits.BATCH_BYTES // MIB


def test_what_a_holder_did_not_bring_goes_to_the_next_that_asks() -> None:
    shards = book(2)
    assert shards.draw(A, 0.0) == (0,)
    assert shards.draw(B, 0.0) == (1,)
    shards.end(A, 1.0)
    shards.finish(1)
    shards.end(B, 1.0)
    assert shards.draw(B, 1.0) == (0,)


def test_an_idle_holder_takes_over_the_last_shard_of_one_that_is_much_slower() -> None:
    shards = book(2)
    shards.draw(A, 0.0)
    shards.draw(B, 0.0)
    shards.came(B, MIB)
    shards.finish(1)
    shards.end(B, 0.1)
    assert shards.draw(B, 0.1) == (), "nobody is judged in the first moment"
    shards.came(A, 1)
    assert shards.draw(B, 2.0) == (0,)
    assert shards.draw(C, 3.0) == (), "no shard is on its way three times"
    assert shards.finish(0)
    assert not shards.finish(0), "the second copy does not count"
    assert shards.unfinished(A) == [] and shards.left == 0


def test_a_holder_of_about_equal_speed_is_left_alone() -> None:
    shards = book(2)
    shards.draw(A, 0.0)
    shards.draw(B, 0.0)
    shards.came(B, MIB)
    shards.finish(1)
    shards.end(B, 1.0)
    shards.came(A, MIB * 9 // 10)
    assert shards.draw(B, 1.0) == ()


def test_a_holder_is_not_asked_again_for_what_it_lacks() -> None:
    shards = book(2)
    assert shards.draw(A, 0.0) == (0,)
    shards.lack(A, 0)
    shards.end(A, 0.1)
    assert shards.draw(A, 0.1) == (1,)
    shards.finish(1)
    shards.end(A, 0.2)
    assert not shards.useful(A) and shards.useful(B)
    assert shards.draw(A, 0.2) == () and shards.draw(B, 0.2) == (0,)


@settings(deadline=None)  # none of these tests is about time
@given(st.data())
def test_every_shard_arrives_whatever_holders_do(data: st.DataObject) -> None:
    """Random draws, deliveries, failures and lacks; one holder always delivers in the end."""
    count = data.draw(st.integers(0, 12))
    shards = book(count)
    flaky = [PeerId(f"flaky{i}") for i in range(3)]
    now = 0.0
    for _ in range(data.draw(st.integers(0, 30))):
        now += data.draw(st.floats(0, 2))
        holder = data.draw(st.sampled_from(flaky))
        if not shards.unfinished(holder):
            shards.end(holder, now)
            shards.draw(holder, now)
        for index in shards.unfinished(holder):
            match data.draw(st.sampled_from(["brings", "lacks", "fails", "waits"])):
                case "brings":
                    shards.came(holder, MIB)
                    assert shards.finish(index)
                case "lacks":
                    shards.lack(holder, index)
                case "fails":
                    shards.end(holder, now)
                    break
    for holder in flaky:
        shards.end(holder, now)
    seen: list[int] = []
    while shards.left:
        now += 1
        got = shards.draw(A, now)
        assert got, "what nobody is fetching can be drawn"
        for index in got:
            shards.came(A, MIB)
            assert shards.finish(index)
        seen += got
        shards.end(A, now)
    assert len(seen) == len(set(seen))
