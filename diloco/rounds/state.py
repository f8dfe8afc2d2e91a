"""The round machine's state, and what can be read off it without changing it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median

from diloco.rounds import planning
from diloco.rounds.certificate import Certified
from diloco.rounds.electorate import is_quorum
from diloco.rounds.events import Contribution, Observed
from diloco.rounds.late import Past
from diloco.rounds.records import Order
from diloco.rounds.roster import Plan
from diloco.rounds.rules import Rules
from diloco.rounds.statements import AskReset, Close, Proposal, Ready, Vote
from diloco.rounds.values import Lease, Value
from protocol.envelope import Sealed


@dataclass(frozen=True)
class Timing:
    """Deadlines of a round, on the member's own monotonic clock (docs/rounds.md, rules 8 and 13).

    Attributes:
        floor: A leader waits at least this long for Readys.
        factor: ... and this many times their median.
        mad: ... and the median plus this many median absolute deviations.
        most: ... but never longer than this after the round began.
        attempt: Length of attempt 0 after that.
        growth: Each attempt is this many times longer.
        longest: Bound of both; must exceed the longest reduce.
        lost: A member that sees no way to a decision for this long asks for a reset.
        grace: How much longer an attempt goes on when its leader is believed dead.
    """

    floor: timedelta = timedelta(seconds=10)
    factor: float = 1.5
    mad: float = 4.0
    most: timedelta = timedelta(seconds=120)
    attempt: timedelta = timedelta(seconds=60)
    growth: float = 1.5
    longest: timedelta = timedelta(minutes=10)
    lost: timedelta = timedelta(minutes=5)
    grace: timedelta = timedelta(seconds=1)


MOST_IDLE = 2
"""Who gave nothing for its lease so many times running is not waited for until a value has it in its roster."""


@dataclass(frozen=True)
class Ballot:
    """The last vote given in a round, as it stands on disk."""

    attempt: int
    value: bytes
    close: bytes = b""


@dataclass(frozen=True)
class State:
    """Everything a member knows about the round after its tip.

    Attributes:
        me: This member's peer id.
        rules: What the genesis fixes.
        timing: Deadlines.
        boot: Boot nonce of this process.
        started: When this process started, Unix milliseconds; more than for any earlier one of its data directory.
        tip: Last certified value.
        beacon_key: Secret of this member (32 bytes), from which its nonces follow.
        admission: This member's admission (envelope), said until it is in the electorate.
        abstains: This member's vote record is gone (rule 9).
        leaving: This member drains.
        base: Digest of this member's outer state, once it is in memory.
        contribution: The frozen contribution, once there is one.
        promised: Highest attempt promised in this round; -1 before.
        recovered: Promise found on disk at start: no attempt up to it is led.
        said: Attempt of the last Ready said; -1 before.
        proposed: Highest attempt in which this member proposed or closed; -1 before.
        ballot: Last vote in this round.
        vote_said: Attempt of the last vote said; -1 before.
        readys: Ready of the highest attempt, per peer.
        arrivals: Seconds after the start of the round at which each peer's first Ready came.
        proposal: The proposal of the current attempt, verified.
        plan: What it means when it is free.
        forced: The value that it takes up when it is not, else empty.
        closes: Verified Close per attempt.
        bodies: Encoded values by digest.
        plans: By value digest, the plan of a free Close; a value that failed its checks fails them in later attempts.
        votes: Votes by (attempt, digest), per peer.
        passed: Attempts that their leader gave up.
        held: Digests of values whose bytes are held.
        fetching: Digests of values being fetched.
        unheld: Digests of values whose bytes cannot be had.
        asks: Resets that voters ask for, per peer.
        asked: Whether this member has asked for one in this round.
        stuck: Since when this member sees that nobody can decide the round, seconds; None while it may be decided.
        halted: Why nothing is decided here until a reset: ``two-certificates`` or ``two-resets``; or that a younger
            process has this member's key, ``superseded``; else empty.
        lost: Digest of a voted value whose bytes nobody has, as the leader of the last attempt found; else empty.
        gone: Peers believed dead.
        idle: In how many of the last values, running, a peer that was alive gave nothing for its lease.
        began: When the round began here, seconds.
        attempt_began: When the current attempt began here, seconds.
        timer: When the current attempt ends, seconds; None while no quorum is ready.
        resynced: Base that was last asked for.
        orders: Operator orders that no value has taken up, by number.
        evidence: Evidence against voters that have not lost their seat for it, encoded, by who is accused.
        observed: What this member found out about others.
        past: What was said of the round before this one.
    """

    me: str
    rules: Rules
    timing: Timing
    boot: bytes
    started: int
    tip: Certified
    beacon_key: bytes
    admission: bytes = b""
    abstains: bool = False
    leaving: bool = False
    base: bytes | None = None
    contribution: Contribution | None = None
    promised: int = -1
    recovered: int = -1
    said: int = -1
    proposed: int = -1
    ballot: Ballot | None = None
    vote_said: int = -1
    readys: Mapping[str, Sealed[Ready]] = field(default_factory=dict)
    arrivals: Mapping[str, float] = field(default_factory=dict)
    proposal: Sealed[Proposal] | None = None
    plan: Plan | None = None
    forced: bytes = b""
    closes: Mapping[int, Sealed[Close]] = field(default_factory=dict)
    bodies: Mapping[bytes, bytes] = field(default_factory=dict)
    plans: Mapping[bytes, Plan] = field(default_factory=dict)
    votes: Mapping[tuple[int, bytes], Mapping[str, Sealed[Vote]]] = field(default_factory=dict)
    passed: frozenset[int] = frozenset()
    held: frozenset[bytes] = frozenset()
    fetching: frozenset[bytes] = frozenset()
    unheld: frozenset[bytes] = frozenset()
    asks: Mapping[str, Sealed[AskReset]] = field(default_factory=dict)
    asked: bool = False
    stuck: float | None = None
    halted: str = ""
    lost: bytes = b""
    gone: frozenset[str] = frozenset()
    idle: Mapping[str, int] = field(default_factory=dict)
    began: float = 0.0
    attempt_began: float = 0.0
    timer: float | None = None
    resynced: bytes = b""
    orders: tuple[Sealed[Order], ...] = ()
    evidence: Mapping[str, bytes] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)
    past: Past = field(default_factory=Past)

    @property
    def value(self) -> Value:
        """The last certified value."""
        return self.tip.value

    @property
    def epoch(self) -> int:
        """Epoch of the current round."""
        return self.value.epoch

    @property
    def round(self) -> int:
        """The round being decided."""
        return self.value.round + 1

    @property
    def attempt(self) -> int:
        """The attempt this member is in."""
        return max(self.promised, 0)

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return self.value.finished or (bool(self.rules.rounds) and self.round >= self.rules.rounds)

    @property
    def lease(self) -> Lease | None:
        """What this member is to train in this round."""
        return self.tip.leases.get(self.me)

    @property
    def votes_here(self) -> bool:
        """Whether this member is a voter of this round with a whole record."""
        return not self.abstains and any(e.peer == self.me for e in self.value.electorate)

    def leader(self, attempt: int) -> str:
        """Who leads an attempt of this round."""
        order = planning.leaders(self.rules, self.value)
        return order[attempt % len(order)]

    def is_quorum(self, peers: set[str]) -> bool:
        """Whether peers are a quorum of this round's electorate."""
        return is_quorum(peers, self.value.electorate, self.value.tie_breaker)

    @property
    def origin(self) -> bytes:
        """Digest of the record that began this epoch."""
        return self.tip.digest if self.value.begins else self.value.origin

    def blocked(self) -> str:
        """Why nobody can decide this round as it stands: no quorum is there, bytes are lost, or the states differ."""
        if not self.is_quorum(self.ready_for(self.attempt)):
            return "quorum"
        if self.lost:
            return "bytes-lost"
        here = self.of_voters()
        bases: dict[bytes, set[str]] = {b"": {e.peer for e in self.value.electorate} - set(here)}
        for peer, ready in here.items():
            bases.setdefault(ready.base, set(bases[b""])).add(peer)
        return "" if any(map(self.is_quorum, bases.values())) else "divergence"

    def highest_seen(self) -> int:
        """The highest attempt that any voter has promised; 0 before."""
        return max((ready.attempt for ready in self.of_voters().values()), default=0)

    def ready_for(self, attempt: int) -> set[str]:
        """Voters with a whole record that are ready for an attempt, or for a later one."""
        here = self.of_voters().items()
        return {peer for peer, ready in here if ready.attempt >= attempt and not ready.lost_record}

    def of_voters(self) -> dict[str, Ready]:
        """The Readys of voters, of any attempt."""
        readys = self.readys
        return {e.peer: readys[e.peer].message for e in self.value.electorate if e.peer in readys}

    def is_early(self, now: float) -> bool:
        """Whether somebody is missing, and a leader waits for everybody yet."""
        began = self.attempt_began if self.attempt > 0 else self.began
        if now >= began + self.timing.floor.total_seconds():
            return False
        return any(peer not in self.readys for peer in self.expected())

    def listed(self, attempt: int) -> dict[str, Ready]:
        """The Readys that a proposal of ``attempt`` would list: voters of exactly that attempt, others of any."""
        voters = {elector.peer for elector in self.value.electorate}
        return {
            peer: sealed.message
            for peer, sealed in sorted(self.readys.items())
            if peer not in voters or sealed.message.attempt == attempt
        }

    def expected(self) -> set[str]:
        """Whose Ready a leader waits for: voters and members that are neither believed dead nor never ready."""
        awaited = ({e.peer for e in self.value.electorate} | set(self.value.members)) - self.gone
        return {peer for peer in awaited if self.idle.get(peer, 0) < MOST_IDLE}

    def missing(self) -> list[str]:
        """Who is expected and has not said Ready for the current attempt."""
        here = self.listed(self.attempt)
        return sorted(peer for peer in self.expected() if peer not in here)

    def ready_deadline(self) -> float:
        """Until when a leader waits for Readys (rule 13), seconds on this member's clock."""
        floor = self.timing.floor.total_seconds()
        if self.attempt > 0:
            return self.attempt_began + floor
        here = self.listed(0)
        times = [self.arrivals[peer] for peer in here if peer in self.arrivals]
        if not times:
            return self.began + floor
        middle = median(times)
        spread = median(abs(t - middle) for t in times)
        wait = max(self.timing.factor * middle, middle + self.timing.mad * spread, floor)
        return self.began + min(wait, max(middle, self.timing.most.total_seconds()))

    def attempt_length(self) -> float:
        """Length of the current attempt's timer, seconds."""
        length = self.timing.attempt.total_seconds() * self.timing.growth ** min(self.attempt, 32)
        return min(length, self.timing.longest.total_seconds())
