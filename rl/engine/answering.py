"""Answers over HTTP: the JSON of what was sampled, whole or in events."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rl.engine.asking import Asked
from rl.engine.interface import Piece
from rl.environments import tool_calls
from rl.sampling.ending import Decode

_REASONS: Final = {"eos": "stop", "stop": "stop", "length": "length"}


@dataclass(frozen=True)
class Turn:
    """All that came of one request, as one piece."""

    piece: Piece
    text: str

    @classmethod
    def of(cls, pieces: Sequence[Piece], asked: Asked, decode: Decode | None) -> "Turn":
        """Join the pieces of a request that has ended."""
        last = pieces[-1]
        whole = Piece(
            tuple(token for piece in pieces for token in piece.tokens),
            tuple(value for piece in pieces for value in piece.logprobs),
            tuple(version for piece in pieces for version in piece.versions),
            last.finish,
            last.proofs,
            last.proof_versions,
            last.refills,
            last.reused,
        )
        stream = TextStream(decode, asked.request.sampling.stop) if decode is not None else None
        return cls(whole, stream.take(whole.tokens, True) if stream else "")


class TextStream:
    """Tokens to text as they come: whole characters only, and nothing that may turn out to begin a stop text."""

    def __init__(self, decode: Decode, stop: tuple[str, ...]) -> None:
        self._decode = decode
        self._stop = stop
        self._back = max((len(each) for each in stop), default=1) - 1
        self._tokens: list[int] = []
        self._begin = self._read = 0
        self._pending = ""
        self._stopped = False

    def take(self, tokens: Sequence[int], last: bool) -> str:
        """The text that is certain after these tokens."""
        if self._stopped:
            return ""
        self._tokens += tokens
        before = self._decode(self._tokens[self._begin : self._read])
        after = self._decode(self._tokens[self._begin :])
        if last or not after.endswith("\ufffd"):
            self._pending += after[len(before) :]
            self._begin, self._read = self._read, len(self._tokens)
        places = [place for place in map(self._pending.find, self._stop) if place >= 0]
        self._stopped = bool(places)
        keep = min(places) if places else len(self._pending) - (0 if last else self._back)
        shown = self._pending[: max(0, keep)]
        self._pending = self._pending[len(shown) :]
        return shown


class Answers:
    """Answers in the form of one of the three questions."""

    def __init__(self, form: str, asked: Asked, model: str, decode: Decode | None) -> None:
        self._form, self._asked, self._model, self._decode = form, asked, model, decode
        self._created = int(time.time())

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The answer to a question that is not streamed."""
        turn = Turn.of(pieces, self._asked, self._decode)
        piece, asked = turn.piece, self._asked
        if self._form == "turn":
            answer: dict[str, Any] = {"request_id": asked.request.id, "choices": [self._turn(piece)]}
        else:
            name = "chat.completion" if self._form == "chat" else "text_completion"
            choice: dict[str, Any] = {"index": 0, "finish_reason": _reason(piece)}
            if self._form == "chat":
                choice["message"], choice["finish_reason"] = self._message(turn.text, piece)
            else:
                choice["text"] = turn.text
            choice.update(self._extras(piece))
            answer = {"id": asked.request.id, "object": name, **self._head(), "choices": [choice]}
            if asked.token_ids:
                answer["prompt_token_ids"] = list(asked.request.tokens)
        answer["usage"] = self._usage(len(piece.tokens), piece.reused)
        return answer

    def _message(self, text: str, piece: Piece) -> tuple[dict[str, Any], str | None]:
        """What was said in all, and why it ended; with calls of tools where there are any."""
        said, calls = tool_calls.parse(text) if self._asked.tools else (text, ())
        message: dict[str, Any] = {"role": "assistant", "content": said}
        if not calls:
            return message, _reason(piece)
        message["tool_calls"] = tool_calls.on_the_wire(calls, self._asked.request.id)
        return message, _reason(piece) if piece.finish == "length" else "tool_calls"

    def events(self) -> "Events":
        """The answer to a question that is streamed."""
        return Events(self)

    def _head(self) -> dict[str, Any]:
        return {"created": self._created, "model": self._model}

    def _usage(self, sampled: int, reused: int) -> dict[str, Any]:
        asked = len(self._asked.request.tokens)
        return {
            "prompt_tokens": asked,
            "completion_tokens": sampled,
            "total_tokens": asked + sampled,
            "prompt_tokens_details": {"cached_tokens": reused},
        }

    def _extras(self, piece: Piece) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if self._asked.logprobs:
            names = [self._decode([token]) if self._decode else f"token_id:{token}" for token in piece.tokens]
            if self._form == "chat":
                extras["logprobs"] = {
                    "content": [
                        {"token": name, "logprob": value, "bytes": list(name.encode()), "top_logprobs": []}
                        for name, value in zip(names, piece.logprobs, strict=True)
                    ]
                }
            else:
                extras["logprobs"] = {
                    "tokens": names,
                    "token_logprobs": list(piece.logprobs),
                    "top_logprobs": [],
                }
        if self._asked.token_ids:
            extras["token_ids"] = list(piece.tokens)
        return extras

    def _turn(self, piece: Piece) -> dict[str, Any]:
        entries = [
            {"token": f"token_id:{token}", "logprob": value, "top_logprobs": []}
            for token, value in zip(piece.tokens, piece.logprobs, strict=True)
        ]
        return {
            "index": 0,
            "token_ids": list(piece.tokens),
            "logprobs": {"content": entries},
            "finish_reason": _reason(piece),
            "rollout": {
                "versions": list(piece.versions),
                "finish": piece.finish,
                "proofs": [proof.hex() for proof in piece.proofs],
                "proof_versions": list(piece.proof_versions),
                "refills": piece.refills,
                "reused": piece.reused,
            },
        }


class Events:
    """Server-sent events, one for each piece that says something."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._text = (
            TextStream(answers._decode, answers._asked.request.sampling.stop) if answers._decode else None
        )
        self._sampled = 0
        self._said = ""

    def of(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The events of one piece."""
        answers = self._answers
        first = self._sampled == 0
        self._sampled += len(piece.tokens)
        if answers._form == "turn":
            yield {"request_id": answers._asked.request.id, "choices": [answers._turn(piece)]}
            return
        text = self._text.take(piece.tokens, piece.finish is not None) if self._text else ""
        choice: dict[str, Any] = {"index": 0, "finish_reason": _reason(piece), **answers._extras(piece)}
        if answers._form == "chat" and answers._asked.tools:  # a call is known when all of it is there
            self._said += text
            choice["delta"] = {"role": "assistant", "content": ""}
            if piece.finish is not None:
                choice["delta"], choice["finish_reason"] = answers._message(self._said, piece)
                for number, call in enumerate(choice["delta"].get("tool_calls", ())):
                    call["index"] = number
        elif answers._form == "chat":
            choice["delta"] = {"role": "assistant", "content": text} if first else {"content": text}
        else:
            choice["text"] = text
        name = "chat.completion.chunk" if answers._form == "chat" else "text_completion"
        event = {"id": answers._asked.request.id, "object": name, **answers._head(), "choices": [choice]}
        if piece.finish is not None:
            event["usage"] = answers._usage(self._sampled, piece.reused)
        if answers._asked.token_ids and first:
            event["prompt_token_ids"] = list(answers._asked.request.tokens)
        yield event


def _reason(piece: Piece) -> str | None:
    return _REASONS.get(piece.finish) if piece.finish else None
