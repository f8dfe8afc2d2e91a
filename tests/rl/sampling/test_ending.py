from collections.abc import Sequence

import pytest

from rl.sampling import Finish, Sampling, finish


def as_text(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def end(sampled: bytes, before: int = 0, room: int = 100, **settings: object) -> Finish | None:
    return finish(Sampling(**settings), tuple(sampled), as_text, before, room)  # type: ignore[arg-type]


def test_a_turn_ends_with_an_end_mark_a_stop_text_or_its_length() -> None:
    assert end(b"abc", eos=(ord("c"),)) == "eos"
    assert end(b"one </answer>", stop=("</answer>",)) == "stop"
    assert end(b"abc", max_tokens=3) == "length"
    assert end(b"abc", room=0) == "length"
    assert end(b"abc", max_tokens=4, stop=("bca",), eos=(ord("a"),)) is None


def test_earlier_turns_count_towards_the_rollouts_length() -> None:
    assert end(b"abc", before=7, max_tokens=10) == "length"
    assert end(b"abc", before=6, max_tokens=10) is None


def test_the_end_mark_comes_first() -> None:
    assert end(b"abc", eos=(ord("c"),), stop=("c",), max_tokens=3) == "eos"
    assert end(b"abc", stop=("c",), max_tokens=3) == "stop"


def test_a_stop_text_longer_ago_than_the_newest_token_is_found_where_a_token_holds_more_than_its_end() -> (
    None
):
    assert end(b"stop it", stop=("stop",)) == "stop"
    assert end(b"stop" + b"x" * 30, stop=("stop",)) is None


def test_stop_texts_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(ValueError):
        finish(Sampling(stop=("x",)), (1,), None)
