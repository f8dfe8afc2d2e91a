"""Evidence against members: it outlives the process, is shown to everyone, and costs the accused its seat (rule 16)."""

from collections.abc import Callable, Iterator

from diloco.member.outgoing import Outgoing
from diloco.member.setting import Setting
from diloco.rounds import routing
from diloco.rounds.events import Event, EvidenceCame
from diloco.rounds.evidence import Proof
from diloco.rounds.state import State
from diloco.store.ledger import Ledger
from protocol.errors import NodeError
from protocol.units import PeerId


class Accusing:
    """Keeps evidence and gives it to the round machine.

    Args:
        setting: The member's setting.
        ledger: Where it is kept.
        outgoing: Where it is told.
        state: The round machine's state now; None before the member has begun.
        post: Gives the machine an event.
    """

    def __init__(
        self,
        setting: Setting,
        ledger: Ledger,
        outgoing: Outgoing,
        *,
        state: Callable[[], State | None],
        post: Callable[[Event], None],
    ) -> None:
        self._setting, self._ledger, self._outgoing = setting, ledger, outgoing
        self._state, self._post = state, post

    def concerns(self, peer: str) -> bool:
        """Whether a peer has or may get a place in the run."""
        state = self._state()
        known = set() if state is None else routing.voters(state.value) | set(state.value.members)
        return peer in known or peer in set(self._setting.peers())

    def accused(self, proof: Proof) -> None:
        """Verified evidence against a member came."""
        self._post(EvidenceCame(proof))

    def keep(self, proof: Proof, by: PeerId) -> None:
        """Evidence is new here: it outlives this process, and what this member has found out is told to all."""
        try:
            self._ledger.keep_evidence(proof.evidence)
        except NodeError as error:
            self._lost(error)
        if by == self._setting.me and self._state() is not None:
            self._outgoing.tell_everyone(self._outgoing.seal(proof.evidence))

    def recall(self) -> Iterator[Proof]:
        """What was found out before this process began still costs the seat."""
        for raw in self._ledger.evidence():
            try:
                proof = self._setting.rules.check_evidence(raw)
            except NodeError as error:
                self._lost(error)
                continue
            self.accused(proof)
            yield proof

    def _lost(self, error: NodeError) -> None:
        self._setting.emit("evidence.lost", code=str(error.code), reason=error.sentence)
