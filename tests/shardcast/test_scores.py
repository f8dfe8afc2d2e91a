"""Which source comes first."""

import random
from collections import Counter

import pytest

from shardcast.scores import Scores


def scores(explore: float = 0.0) -> Scores:
    return Scores(random.Random(1), explore)


def test_while_nothing_is_known_the_order_is_as_given() -> None:
    assert scores().order(["a", "b", "c"]) == ["a", "b", "c"]


def test_the_fastest_comes_first() -> None:
    book = scores()
    for source, size in (("a", 10), ("b", 30), ("c", 20)):
        book.brought(source, size, 1.0)
    assert book.order(["a", "b", "c"]) == ["b", "c", "a"]


def test_one_that_was_not_heard_yet_counts_as_good_as_the_best() -> None:
    book = scores()
    book.brought("slow", 1, 1.0)
    book.brought("fast", 100, 1.0)
    firsts = Counter(book.order(["slow", "fast", "new"])[0] for _ in range(200))
    assert set(firsts) == {"fast", "new"}


@pytest.mark.failure_mode(53)
def test_a_failure_is_no_sample_of_speed_and_lowers_the_score() -> None:
    book = scores()
    book.brought("a", 100, 1.0)
    book.brought("b", 40, 1.0)
    book.failed("a")
    assert book.order(["a", "b"]) == ["a", "b"], "half of 100 is more than 40"
    book.failed("a")
    assert book.order(["a", "b"]) == ["b", "a"]
    for _ in range(50):
        book.failed("never-seen")
    assert book.order(["never-seen", "b"])[0] == "b"
    book.brought("a", 100, 1.0)
    book.brought("a", 100, 1.0)
    assert book.order(["a", "b"])[0] == "a", "who brings bytes again is trusted again"


def test_now_and_then_any_other_comes_first() -> None:
    book = scores(explore=0.2)
    for index, source in enumerate("abcd"):
        book.brought(source, 100 - index, 1.0)
    firsts = Counter(book.order(list("abcd"))[0] for _ in range(2000))
    assert 0.7 < firsts["a"] / 2000 < 0.9
    assert all(firsts[other] > 50 for other in "bcd")
