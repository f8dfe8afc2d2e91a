"""What becomes of a published message that arrives: taken and passed on, left alone, or held against who brought it.

Left alone is what an honest neighbour may pass on: copies, old boots, senders whose admission has not arrived here,
more than a sender's rate. Held against the neighbour is what it should have refused itself: too large, malformed, a
signature that does not verify, an envelope that is addressed to somebody.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from blake3 import blake3

from protocol.envelope import ReplayWindow, Sealed, unseal
from protocol.errors import Code, NodeError
from protocol.gossip.limits import MAX_REMEMBERED, MAX_SENDERS
from protocol.identity import Verifier, verify
from protocol.limits import MAX_HEADER, MAX_SIGNATURE
from protocol.messages.registry import Spec
from protocol.rpc.throttle import RateLimits
from protocol.units import PeerId, RunId

_BOOT_BYTES = 16
_ENVELOPE = MAX_HEADER + MAX_SIGNATURE + 3


class Judgement(StrEnum):
    """What is done with a message."""

    ACCEPT = "accept"
    """It is new and good: it is handled, kept and passed on."""
    IGNORE = "ignore"
    """It goes no further; nobody is to blame."""
    REJECT = "reject"
    """It goes no further, and the neighbour that passed it on is to blame."""


@dataclass(frozen=True)
class Verdict:
    """A judgement with its reason.

    Attributes:
        judgement: What is done.
        code: Why, unless it is accepted.
        sealed: The message, if it is accepted.
    """

    judgement: Judgement
    code: Code | None = None
    sealed: Sealed[Any] | None = None


_COPY = Verdict(Judgement.IGNORE, Code.WIRE_REPLAY)
_BLAMELESS = (Code.NET_VERSION,)


class Judge:
    """Judges messages of all topics of one node. Used by one thread at a time.

    Args:
        run: The run that messages have to belong to.
        audience: Who may publish what.
        boot_of: The boot number that a sender's latest record names, None where there is no record; a message of
            another boot waits for the record.
        verifier: Checks signatures.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        run: RunId,
        audience: Callable[[PeerId, str], bool],
        *,
        boot_of: Callable[[PeerId], bytes | None] = lambda peer: None,
        verifier: Verifier = verify,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._audience, self._boot_of, self._verifier = run, audience, boot_of, verifier
        self._rates = RateLimits(clock=clock)
        self._windows: dict[str, ReplayWindow] = {}
        self._senders: dict[str, OrderedDict[PeerId, None]] = {}
        self._remembered: OrderedDict[bytes, Verdict] = OrderedDict()

    def judge(self, spec: Spec, raw: bytes, *, late: bool = False) -> Verdict:
        """Judges what arrived on a topic.

        Args:
            spec: The topic's contract.
            raw: The envelope that came.
            late: It is an answer to a question for what was missed: many may come at once.
        """
        if len(raw) > spec.max_bytes + _ENVELOPE:
            return Verdict(Judgement.REJECT, Code.WIRE_TOO_LARGE)
        digest = blake3(raw).digest()
        known = self._remembered.get(digest)
        if known is not None:
            self._remembered.move_to_end(digest)
            return known if known.judgement is Judgement.REJECT else _COPY
        verdict = self._judge_new(spec, raw, late)
        if verdict.judgement is not Judgement.IGNORE or verdict.code is Code.WIRE_REPLAY:
            self._remember(digest, verdict)
        return verdict

    def own(self, spec: Spec, sealed: Sealed[Any]) -> None:
        """Takes note of a message that this node publishes itself."""
        self._remember(sealed.digest, _COPY)
        self._is_fresh(spec, sealed)

    def _judge_new(self, spec: Spec, raw: bytes, late: bool) -> Verdict:
        try:
            sealed: Sealed[Any] = unseal(raw, run=self._run, expect=spec.cls, verifier=self._verifier)
        except NodeError as error:
            blame = Judgement.IGNORE if error.code in _BLAMELESS else Judgement.REJECT
            return Verdict(blame, error.code)
        if sealed.recipient is not None:
            return Verdict(Judgement.REJECT, Code.WIRE_WRONG_RECIPIENT)
        if len(sealed.boot) != _BOOT_BYTES:
            return Verdict(Judgement.REJECT, Code.WIRE_INVALID)
        if spec.audience != "anyone" and not self._audience(sealed.sender, spec.audience):
            return Verdict(Judgement.IGNORE, Code.NET_AUDIENCE)
        boot = self._boot_of(sealed.sender)
        # another boot is an old one, shown to one who never saw it; or so new that its record lags
        if boot and boot != sealed.boot:
            return Verdict(Judgement.IGNORE, Code.NET_UNTRUSTED)
        if not late and spec.rate is not None and not self._rates.allow(sealed.sender, spec.name, spec.rate):
            return Verdict(Judgement.IGNORE, Code.NET_RATE)
        if not self._is_fresh(spec, sealed):
            return Verdict(Judgement.IGNORE, Code.WIRE_REPLAY)
        return Verdict(Judgement.ACCEPT, None, sealed)

    def _is_fresh(self, spec: Spec, sealed: Sealed[Any]) -> bool:
        window = self._windows.setdefault(spec.name, ReplayWindow())
        senders = self._senders.setdefault(spec.name, OrderedDict())
        try:
            window.accept(sealed)
        except NodeError:
            return False
        senders[sealed.sender] = None
        senders.move_to_end(sealed.sender)
        if len(senders) > MAX_SENDERS:
            window.forget(senders.popitem(last=False)[0])
        return True

    def _remember(self, digest: bytes, verdict: Verdict) -> None:
        self._remembered[digest] = Verdict(verdict.judgement, verdict.code)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
