"""What an event of a member's log says of others, as facts. Pure."""

from collections.abc import Mapping
from typing import Any

from node.coordinator.facts import Admitted, Evidence, Fact, Policy, Refused, Verdict
from node.coordinator.folds.making import number, whole

_MOST = 1_000_000  # rollouts in one file, and versions that one may be behind


def told(
    peer: str, kind: str, fields: Mapping[str, Any], now: float, *, own: bool, trains: bool
) -> tuple[Fact, ...]:
    """The facts that an event holds beside itself.

    Args:
        peer: Whose event.
        kind: Its kind.
        fields: Its fields, of whatever types.
        now: When it came, Unix seconds.
        own: It is this node's own, which has done or verified what it says.
        trains: The peer trains in the run: verdicts of others are not taken.
    """
    if own and kind in _OWN:
        return (_OWN[kind](peer, fields, now),)
    if trains and kind in _TRAINERS:
        return (_TRAINERS[kind](peer, fields, now),)
    if kind in ("policy.published", "policy.brought", "policy.running"):
        return (_version(peer, fields, now),)
    return ()


def _text(fields: Mapping[str, Any], name: str) -> str:
    return str(fields.get(name) or "")


def _count(fields: Mapping[str, Any], name: str) -> int:
    return min(max(whole(fields.get(name), 0), 0), _MOST)


def _admitted(peer: str, fields: Mapping[str, Any], now: float) -> Fact:
    return Admitted(
        seen_at=now, source=peer, peer=_text(fields, "peer"), seat=bool(fields.get("seat")), by=_text(fields, "by"),
        expires_at=whole(fields.get("expires_at"), 0), renewal=bool(fields.get("renewal")),
    )  # fmt: skip


def _refused(peer: str, fields: Mapping[str, Any], now: float) -> Fact:
    return Refused(
        seen_at=now, source=peer, trust="witnessed", peer=_text(fields, "peer"), what="admission",
        code=_text(fields, "code"), reason=_text(fields, "reason"),
    )  # fmt: skip


def _evidence(peer: str, fields: Mapping[str, Any], now: float) -> Fact:
    return Evidence(
        seen_at=now, source=peer, trust="witnessed", accused=_text(fields, "accused"), kind=_text(fields, "what"),
        sentence=_text(fields, "sentence"), round=whole(fields.get("round"), -1),
    )  # fmt: skip


def _verdict(peer: str, fields: Mapping[str, Any], now: float) -> Fact:
    judges = fields.get("validators")
    judge = str(judges[0]) if isinstance(judges, list) and judges else peer
    return Verdict(
        seen_at=now, source=peer, trust="witnessed", worker=_text(fields, "worker"), file=_text(fields, "digest"),
        outcome="accepted" if fields.get("accepted") is True else "refused", code=_text(fields, "code"),
        sentence=_text(fields, "sentence"), validator=judge, rollouts=_count(fields, "rollouts"),
        reward=number(fields.get("reward")), solved=number(fields.get("solved")),
        staleness=_count(fields, "staleness"),
    )  # fmt: skip


def _banned(peer: str, fields: Mapping[str, Any], now: float) -> Fact:
    return Refused(
        seen_at=now, source=peer, trust="witnessed", peer=_text(fields, "worker"), what="rollouts",
        reason=_text(fields, "sentence"),
    )  # fmt: skip


def _distrusted(peer: str, fields: Mapping[str, Any], now: float) -> Fact:
    return Refused(
        seen_at=now, source=peer, trust="witnessed", peer=_text(fields, "validator"), what="verdicts",
        reason="Its verdict on a file was wrong.",
    )  # fmt: skip


def _version(peer: str, fields: Mapping[str, Any], now: float) -> Fact:
    return Policy(
        seen_at=now, source=peer, trust="self-reported", version=whole(fields.get("version"), 0),
        digest=_text(fields, "digest"), size=max(whole(fields.get("bytes"), 0), 0), holder=peer, kind="policy",
    )  # fmt: skip


_OWN = {"admission.given": _admitted, "admission.refused": _refused, "evidence": _evidence}
_TRAINERS = {"rollout.verdict": _verdict, "worker.banned": _banned, "validator.distrusted": _distrusted}
