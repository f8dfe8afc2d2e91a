from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from protocol.errors import Code, NodeError
from rl.environments import Conversation, Message, Renderer, load
from rl.environments.play import Room, Turn, play, replay

TOKENIZER = load_tokenizer(train_tokenizer(["<t>abc</t> higher lower 12 13"] * 5, 270), 270)
RENDERER = Renderer(TOKENIZER)
END = RENDERER.end
WIDE = Room(turns=8, sampled=500, tokens=1000)


@dataclass
class Scripted:
    """Says what it is told, letter by letter; keeps what it was shown."""

    turns: list[str]
    closed: bool = True
    shown: list[tuple[list[int], int, int]] = field(default_factory=list)

    async def turn(self, tokens: Sequence[int], first: int, room: int) -> Turn:
        self.shown.append((list(tokens), first, room))
        text = self.turns.pop(0)
        said = [token for letter in text for token in TOKENIZER.encode(letter).ids] + [END] * self.closed
        said = said[:room]
        end = "eos" if said[-1] == END else "length" if len(said) == room else "stop"
        return Turn(said, [-0.25] * len(said), [5] * len(said), end)


GUESSING = load("number-guessing", {"largest": 100, "guesses": 30})
TASK = replace(GUESSING.task(0), answer={"number": 50})


async def test_a_conversation_goes_on_with_what_was_sampled_and_ends_when_the_environment_has_no_more_to_say() -> (
    None
):
    sampler = Scripted(["10", "90", "50"])
    conversation, end = await play(GUESSING, RENDERER, TASK, sampler, WIDE)
    assert end == "eos"
    assert [message.content for message in conversation.messages[1:]] == ["10", "higher", "90", "lower", "50"]
    assert [first for _, first, _ in sampler.shown] == [0, 3, 6]
    assert conversation.tokens[: len(sampler.shown[-1][0])] == sampler.shown[-1][0]


@pytest.mark.parametrize(
    ("room", "end", "turns"),
    [
        (replace(WIDE, turns=2), "over", 2),
        (replace(WIDE, sampled=6), "over", 2),
        (replace(WIDE, sampled=5), "length", 2),
        (replace(WIDE, tokens=len(RENDERER.prompt(TASK.messages)) + 2), "length", 1),
    ],
)
async def test_a_conversation_ends_where_turns_or_tokens_are_used_up(
    room: Room, end: str, turns: int
) -> None:
    conversation, ended = await play(GUESSING, RENDERER, TASK, Scripted(["10", "90", "20", "30"]), room)
    assert ended == end
    assert sum(message.role == "assistant" for message in conversation.messages) == turns
    assert conversation.turn <= room.sampled
    said = await replay(GUESSING, RENDERER, TASK, conversation.tokens, conversation.sampled, ended, room)
    assert said == conversation.messages


async def test_a_task_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(NodeError) as refused:
        await play(GUESSING, RENDERER, TASK, Scripted(["1"]), replace(WIDE, tokens=20))
    assert refused.value.code is Code.RL_ENVIRONMENT


@pytest.mark.failure_mode(49)
async def test_what_was_played_is_told_again_from_its_tokens() -> None:
    for seed in range(30):
        random = Random(seed)
        room = Room(turns=random.randint(1, 6), sampled=random.randint(1, 40), tokens=random.randint(60, 140))
        sampler = Scripted(
            [random.choice(["10", "x", "50", "99", "7 or 8"]) for _ in range(9)], random.random() < 0.7
        )
        conversation, end = await play(GUESSING, RENDERER, TASK, sampler, room)
        said = await replay(GUESSING, RENDERER, TASK, conversation.tokens, conversation.sampled, end, room)
        assert said == conversation.messages


async def refused(conversation: Conversation, end: str, room: Room = WIDE, task=TASK) -> str:
    with pytest.raises(NodeError) as error:
        await replay(GUESSING, RENDERER, task, conversation.tokens, conversation.sampled, end, room)
    assert error.value.code is Code.RL_TRANSCRIPT
    return error.value.sentence


async def test_a_transcript_that_the_environment_did_not_say_is_refused_with_the_place() -> None:
    conversation, end = await play(GUESSING, RENDERER, TASK, Scripted(["10", "50"]), WIDE)

    def changed(at: int, token: int) -> Conversation:
        copy = Conversation(RENDERER, TASK.messages)
        copy.tokens, copy.sampled = list(conversation.tokens), list(conversation.sampled)
        copy.tokens[at] = token
        return copy

    assert "the task differs from token 4" in await refused(changed(4, 3), end)
    place = conversation.prompt + 3 + len(RENDERER.between(True, ())) + 1
    assert f"reply differs from token {place}" in await refused(changed(place, 3), end)
    other = replace(TASK, messages=(Message("user", "Guess my number from 1 to 10."),))
    assert "the task differs" in await refused(conversation, end, task=other)


async def test_a_transcript_that_was_cut_or_stretched_by_hand_is_refused() -> None:
    conversation, end = await play(GUESSING, RENDERER, TASK, Scripted(["10", "90", "50"]), WIDE)

    def cut(length: int) -> Conversation:
        copy = Conversation(RENDERER, TASK.messages)
        copy.tokens, copy.sampled = conversation.tokens[:length], conversation.sampled[:length]
        return copy

    assert "had an answer to" in await refused(cut(conversation.prompt + 3), "eos")
    assert "with room for" in await refused(cut(conversation.prompt + 2), "length")
    assert "no answer" in await refused(cut(conversation.prompt), "over")
    assert "no answer" in await refused(cut(0), "over")
    upto = len(conversation.tokens) - 3
    assert "with room for another" in await refused(cut(upto), "over")
    assert "says eos" in await refused(cut(upto), "eos")
    assert "reply differs" in await refused(cut(upto - 1), "over")
    assert "goes on after turn 3" in await refused(conversation, "over")
    assert "goes on after turn 2" in await refused(
        conversation, end, task=replace(TASK, answer={"number": 90})
    )
    assert "more than 2 turns" in await refused(conversation, end, replace(WIDE, turns=2))
    assert "had room" in await refused(conversation, end, replace(WIDE, sampled=8))
