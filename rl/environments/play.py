"""One conversation between an environment and a sampler, and the same conversation told again from its tokens.

`play` is what a worker does, `replay` what a validator does with the outcome: both follow the same rules of how a
conversation goes on and ends, and those rules are here alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from protocol.errors import Code, NodeError
from rl.environments.interface import Message, Messages, Task
from rl.environments.transcript import Conversation, Renderer, turns

End = Literal["eos", "stop", "length", "over"]
"""``eos``, ``stop``, ``length``: how the last turn ended, and nothing was said to it. ``over``: the environment went
on, but turns or tokens were used up."""


@dataclass(frozen=True)
class Room:
    """How far a conversation may go.

    Attributes:
        turns: Turns of the model.
        sampled: Tokens that the model samples, over all turns.
        tokens: Tokens of the whole transcript: what the model can look back on.
    """

    turns: int
    sampled: int
    tokens: int

    def left(self, conversation: Conversation) -> int:
        """Tokens that the next turn may have."""
        return min(self.sampled - conversation.turn, self.tokens - len(conversation.tokens))


@dataclass(frozen=True)
class Turn:
    """What a sampler gave for one turn: at least one token, and for each its log-probability and policy version."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    versions: Sequence[int]
    end: Literal["eos", "stop", "length"]


class Sampler(Protocol):
    """Samples one rollout, turn by turn."""

    async def turn(self, tokens: Sequence[int], first: int, room: int) -> Turn:
        """One turn.

        Args:
            tokens: The whole transcript so far. What an earlier turn returned is in it unchanged.
            first: How many tokens of the rollout were sampled before.
            room: How many it may have.
        """
        ...


class Speaker(Protocol):
    """What `play` and `replay` need of an environment."""

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        """As `Environment.reply`."""
        ...


async def play(
    environment: Speaker, renderer: Renderer, task: Task, sampler: Sampler, room: Room
) -> tuple[Conversation, End]:
    """Let the sampler and the environment talk until one of them ends it or the room is used up.

    Raises:
        NodeError: RL_ENVIRONMENT when the task leaves the model no room for a word; what either side raises.
    """
    conversation = Conversation(renderer, task.messages)
    if room.left(conversation) < 1:
        raise NodeError(
            Code.RL_ENVIRONMENT,
            f"A task of {conversation.prompt} tokens leaves no room for an answer in {room.tokens}.",
        )
    for number in range(1, room.turns + 1):
        turn = await sampler.turn(conversation.tokens, conversation.turn, room.left(conversation))
        conversation.say(turn.tokens, turn.logprobs, turn.versions)
        if turn.end == "length":
            return conversation, "length"
        reply = await environment.reply(task, conversation.messages)
        if reply is None:
            return conversation, turn.end
        conversation.hear(reply)
        if number == room.turns or room.left(conversation) < 1:
            break
    return conversation, "over"


async def replay(
    environment: Speaker,
    renderer: Renderer,
    task: Task,
    tokens: Sequence[int],
    sampled: Sequence[bool],
    end: End,
    room: Room,
) -> Messages:
    """Check that a transcript is a conversation with this environment, all but the model's own turns derived again.

    Whether a turn may end where it does (end token, stop string) is not judged here.

    Args:
        environment: The one of the run.
        renderer: That of the run.
        task: What was asked.
        tokens: The whole transcript.
        sampled: Which of them the model is said to have sampled.
        end: How it is said to have ended.
        room: How far it could go.

    Returns:
        The conversation as text, for `Environment.score`.

    Raises:
        NodeError: RL_TRANSCRIPT, with the place of the first difference.
    """
    parts = turns(tokens, sampled)
    if not parts or parts[0][0] or len(parts) < 2:
        raise _wrong("it has no prompt or no answer")
    conversation = Conversation(renderer, task.messages)
    _compare(0, conversation.tokens, parts[0][1], "the task")
    for number, place in enumerate(range(1, len(parts), 2), 1):
        said = parts[place][1]
        if len(said) > room.left(conversation):
            raise _wrong(f"turn {number} has {len(said)} tokens where {room.left(conversation)} had room")
        if number > room.turns:
            raise _wrong(f"it has more than {room.turns} turns")
        conversation.say(said, [0.0] * len(said), [0] * len(said))
        last = place == len(parts) - 1
        if last and end == "length":
            if room.left(conversation) > 0:
                raise _wrong(f"it ends for its length, with room for {room.left(conversation)} tokens")
            return conversation.messages
        reply = await environment.reply(task, conversation.messages)
        if reply is None:
            if not last or end == "over":
                raise _wrong(f"it goes on after turn {number}, which ended it")
            return conversation.messages
        if last:
            raise _wrong(f"it stops after turn {number}, which the environment had an answer to")
        before = len(conversation.tokens)
        _compare(before, conversation.hear(reply), parts[place + 1][1], "the environment's reply")
        if place + 1 == len(parts) - 1:
            if end != "over":
                raise _wrong(f"it ends with the environment's word and says {end}")
            if number < room.turns and room.left(conversation) > 0:
                raise _wrong(f"it ends as over after turn {number}, with room for another")
    return conversation.messages


def _compare(at: int, derived: Sequence[int], given: Sequence[int], what: str) -> None:
    if tuple(derived) != tuple(given):
        same = next(
            (n for n, (a, b) in enumerate(zip(derived, given, strict=False)) if a != b),
            min(len(derived), len(given)),
        )
        raise _wrong(f"{what} differs from token {at + same} on")


def _wrong(what: str) -> NodeError:
    return NodeError(
        Code.RL_TRANSCRIPT, f"The transcript is not a conversation with the environment: {what}."
    )
