"""What a member says of itself: phase, statements and decisions in the event log, its heartbeat to the others."""

from diloco.member.messages import Heartbeat
from diloco.member.setting import Setting
from diloco.member.training import Share
from diloco.rounds.certificate import Certified
from diloco.rounds.events import Statement
from diloco.rounds.leases import samples_of
from diloco.rounds.state import State
from diloco.rounds.statements import Ready, Vote
from diloco.rounds.waiting import Waiting, waiting

_SENTENCE = 300


class Telling:
    """Writes what happens to a member, a phase once per change.

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

    def waiting(self, state: State | None) -> Waiting:
        """What a member does or waits for now; ``state`` is None before it has begun."""
        if state is None:
            return Waiting("joining", "start", "Finding the run's chain and state.")
        if state.leaving and not belongs(state):
            return Waiting("draining", "acknowledgements", "Waiting for the others to have the last round.")
        return waiting(state, self._setting.clock())

    def said(self, body: Statement) -> None:
        """Write that a Ready or a vote goes out."""
        if isinstance(body, Ready):
            self._setting.emit("ready.sent", round=body.round, attempt=body.attempt)
        elif isinstance(body, Vote):
            self._setting.emit("vote", round=body.round, attempt=body.attempt, value=body.value.hex())

    def committed(self, certified: Certified, spent: bool) -> None:
        """Write what a round has decided, and whether this member's contribution is spent with it."""
        value = certified.value
        self._setting.emit(
            "commit", epoch=value.epoch, round=value.round, attempt=certified.attempt, value=certified.digest.hex(),
            roster=[entry.peer for entry in value.roster], tokens=value.tokens, partial_tokens=value.partial_tokens,
            electorate=[e.peer for e in value.electorate], spent=spent,
        )  # fmt: skip

    def renewed(self, certified: Certified) -> None:
        """Write that an epoch begins."""
        value = certified.value
        self._setting.emit(
            "reset", epoch=value.epoch, round=value.round, value=certified.digest.hex(),
            electorate=[e.peer for e in value.electorate],
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
