"""What this member found out about others, and says in its Readys."""

from collections.abc import Callable

from diloco.member.setting import Setting
from diloco.reduce.rates import Rates
from diloco.rounds.events import Event, Observed
from diloco.rounds.state import State
from protocol.units import PeerId

_MOST = 64  # peers of a kind that a Ready names
_RELAYED = "relayed"  # as the endpoint names the way


class Findings:
    """Rates of links, owners that did not show their work, peers against whom there is evidence.

    Args:
        setting: The member's setting.
        state: The round machine's state now.
        post: Gives the machine an event.

    Attributes:
        rates: Measured pulls.
        unshown: Owners that did not show what they had averaged when this member asked last.
        convicted: Peers against whom this member has verified evidence.
    """

    def __init__(
        self, setting: Setting, *, state: Callable[[], State], post: Callable[[Event], None]
    ) -> None:
        self._setting, self._state, self._post = setting, state, post
        self.rates = Rates()
        self.unshown: set[str] = set()
        self.convicted: set[str] = set()

    def report(self) -> None:
        """Have the next Ready say what is known now."""
        voters = [e.peer for e in self._state().value.electorate if e.peer != self._setting.me]
        path_of = self._setting.endpoint.path_of
        rates = self.rates.table(voters, lambda peer: path_of(PeerId(peer)) == _RELAYED)
        unshown, convicted = sorted(self.unshown)[:_MOST], sorted(self.convicted)[:_MOST]
        self._post(Observed(rates, tuple(unshown), tuple(convicted)))
