"""Bodies of HTTP questions, read into requests. Whatever is not allowed is refused with a sentence that says so."""

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from blake3 import blake3

from protocol.errors import Code, NodeError
from rl.engine.interface import Former, Request
from rl.environments import tool_calls
from rl.environments.interface import Message, Messages
from rl.sampling import Sampling

_SEED_CONTEXT = "intellect-node engine seed 1"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_MAX_MESSAGES = 4096
_MAX_TOOLS = 128
_MAX_PROOFS = 2**16
_PROOF_DIGITS = 4096


class Texts(Protocol):
    """What the engine knows of text."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of a text."""
        ...

    def chat(self, messages: Messages) -> tuple[int, ...]:
        """Tokens of a conversation, and of the opening of the model's turn."""
        ...

    @property
    def eos(self) -> tuple[int, ...]:
        """Tokens that end a turn."""
        ...


@dataclass(frozen=True)
class Asked:
    """A question.

    Attributes:
        request: What the engine is asked.
        stream: Whether the answer comes in events.
        logprobs: Whether log-probabilities are wanted.
        token_ids: Whether token ids are wanted.
        tools: Whether what is said may call a tool.
    """

    request: Request
    stream: bool
    logprobs: bool
    token_ids: bool
    tools: bool = False


def chat(body: Mapping[str, Any], texts: Texts) -> Asked:
    """`/v1/chat/completions`."""
    listed = body.get("messages")
    if not isinstance(listed, list) or not 0 < len(listed) <= _MAX_MESSAGES:
        raise refused(f"messages must be a list of 1 to {_MAX_MESSAGES} messages.")
    tools = _tools(body)
    messages = tool_calls.told(tuple(map(_message, listed)), tools)
    asked = _asked(body, texts.chat(messages), texts, _flag(body, "logprobs"))
    return replace(asked, tools=bool(tools))


def completion(body: Mapping[str, Any], texts: Texts) -> Asked:
    """`/v1/completions`."""
    prompt = body.get("prompt")
    tokens = texts.encode(prompt) if isinstance(prompt, str) else _ids(prompt, "prompt")
    return _asked(body, tokens, texts, body.get("logprobs") not in (None, False))


def turn(body: Mapping[str, Any], texts: Texts) -> Asked:
    """`/inference/v1/generate`: tokens in, tokens out, and what makes a rollout."""
    settings = body.get("sampling_params", {})
    if not isinstance(settings, dict):
        raise refused("sampling_params must be an object.")
    asked = _asked(
        {**settings, **_only(body, "stream", "request_id")},
        _ids(body.get("token_ids"), "token_ids"),
        texts,
        True,
    )
    extra = body.get("rollout")
    if extra is None:
        return asked
    if not isinstance(extra, dict):
        raise refused("rollout must be an object.")
    former = extra.get("former")
    request = Request(
        id=asked.request.id,
        tokens=asked.request.tokens,
        seed=_bytes(extra, "seed", 64) if "seed" in extra else asked.request.seed,
        sampling=asked.request.sampling,
        first=_whole(extra, "first", 0, 2**31),
        prompt=_whole(extra, "prompt", 0, 2**31),
        proofs=_flag(extra, "proofs"),
        keep=_flag(extra, "keep"),
        former=None if former is None else _former(former),
    )
    return Asked(request, asked.stream, True, True)


def refused(sentence: str) -> NodeError:
    """A question that cannot be answered."""
    return NodeError(Code.RL_REQUEST, sentence)


def _asked(body: Mapping[str, Any], tokens: tuple[int, ...], texts: Texts, logprobs: bool) -> Asked:
    if body.get("n", 1) != 1 or body.get("best_of", 1) not in (None, 1):
        raise refused("n must be 1: ask several times.")
    stop = body.get("stop")
    listed = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise refused("stop must be a text or a list of texts.")
    eos = texts.eos if body.get("stop_token_ids") is None else _ids(body["stop_token_ids"], "stop_token_ids")
    most = body.get("max_completion_tokens")
    try:
        sampling = Sampling(
            temperature=_number(body, "temperature", 1.0),
            top_p=_number(body, "top_p", 1.0),
            top_k=max(0, _whole(body, "top_k", 0, 2**31, least=-1)),
            max_tokens=_whole(body, "max_tokens", 256, 2**31)
            if most is None
            else _whole(body, "max_completion_tokens", 1, 2**31),
            stop=tuple(listed),
            eos=() if _flag(body, "ignore_eos") else eos,
        )
    except ValueError as error:
        raise refused(f"{error}.") from None
    seed = body.get("seed")
    if seed is None:
        key = secrets.token_bytes(32)
    elif isinstance(seed, int) and not isinstance(seed, bool) and -(2**63) <= seed < 2**64:
        key = blake3(str(seed).encode(), derive_key_context=_SEED_CONTEXT).digest()
    else:
        raise refused("seed must be a whole number of 64 bits.")
    id = body.get("request_id") or secrets.token_hex(16)
    if not isinstance(id, str):
        raise refused("request_id must be a text.")
    return Asked(
        Request(id, tokens, key, sampling), _flag(body, "stream"), logprobs, _flag(body, "return_token_ids")
    )


def _message(value: Any) -> Message:
    named = value.get("role") if isinstance(value, dict) else None
    role = _ROLES.get(named) if isinstance(named, str) else None
    if role is None:
        raise refused("Each message needs a role: system, user, assistant or tool.")
    content = value.get("content")
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    ):
        content = "".join(str(part.get("text", "")) for part in content)
    if content is None:
        content = ""
    if not isinstance(content, str):
        raise refused("A message's content must be text.")
    if calls := value.get("tool_calls"):
        content = tool_calls.written(content, _calls(calls))
    return Message(role, content)  # type: ignore[arg-type]


def _calls(value: Any) -> tuple[tool_calls.Call, ...]:
    """Calls that were made before, of a message."""
    try:
        return tuple(
            tool_calls.Call(
                str(call["function"]["name"]), json.dumps(json.loads(call["function"]["arguments"]))
            )
            for call in value
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        raise refused("tool_calls must be functions with a name and arguments that are JSON.") from None


def _tools(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    value = body.get("tools") or ()
    if body.get("tool_choice") == "none":
        return ()
    if not isinstance(value, list | tuple) or len(value) > _MAX_TOOLS:
        raise refused(f"tools must be a list of at most {_MAX_TOOLS}.")
    for each in value:
        function = each.get("function") if isinstance(each, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise refused("Each of tools must be a function with a name.")
    return value


def _former(value: Any) -> Former:
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        raise refused("former must be an object with an id.")
    proofs = value.get("proofs", [])
    if not isinstance(proofs, list) or len(proofs) > _MAX_PROOFS:
        raise refused("former.proofs must be a list of proofs.")
    return Former(
        value["id"],
        _whole(value, "length", 0, 2**31),
        tuple(_bytes({"proof": each}, "proof", None) for each in proofs),
        _ids(value.get("proof_versions", []), "proof_versions"),
        _whole(value, "refills", 0, 2**31),
    )


def _ids(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise refused(f"{name} must be a list of whole numbers.")
    if not all(type(each) is int and -(2**31) <= each < 2**31 for each in value):
        raise refused(f"{name} must be a list of whole numbers of 32 bits.")
    return tuple(value)


def _only(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: body[name] for name in names if name in body}


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise refused(f"{name} must be true or false.")
    return bool(value)


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise refused(f"{name} must be a number.")
    return float(value)


def _whole(body: Mapping[str, Any], name: str, default: int, below: int, least: int = 0) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not least <= value < below:
        raise refused(f"{name} must be a whole number of at least {least}.")
    return value


def _bytes(body: Mapping[str, Any], name: str, digits: int | None) -> bytes:
    value = body.get(name)
    try:
        if isinstance(value, str) and (len(value) == digits if digits else len(value) <= _PROOF_DIGITS):
            return bytes.fromhex(value)
    except ValueError:
        pass
    raise refused(f"{name} must be {digits or 'hexadecimal'} digits.")
