"""The view: the present of a run, frozen. All that is shown is taken from it; ``node.coordinator.fold`` makes the next.

A view has *topics*; most hold one object per key (a peer, a round). A ``Delta`` names topic and key of what changed, so
who holds a view's JSON and applies every delta holds the next view's JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from node.coordinator.facts import Contribution, Trust
from node.coordinator.view_rollouts import Judged, Learning, Rollouts, Version

RECENT_ROUNDS = 64
"""So many rounds are in the view with their time lines; the store has all."""

RECENT = 200
"""So many refusals, verdicts and actions are in the view."""


@dataclass(frozen=True)
class Number:
    """A number with its age.

    Attributes:
        value: The number.
        as_of: When it was learned, Unix seconds.
        trust: By whom.
    """

    value: float
    as_of: float
    trust: Trust = "self-reported"


@dataclass(frozen=True)
class Run:
    """The run, from its genesis."""

    id: str = ""
    name: str = ""
    rounds: int = 0
    policy: str = ""
    operator: str = ""
    start_members: int = 1
    changeable: tuple[str, ...] = ()
    parameters: int = 0


@dataclass(frozen=True)
class Tip:
    """The newest certified value, and so what the present round's rules are.

    Attributes:
        epoch: Its epoch.
        round: The round that it decided; the present one is the next.
        digest: The value's digest, hex.
        decided_at: When it was seen, Unix seconds.
        electorate: Who votes in the present round.
        members: Who takes part without a vote.
        ghosts: Who only follows as yet.
    """

    epoch: int = 0
    round: int = -2
    digest: str = ""
    decided_at: float = 0.0
    electorate: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    ghosts: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    order_number: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    paused: bool = False
    finished: bool = False
    halted: str = ""

    @property
    def taking_part(self) -> tuple[str, ...]:
        """Who is expected to do something in the present round."""
        return (*self.electorate, *self.members)


@dataclass(frozen=True)
class Who:
    """What a peer is."""

    name: str = ""
    version: str = ""
    protocol: int = 0
    roles: tuple[str, ...] = ()
    reach: str = ""
    seen: str = ""
    device: str = ""
    seat: bool = False
    as_of: float = 0.0
    reachability: str = ""
    """What the peers saw that were asked to call it back, in a sentence, by its own word."""


@dataclass(frozen=True)
class Doing:
    """What a member does, by its own word.

    Attributes:
        until: When the phase ends at the latest, Unix seconds by the coordinator's clock; None where nothing bounds it.
        since: When it began, the same.
    """

    phase: str = ""
    reason: str = ""
    sentence: str = ""
    until: float | None = None
    since: float = 0.0
    missing: tuple[str, ...] = ()
    round: int = -1
    attempt: int = 0
    trouble: str = ""
    as_of: float = 0.0


@dataclass(frozen=True)
class Figures:
    """What is measured of a member; None while unknown.

    Attributes:
        loss: Of its last step, nats per token.
        step: Inner steps done in its round.
        speed: Tokens per second of its last round's training.
        sent: Bytes to sockets since its start.
        for_rounds: Of these, for rounds.
        rate: Bytes per second that it sent over its last round.
        rtt: Seconds from the coordinator's question to its answer.
    """

    loss: Number | None = None
    step: Number | None = None
    speed: Number | None = None
    sent: Number | None = None
    for_rounds: Number | None = None
    rate: Number | None = None
    rtt: Number | None = None
    path: str = ""


@dataclass(frozen=True)
class Tally:
    """What a member has contributed.

    Attributes:
        accepted: Rounds whose certified roster lists it.
        refused: Refusals of what it sent.
        late: Rounds in which it took part and that do not list it.
        verified: Tokens certified as averaged: its credits.
        claimed: Tokens it reported in those rounds.
        strikes: Times it was shown to have done what no honest member does.
        last_round: The last that lists it; -1 for none.
        last_at: When that was decided, Unix seconds.
    """

    accepted: int = 0
    refused: int = 0
    late: int = 0
    verified: int = 0
    claimed: int = 0
    strikes: int = 0
    last_round: int = -1
    last_at: float = 0.0


@dataclass(frozen=True)
class Member:
    """A peer of the run.

    Attributes:
        standing: ``voter``, ``member``, ``ghost``, ``newcomer``, ``outside``, ``left``, ``gone`` or ``banned``.
        state: The round after which it holds which outer state, by its own word; (-1, "") while unknown.
        heard_at: When it was last heard of, Unix seconds.
    """

    peer: str
    standing: str = "outside"
    who: Who = Who()
    doing: Doing = Doing()
    figures: Figures = Figures()
    tally: Tally = Tally()
    state: tuple[int, str] = (-1, "")
    heard_at: float = 0.0


@dataclass(frozen=True)
class Round:
    """A round, running or decided.

    Attributes:
        outcome: ``running``, ``decided``, ``empty`` (nobody contributed) or ``reset``.
        attempts: Attempts so far.
        began_at: When the round before was decided, Unix seconds.
        decided_at: When it was decided; 0 while it runs.
        marks: For each member, when it reached what (``compute``, ``computed``, ``encoded``, ``ready``, ``reduce``,
            ``reduced``, ``voted``, ``committed``, ``applied``), Unix seconds by the coordinator's clock.
        states: The digest of the outer state after the round, as each member says it.
        losses: Each member's training loss.
        speeds: Tokens per second of each member's training.
        validation: Each member's loss on the validation set with the state that the round begins with, nats per token.
        sent: Bytes that each member sent for the round.
    """

    round: int
    epoch: int = 0
    outcome: str = "running"
    digest: str = ""
    base: str = ""
    attempts: int = 0
    began_at: float = 0.0
    decided_at: float = 0.0
    tokens: int = 0
    partial_tokens: int = 0
    roster: tuple[Contribution, ...] = ()
    expected: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    failed_leaders: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    orders: tuple[int, ...] = ()
    marks: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)
    speeds: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)
    sent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Agreement:
    """Whether members hold the same outer state.

    Attributes:
        round: After which round.
        digest: What most of them hold, or what the next value certifies.
        certified: The digest is named by a certified value.
        agree: How many hold it.
        said: How many said what they hold.
        dissenters: Who holds another.
        first_divergent: The first round after which somebody held another; -1 for none.
    """

    round: int = -1
    digest: str = ""
    certified: bool = False
    agree: int = 0
    said: int = 0
    dissenters: tuple[str, ...] = ()
    first_divergent: int = -1
    as_of: float = 0.0


@dataclass(frozen=True)
class Totals:
    """Sums over the whole run.

    Attributes:
        rounds: Decided rounds.
        tokens: Of all certified contributions.
        partial: Of these, how many are missing in some chunk.
        verified: Credits given.
        claimed: Tokens reported for them.
        refused: Refusals.
    """

    rounds: int = 0
    tokens: int = 0
    partial: int = 0
    verified: int = 0
    claimed: int = 0
    refused: int = 0
    as_of: float = 0.0


@dataclass(frozen=True)
class Refusal:
    """One refusal, and what shows it."""

    peer: str
    what: str
    code: str
    reason: str
    round: int
    by: str
    at: float
    trust: Trust


@dataclass(frozen=True)
class Action:
    """One entry of the audit log."""

    number: int
    at: float
    actor: str
    action: str
    peer: str
    reason: str
    order: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    outcome: str
    taken_up: int = -1
    """The round whose value named the order; -1 while none has."""


@dataclass(frozen=True)
class View:
    """The present.

    Attributes:
        sequence: Number of the last fact in it.
    """

    sequence: int = 0
    run: Run = Run()
    tip: Tip = Tip()
    agreement: Agreement = Agreement()
    totals: Totals = Totals()
    rollouts: Rollouts = field(default_factory=Rollouts)
    members: Mapping[str, Member] = field(default_factory=dict)
    rounds: Mapping[str, Round] = field(default_factory=dict)
    versions: Mapping[str, Version] = field(default_factory=dict)
    learning: Mapping[str, Learning] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    evidence: tuple[Refusal, ...] = ()
    actions: tuple[Action, ...] = ()
    verdicts: tuple[Judged, ...] = ()

    def present(self) -> Round | None:
        """The round under way."""
        return self.rounds.get(str(self.tip.round + 1))


SINGLE = ("run", "tip", "agreement", "totals", "rollouts")
"""Topics that hold one object."""

KEYED = ("members", "rounds", "versions", "learning")
"""Topics that hold an object per key."""

LISTS = ("refusals", "evidence", "actions", "verdicts")
"""Topics that hold the last ``RECENT`` entries; a delta of theirs is one more, or with a key one in its place."""


@dataclass(frozen=True)
class Delta:
    """One change of a view.

    Attributes:
        topic: A field of ``View``.
        key: Which entry of it; empty for topics of one object and for one more entry of a list.
        value: What stands there now; None where nothing does any more.
    """

    topic: str
    key: str
    value: object
