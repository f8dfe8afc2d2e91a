"""What the event log shows of an orchestrator's effects. Pure."""

from dataclasses import fields

from rl.orchestration.difficulty import solved
from rl.orchestration.events import AskVerdict, Ban, Dispute, Distrust, Effect, Give, Lift, Receipt, Report
from rl.orchestration.rows import Work
from rl.orchestration.state import State

_HIDDEN = ("link",)

_KINDS: dict[type, str] = {
    AskVerdict: "rollout.ask", Report: "rollout.verdict", Ban: "worker.banned", Lift: "worker.pardoned",
    Dispute: "rollout.dispute", Distrust: "validator.distrusted", Receipt: "rollout.receipt", Give: "work.given",
}  # fmt: skip


def told(effect: Effect, before: State, after: State) -> tuple[str, dict[str, object]] | None:
    """The kind and the fields of an effect's event; None for what is not told.

    Args:
        effect: The effect.
        before: The state before the event that it is of; what it is about may be gone after it.
        after: The state after it.
    """
    kind = _KINDS.get(type(effect))
    if kind is None:
        return None
    more = _about(effect, before, after) if isinstance(effect, Report) else {}
    return kind, _shown(effect) | more


def _about(report: Report, before: State, after: State) -> dict[str, object]:
    """What the event of a verdict tells beside the verdict: rewards, ages, and who judged."""
    key = report.digest.hex()
    file = after.kept.files.get(key) or before.kept.files.get(key)
    rewards = [reward for group in file.groups for reward in group.rewards] if file is not None else []
    if file is None or not rewards:
        return {}
    return {
        "rollouts": len(rewards), "reward": sum(rewards) / len(rewards), "solved": solved(rewards),
        "version": file.version, "staleness": after.policy - file.version,
        "validators": [opinion.validator for opinion in file.opinions],
    }  # fmt: skip


def _shown(effect: object) -> dict[str, object]:
    """An effect's fields as the event log shows them."""
    shown: dict[str, object] = {}
    for each in fields(effect):  # type: ignore[arg-type]
        if each.name in _HIDDEN:
            continue
        value = getattr(effect, each.name)
        if isinstance(value, Work):
            shown |= {
                "worker": value.worker, "counter": value.counter, "version": value.version,
                "positions": list(value.positions),
            }  # fmt: skip
        elif isinstance(value, tuple):
            shown[each.name] = [item.hex() if isinstance(item, bytes) else item for item in value]
        else:
            shown[each.name] = value.hex() if isinstance(value, bytes) else value
    return shown
