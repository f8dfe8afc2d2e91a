"""What a member says of itself: its phase in the event log, its heartbeat to the others."""

from diloco.member.messages import Heartbeat
from diloco.member.setting import Setting
from diloco.member.training import Share
from diloco.rounds.leases import samples_of
from diloco.rounds.state import State
from diloco.rounds.waiting import Waiting

_SENTENCE = 300


class Telling:
    """Writes a phase once per change.

    Args:
        setting: The member's setting.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._last: tuple[object, ...] = ()

    def phase(self, now: Waiting, round_number: int, attempt: int) -> None:
        """Write what the member does or waits for, if it is news."""
        phase = (now.phase, now.reason, round_number, attempt, now.missing)
        if phase == self._last:
            return
        self._last = phase
        left = None if now.until is None else max(0.0, now.until - self._setting.clock())
        self._setting.emit(
            "node.phase", phase=now.phase, reason=now.reason, sentence=now.sentence, until=left,
            missing=list(now.missing), round=round_number, attempt=attempt,
        )  # fmt: skip

    def heartbeat(self, state: State, now: Waiting, share: Share | None, reached: int) -> Heartbeat:
        """The heartbeat of a member that has applied every round before ``reached``."""
        lease = state.lease
        per_step = self._setting.genesis.sections.inner.samples_per_step
        return Heartbeat(
            epoch=state.epoch,
            round=min(reached, state.round),
            attempt=state.attempt,
            phase=now.phase,
            step=share.steps if share else 0,
            steps=-(-samples_of(lease) // per_step) if lease else 0,
            loss=share.loss if share else 0.0,
            sentence=now.sentence[:_SENTENCE],
        )


def belongs(state: State) -> bool:
    """Whether the member is a voter or member of the next round, not one that has left."""
    value = state.value
    if state.me in value.left:
        return False
    return any(e.peer == state.me for e in value.electorate) or state.me in value.members
