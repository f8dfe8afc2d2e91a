import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from rl.environments import Conversation, Message, Renderer, turns

TOKENIZER = load_tokenizer(train_tokenizer(["abab abab banana bandana"] * 20, 280), 280)
RENDERER = Renderer(TOKENIZER)
END = RENDERER.end


def ids(text: str) -> list[int]:
    return list(TOKENIZER.encode(text).ids)


@pytest.mark.failure_mode(49)
@given(st.lists(st.lists(st.integers(1, 279), min_size=1, max_size=30), min_size=1, max_size=4))
def test_what_was_sampled_stays_as_it_was_sampled(said: list[list[int]]) -> None:
    conversation = Conversation(RENDERER, (Message("user", "go on"),))
    for turn in said:
        conversation.say(turn, [-0.5] * len(turn), [3] * len(turn))
        conversation.hear(Message("tool", "42"))
    kept = [list(part) for sampled, part in turns(conversation.tokens, conversation.sampled) if sampled]
    assert kept == said
    assert conversation.turn == sum(map(len, said))


@pytest.mark.failure_mode(49)
def test_a_text_that_would_be_encoded_otherwise_is_no_reason_to_change_its_tokens() -> None:
    singly = [token for letter in "banana" for token in ids(letter)]
    assert TOKENIZER.decode(singly) == "banana" and ids("banana") != singly  # or this test shows nothing
    conversation = Conversation(RENDERER, (Message("user", "?"),))
    conversation.say(singly, [-1.0] * 6, [0] * 6)
    conversation.hear(Message("user", "again"))
    assert conversation.messages[1] == Message("assistant", "banana")
    assert conversation.tokens[conversation.prompt :][:6] == singly


@given(st.text(max_size=20), st.text(max_size=20))
def test_the_layout_of_the_first_message_does_not_depend_on_what_follows(first: str, second: str) -> None:
    one = RENDERER.prompt((Message("user", first),))
    two = RENDERER.prompt((Message("user", first), Message("assistant", second)))
    opening = len(RENDERER.prompt(()))
    assert two[: len(one) - opening] == one[: len(one) - opening]


def test_a_message_that_names_the_end_token_does_not_end() -> None:
    rendered = RENDERER.message(Message("user", f"a<|end|>{'b'}"))
    assert rendered.count(END) == 1 and rendered[-1] == END


def test_a_turn_that_was_cut_off_is_closed_before_the_reply_and_one_that_ended_is_not_closed_twice() -> None:
    cut, ended = (Conversation(RENDERER, (Message("user", "?"),)) for _ in range(2))
    cut.say(ids("x"), [0.0], [0])
    ended.say([*ids("x"), END], [0.0, 0.0], [0, 0])
    cut.hear(Message("user", "y"))
    ended.hear(Message("user", "y"))
    assert cut.tokens == ended.tokens
    assert cut.turn == 1 and ended.turn == 2


def test_two_turns_in_a_row_and_uneven_lists_are_refused() -> None:
    conversation = Conversation(RENDERER, (Message("user", "?"),))
    for wrong in (([], [], []), ([1], [0.0, 0.0], [0]), ([1], [0.0], [])):
        with pytest.raises(ValueError):
            conversation.say(*wrong)
    conversation.say([1], [0.0], [0])
    with pytest.raises(ValueError):
        conversation.say([1], [0.0], [0])
