"""A conversation as tokens. What was sampled is kept as it was sampled and never made again from its text.

Decoding and encoding again is not the identity: two token sequences can have one text. So a conversation only
grows: the environment's messages are encoded once, when they are said, and the model's turns are appended as the engine
gave them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from tokenizers import Tokenizer

from protocol.errors import Code, NodeError
from rl.environments.interface import Message, Messages, Role


@dataclass(frozen=True)
class Template:
    """How messages are laid out. Only this layout may hold special tokens; in a message they are ordinary text.

    Attributes:
        opening: What begins a message of each role; that of the assistant is not empty, so that turns stay apart.
        end: The token that ends a message. The model ends its own turn by sampling it.
        gap: What stands after `end`.
    """

    opening: Mapping[Role, str]
    end: str
    gap: str = ""


PLAIN = Template({"system": "S:", "user": "U:", "assistant": "A:", "tool": "T:"}, "<|end|>")
"""For models that a run trains from nothing, with its own tokenizer."""

CHATML = Template(
    {role: f"<|im_start|>{role}\n" for role in ("system", "user", "assistant", "tool")}, "<|im_end|>", "\n"
)
"""For published models that were tuned to it."""


class Renderer:
    """Messages as tokens, by one tokenizer and one template."""

    def __init__(self, tokenizer: Tokenizer, template: Template = PLAIN) -> None:
        end = tokenizer.token_to_id(template.end)
        if end is None:
            raise NodeError(
                Code.RL_ENVIRONMENT, f"The tokenizer has no token {template.end}, which ends a message."
            )
        self.end: int = end
        self._text = Tokenizer.from_str(tokenizer.to_str())
        self._text.encode_special_tokens = True
        self._opening = {role: self._layout(tokenizer, text) for role, text in template.opening.items()}
        self._gap = self._layout(tokenizer, template.gap)
        if not self._opening["assistant"]:
            raise NodeError(
                Code.RL_ENVIRONMENT, "The template's opening of the assistant's message has no token."
            )

    @staticmethod
    def _layout(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    def message(self, message: Message) -> tuple[int, ...]:
        """One whole message."""
        content = self._text.encode(message.content, add_special_tokens=False).ids
        return (*self._opening[message.role], *content, self.end, *self._gap)

    def prompt(self, messages: Iterable[Message]) -> tuple[int, ...]:
        """Messages, and the opening of the assistant's turn."""
        return (
            *chain.from_iterable(self.message(message) for message in messages),
            *self._opening["assistant"],
        )

    def between(self, ended: bool, messages: Iterable[Message]) -> tuple[int, ...]:
        """What stands between two turns of the model.

        Args:
            ended: Whether the turn before ended with the end token.
            messages: What was said to it.
        """
        return (*(() if ended else (self.end,)), *self._gap, *self.prompt(messages))

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a turn of the model, without special tokens. It is for reading, never for encoding again."""
        return str(self._text.decode(list(tokens), skip_special_tokens=True))


class Conversation:
    """A conversation that grows by turns of the model and replies of the environment.

    Attributes:
        messages: All that was said, as text.
        tokens: The transcript.
        sampled: For each token, whether the model sampled it.
        logprobs: Of the sampled ones, under the distribution they were sampled from; 0 elsewhere.
        versions: The policy version that sampled each; −1 elsewhere.
        prompt: Number of tokens before the first turn.
    """

    def __init__(self, renderer: Renderer, messages: Messages) -> None:
        self._renderer = renderer
        self.messages = messages
        self.tokens: list[int] = list(renderer.prompt(messages))
        self.prompt = len(self.tokens)
        self.sampled: list[bool] = [False] * self.prompt
        self.logprobs: list[float] = [0.0] * self.prompt
        self.versions: list[int] = [-1] * self.prompt

    @property
    def turn(self) -> int:
        """How many tokens the model has sampled so far."""
        return sum(self.sampled)

    def say(self, tokens: Sequence[int], logprobs: Sequence[float], versions: Sequence[int]) -> None:
        """Append a turn of the model, exactly as it was sampled, the end token included where it was.

        Raises:
            ValueError: The lists differ in length or are empty, or the model spoke last already.
        """
        if not len(tokens) == len(logprobs) == len(versions) > 0 or self.sampled[-1]:
            raise ValueError(
                "a turn has at least one token, a log-probability and a version for each, and its place"
            )
        self.tokens += tokens
        self.sampled += [True] * len(tokens)
        self.logprobs += logprobs
        self.versions += versions
        self.messages = (*self.messages, Message("assistant", self._renderer.text(tokens)))

    def hear(self, message: Message) -> tuple[int, ...]:
        """Append the environment's reply and open the next turn.

        Returns:
            The tokens that were appended.
        """
        added = self._renderer.between(self.tokens[-1] == self._renderer.end, (message,))
        self.tokens += added
        self.sampled += [False] * len(added)
        self.logprobs += [0.0] * len(added)
        self.versions += [-1] * len(added)
        self.messages = (*self.messages, message)
        return added


def turns(tokens: Sequence[int], sampled: Sequence[bool]) -> tuple[tuple[bool, tuple[int, ...]], ...]:
    """A transcript cut where the speaker changes: (sampled, tokens) for each part."""
    parts = groupby(zip(sampled, tokens, strict=True), key=lambda pair: bool(pair[0]))
    return tuple((said, tuple(token for _, token in part)) for said, part in parts)
