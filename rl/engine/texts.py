"""What an engine knows of text: a tokenizer, and how messages are laid out."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from tokenizers import Tokenizer

from protocol.errors import Code, NodeError
from rl.environments.interface import Messages
from rl.environments.transcript import CHATML, PLAIN, Renderer

Layout: TypeAlias = Literal["plain", "chatml"]
"""How messages become tokens."""


class TokenizerTexts:
    """See `rl.engine.asking.Texts`."""

    def __init__(self, json: str, layout: Layout = "plain") -> None:
        """Read a tokenizer.

        Raises:
            NodeError: ``RL_REQUEST``: it is none, or has no token that ends a message of this layout.
        """
        try:
            self._tokenizer = Tokenizer.from_str(json)
        except Exception as error:  # the library raises bare Exception
            raise NodeError(Code.RL_REQUEST, f"The tokenizer cannot be read: {error}.") from None
        self._renderer = Renderer(self._tokenizer, PLAIN if layout == "plain" else CHATML)

    @property
    def eos(self) -> tuple[int, ...]:
        """The token that ends a message."""
        return (self._renderer.end,)

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of a text, special ones as they are written in it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def chat(self, messages: Messages) -> tuple[int, ...]:
        """Tokens of a conversation, and of the opening of the model's turn."""
        return self._renderer.prompt(messages)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, without special ones."""
        return self._renderer.text(tokens)


class NoTexts:
    """An engine that was given no tokenizer: tokens in, tokens out."""

    eos: tuple[int, ...] = ()

    def encode(self, text: str) -> tuple[int, ...]:
        """Refuse."""
        raise NodeError(Code.RL_REQUEST, "This engine was given no tokenizer: ask with token ids.")

    def chat(self, messages: Messages) -> tuple[int, ...]:
        """Refuse."""
        return self.encode("")
