"""What a simulated process has beside its machine: its disk, its habits, what it trains, where it is to die."""

from dataclasses import dataclass, field

from blake3 import blake3

from diloco.rounds.certificate import Certified
from diloco.rounds.events import Persist
from diloco.rounds.recovery import Kept
from diloco.rounds.values import Lease, Value

_STATES = 16


@dataclass
class Disk:
    """What survives a restart.

    Attributes:
        chain: The certified values that stand, oldest first.
        promise: What ``Persist`` wrote last.
        base: Digest of the outer state.
        reached: The round that starts from it.
        states: The states of the last rounds, that can be restored from checkpoints and reduced bytes.
        rival: The other side of a fork.
        chunks: Digests of the reduced chunks that are kept.
        frozen: The last frozen contribution.
        forgot: It once held nothing, or no room for a contribution.
        slow: Seconds that a write takes.
        full: Nothing can be written.
    """

    chain: list[Certified]
    base: bytes
    reached: int = 0
    states: dict[int, bytes] = field(default_factory=dict)
    rival: Certified | None = None
    promise: Persist | None = None
    chunks: set[bytes] = field(default_factory=set)
    frozen: Kept | None = None
    forgot: bool = False
    slow: float = 0.0
    full: bool = False

    def reach(self, round_number: int, base: bytes) -> None:
        """The outer state of a round is there."""
        self.reached, self.base = round_number, base
        self.states[round_number] = base
        while len(self.states) > _STATES:
            del self.states[min(self.states)]

    def go_back(self, most: int) -> None:
        """What comes after a round is void: the newest state up to it is the one that is there."""
        self.states = {number: base for number, base in self.states.items() if number <= most}
        if self.reached > most:
            self.reached, self.base = max(self.states.items(), default=(-1, b""))


@dataclass
class Habits:
    """What is wrong with a member for a while, or for ever.

    Attributes:
        pace: Its training takes this many times longer.
        claims: It reports this many times the tokens it trained on.
        old: It speaks a version without the newest optional fields.
        rate: Its monotonic clock runs this fast.
        offset: ... and shows this many seconds more.
    """

    pace: float = 1.0
    claims: int = 1
    old: bool = False
    rate: float = 1.0
    offset: float = 0.0


@dataclass
class Share:
    """Training on a lease: done at a time, if nothing stops it."""

    lease: Lease
    done_at: float


@dataclass
class Crash:
    """The process dies right before or after it carries out its next effect of a kind."""

    kind: str
    after: bool
    down: float | None


def state_after(base: bytes, value: Value) -> bytes:
    """The digest that stands for the outer state after a round."""
    if not value.chunks:
        return base
    return blake3(b"state" + base + b"".join(entry.digest for entry in value.chunks)).digest()
