"""Who stands outside the run and shows an expired admission is not let in (rule 10)."""

from diloco.member.admission import lets_enter, read_admission
from diloco.member.setting import Setting
from diloco.rounds.state import State
from diloco.rounds.statements import Ready
from protocol.envelope import Sealed
from protocol.errors import NodeError
from protocol.units import PeerId


class Entrance:
    """Judges the Readys of newcomers by this member's clock, before the round machine sees them.

    No value depends on it: a leader does not list a newcomer that it did not let in, and others accept one that it did.

    Args:
        setting: The member's setting.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._barred: set[PeerId] = set()

    def lets_in(self, state: State | None, sealed: Sealed[Ready]) -> bool:
        """Whether a Ready is for the round machine: its sender is in the run, or its admission has not expired."""
        peer, raw, setting = sealed.sender, sealed.message.admission, self._setting
        if not raw or state is None or peer in state.value.members:
            return True
        if any(elector.peer == peer for elector in state.value.electorate):
            return True
        operator, verifier = setting.genesis.operator, setting.endpoint.verifier
        try:
            admission = read_admission(raw, setting.run, operator, peer, verifier=verifier)
        except NodeError:
            return True  # the machine says what is wrong with it
        if lets_enter(admission, setting.run, operator, setting.wall(), verifier=verifier):
            self._barred.discard(peer)
            return True
        if peer not in self._barred:
            self._barred.add(peer)
            setting.emit("ready.refused", peer=peer, reason="its admission has expired and has to be renewed")
        return False
