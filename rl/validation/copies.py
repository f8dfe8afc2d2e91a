"""Copied rollouts and proofs, across files and workers.

Two rollouts may well be equal: a short answer that nearly every draw gives. So equal tokens are a copy only where
their own log-probabilities say that two draws would never have met. A proof depends on every token before it, so one
proof of two different texts is a copy in any case.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from blake3 import blake3

from protocol.errors import Code
from protocol.units import Digest, PeerId
from rl.rollouts.record import CHUNK, Group, Rollout
from rl.validation.verdict import Finding

_KEY = 16
_UNLIKELY = 40.0
"""Nats: two independent draws are the same text with a probability of e^-40."""
MOST = 1 << 17


@dataclass(frozen=True)
class _Text:
    file: Digest
    worker: PeerId
    position: int
    index: int


class Seen:
    """What accepted files held, the newest ``most`` texts and proofs. Used by one task at a time."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._texts: OrderedDict[bytes, _Text] = OrderedDict()
        self._proofs: OrderedDict[bytes, bytes] = OrderedDict()

    def check(self, file: Digest, worker: PeerId, groups: Sequence[Group]) -> list[Finding]:
        """Findings on a file, against what was accepted before and within itself."""
        found: list[Finding] = []
        texts: dict[bytes, _Text] = {}
        proofs: dict[bytes, bytes] = {}
        for rollout in (rollout for group in groups for rollout in group.rollouts):
            here = _Text(file, worker, rollout.position, rollout.index)
            key = _text_key(rollout)
            other = texts.get(key) or self._texts.get(key)
            unlikely = -float(rollout.logprobs[rollout.sampled].sum())
            if other is not None and other != here and unlikely > _UNLIKELY:
                found.append(_copied_text(rollout, other, unlikely))
            texts[key] = here
            for chunk, (proof, prefix) in enumerate(_proof_keys(rollout)):
                known = proofs.get(proof) or self._proofs.get(proof)
                if known is not None and known != prefix:
                    sentence = f"Proof {chunk} was handed in before, for another text."
                    evidence: dict[str, int | str] = {"chunk": chunk, "proof": proof.hex()}
                    found.append(Finding(Code.RL_COPY, sentence, rollout.position, rollout.index, evidence))
                proofs[proof] = prefix
        return found

    def add(self, file: Digest, worker: PeerId, groups: Sequence[Group]) -> None:
        """Remembers an accepted file."""
        for rollout in (rollout for group in groups for rollout in group.rollouts):
            self._texts.setdefault(_text_key(rollout), _Text(file, worker, rollout.position, rollout.index))
            for proof, prefix in _proof_keys(rollout):
                self._proofs.setdefault(proof, prefix)
        for held in (self._texts, self._proofs):
            while len(held) > self._most:
                held.popitem(last=False)


def _copied_text(rollout: Rollout, other: _Text, unlikely: float) -> Finding:
    return Finding(
        Code.RL_COPY,
        f"The same {int(rollout.sampled.sum())} tokens were handed in by {other.worker} for position {other.position}, "
        f"rollout {other.index}; two draws agree so far with a probability of e^-{unlikely:.0f}.",
        rollout.position,
        rollout.index,
        {"file": other.file.hex(), "position": other.position, "index": other.index, "nats": unlikely},
    )


def _text_key(rollout: Rollout) -> bytes:
    """A name of what was sampled."""
    return blake3(rollout.tokens[rollout.sampled].astype("<i4").tobytes()).digest(_KEY)


def _proof_keys(rollout: Rollout) -> list[tuple[bytes, bytes]]:
    """For each proof its name, and that of the text whose states it proves."""
    last = rollout.end - 1  # the last token is predicted by a proved state, and is not read by one
    hasher = blake3(rollout.tokens[: rollout.prompt].astype("<i4").tobytes())
    keys = []
    for chunk, proof in enumerate(rollout.proofs):
        start = rollout.prompt + CHUNK * chunk
        hasher.update(rollout.tokens[start : min(start + CHUNK - 1, last)].astype("<i4").tobytes())
        keys.append((blake3(proof).digest(_KEY), hasher.digest(_KEY)))
        hasher.update(rollout.tokens[start + CHUNK - 1 : start + CHUNK].astype("<i4").tobytes())
    return keys
