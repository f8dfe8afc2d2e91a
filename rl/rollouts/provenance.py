"""Provenance as JSON: what stands in a rollout file's footer."""

import json
import re
from dataclasses import asdict
from typing import Any

from protocol.errors import Code, NodeError
from protocol.identity import public_key_of
from protocol.units import DIGEST_BYTES, Digest, PeerId, RunId
from rl.rollouts.limits import PROVENANCE_BYTES
from rl.rollouts.record import SCHEMA, Provenance
from rl.sampling.settings import Sampling

_DIGESTS = ("weights", "beacon", "tokenizer")
_RUN = re.compile(r"[0-9a-f]{64}")
_MAX_NAME = 128
_MAX_STOPS = 64
_BIGGEST = 2**62


def to_json(provenance: Provenance) -> bytes:
    """The one way to write a provenance."""
    held = asdict(provenance)
    for name in _DIGESTS:
        held[name] = held[name].hex()
    return json.dumps(held, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def from_json(text: bytes) -> Provenance:
    """The provenance that :func:`to_json` wrote.

    Raises:
        NodeError: ``E-RL-001`` for anything else, and for another schema.
    """
    if len(text) > PROVENANCE_BYTES:
        raise _bad(f"it has {len(text)} bytes, at most {PROVENANCE_BYTES} are allowed")
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad("it is not JSON") from None
    if not isinstance(held, dict):
        raise _bad("it is not an object")
    if held.get("schema") != SCHEMA:
        raise _bad(f"its schema is {str(held.get('schema'))[:20]}, this node reads {SCHEMA}")
    try:
        provenance = _provenance(held)
        written = to_json(provenance)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _bad(f"a field is missing, unknown or not what it should be ({str(error)[:80]})") from None
    if written != text:
        raise _bad("it is not written in the one way there is")
    return provenance


def _provenance(held: dict[str, Any]) -> Provenance:
    given = held.pop("sampling")
    sampling = Sampling(
        temperature=_real(given.pop("temperature")),
        top_p=_real(given.pop("top_p")),
        top_k=_whole(given.pop("top_k")),
        max_tokens=_whole(given.pop("max_tokens")),
        stop=tuple(_text(item) for item in _few(given.pop("stop"))),
        eos=tuple(_whole(item) for item in _few(given.pop("eos"))),
        **given,  # whatever is unknown is refused by the class
    )
    for name in _DIGESTS:
        held[name] = _digest(held[name])
    for name in ("counter", "version"):
        held[name] = _whole(held[name])
    for name in ("environment", "environment_version"):
        held[name] = _text(held[name])
    for name in ("worker", "trainer"):
        held[name] = _peer(held[name])
    if not isinstance(held["run"], str) or not _RUN.fullmatch(held["run"]):
        raise ValueError("run")
    return Provenance(**{**held, "run": RunId(held["run"]), "sampling": sampling})


def _bad(why: str) -> NodeError:
    return NodeError(Code.RL_FILE_UNREADABLE, f"The provenance in a rollout file cannot be read: {why}.")


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _BIGGEST:
        raise ValueError(f"{str(value)[:20]} is not a whole number from 0")
    return value


def _real(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value < _BIGGEST:  # type: ignore[operator]
        raise ValueError(f"{str(value)[:20]} is not a number from 0")
    return value  # type: ignore[return-value]  # 1 stays 1, so that what is written again is the same


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_NAME:
        raise ValueError("a text is missing or too long")
    return value


def _few(value: object) -> list[object]:
    if not isinstance(value, list) or len(value) > _MAX_STOPS:
        raise ValueError("a list is missing or too long")
    return value


def _digest(value: object) -> Digest:
    digest = bytes.fromhex(value) if isinstance(value, str) else b""
    if len(digest) != DIGEST_BYTES:
        raise ValueError("a digest is missing or too short")
    return Digest(digest)


def _peer(value: object) -> PeerId:
    try:
        public_key_of(value)  # type: ignore[arg-type]  # it refuses what is no text
    except NodeError as error:
        raise ValueError(error.sentence) from None
    return PeerId(str(value))
