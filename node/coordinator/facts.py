"""Facts: what a coordinator learns about a run, one frozen object each.

A fact says when it was seen, from whom, and how far it can be trusted. Facts are only ever added; all that is shown is
a fold over them (``node.coordinator.fold``).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Trust = Literal["certified", "witnessed", "self-reported"]
"""Signed by a quorum or by the operator; said by another than whom it is about; said by the peer itself."""

CHAIN = "chain"
"""The source of facts that certificates prove."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What all facts have.

    Attributes:
        seen_at: When the coordinator learned it, Unix seconds by its own clock.
        source: The peer that said it, or ``chain``.
        trust: How far it can be trusted.
    """

    seen_at: float
    source: str = CHAIN
    trust: Trust = "certified"


@dataclass(frozen=True, kw_only=True)
class Opened(Fact):
    """The run that is followed, from its genesis.

    Attributes:
        run: Its id.
        name: Its name.
        rounds: How many rounds it is to have.
        policy: Who may join: ``open``, ``invite`` or ``allowlist``.
        operator: The operator's peer id.
        start_members: With how many members it began.
        changeable: Parameters that the operator may change.
        parameters: Bytes of the model's parameters at fp32, against which traffic is compared.
    """

    run: str
    name: str = ""
    rounds: int = 0
    policy: str = "open"
    operator: str = ""
    start_members: int = 1
    changeable: tuple[str, ...] = ()
    parameters: int = 0


@dataclass(frozen=True)
class Contribution:
    """What a certified value says of one contributor.

    Attributes:
        peer: Who.
        weight: Its weight in the mean, in tokens: what it reported, bounded by its lease.
        tokens: What it reported.
        samples: Sample positions used.
        clip: Factor of its contribution in the mean.
        included: Share of the chunks that hold its contribution, 0 to 1.
    """

    peer: str
    weight: int
    tokens: int
    samples: int = 0
    clip: float = 1.0
    included: float = 1.0

    @property
    def verified(self) -> int:
        """Tokens that the round certified as averaged."""
        return int(self.weight * self.included)


@dataclass(frozen=True, kw_only=True)
class Decided(Fact):
    """A certified value: what a round decided.

    Attributes:
        digest: The value's digest, hex.
        previous: That of the value before.
        base: Digest of the outer state that the round was trained on, hex.
        begins: It begins an epoch: the start record or a reset.
        voters: Whose votes certify it.
        bytes: Size of the value with its certificate.
    """

    epoch: int
    round: int
    attempt: int = 0
    digest: str = ""
    previous: str = ""
    base: str = ""
    roster: tuple[Contribution, ...] = ()
    electorate: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    ghosts: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    failed_leaders: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    orders: tuple[int, ...] = ()
    order_number: int = 0
    tokens: int = 0
    partial_tokens: int = 0
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    paused: bool = False
    finished: bool = False
    begins: bool = False
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Reported(Fact):
    """An event of a member's own log, of one of the kinds in ``node.reporting``.

    Attributes:
        peer: Whose.
        boot: Names that node's process, hex.
        sequence: Its number in that process.
        t: When, by the member's own clock, Unix seconds.
        kind: The event's kind.
        fields: The kind's fields.
    """

    peer: str
    sequence: int
    t: float
    kind: str
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    boot: str = ""


@dataclass(frozen=True, kw_only=True)
class Record(Fact):
    """A peer's directory record.

    Attributes:
        name: What people call it; empty where it is not known yet.
        reach: ``direct`` or ``tunnel``: how its data plane is dialled.
        seen: The address that others see it at.
        seat: Whether its admission gives it a vote.
        newcomer: It has no admission yet.
    """

    peer: str
    name: str = ""
    version: str = ""
    protocol: int = 0
    reach: str = ""
    seen: str = ""
    roles: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    seat: bool = False
    newcomer: bool = False
    started: int = 0


@dataclass(frozen=True, kw_only=True)
class Gone(Fact):
    """A peer's record has ended, or it cannot be reached."""

    peer: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Measured(Fact):
    """What the coordinator measured of its way to a peer.

    Attributes:
        rtt: Seconds from a question to its answer.
        path: ``direct``, ``punched`` or ``relayed``.
    """

    peer: str
    rtt: float
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class Admitted(Fact):
    """The coordinator admitted a peer.

    Attributes:
        seat: With a vote.
        expires_at: Until when it lets the peer enter, Unix seconds.
        by: What let it in: a policy's name, or an invitation's number.
        renewal: It had one before.
    """

    peer: str
    seat: bool = False
    expires_at: int = 0
    by: str = ""
    renewal: bool = False


@dataclass(frozen=True, kw_only=True)
class Refused(Fact):
    """Something that a peer sent or asked for was refused.

    Attributes:
        peer: Whose it was.
        what: ``admission``, ``chunk``, ``bytes``, ``ready``, ``message``, ``contribution``.
        code: Error code; may be empty.
        reason: In a sentence.
        round: Of which round; -1 for none.
    """

    peer: str
    what: str
    code: str = ""
    reason: str = ""
    round: int = -1


@dataclass(frozen=True, kw_only=True)
class Evidence(Fact):
    """Something signed that no honest member can have signed.

    Attributes:
        accused: Who signed it.
        kind: What it shows.
        sentence: The same for people.
        round: Of which round; -1 for none.
    """

    accused: str
    kind: str
    sentence: str = ""
    round: int = -1


@dataclass(frozen=True, kw_only=True)
class Acted(Fact):
    """An entry of the audit log: what the operator, or the coordinator by rule, did.

    Attributes:
        number: Of the entry.
        actor: Who.
        action: What, such as ``ban``.
        peer: About whom; may be empty.
        reason: Why.
        order: Number of the order that it became; 0 for none.
        before: What it changed, before.
        after: The same, after.
        outcome: What was done, in a sentence.
    """

    number: int
    actor: str
    action: str
    peer: str = ""
    reason: str = ""
    order: int = 0
    before: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    after: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outcome: str = ""


@dataclass(frozen=True, kw_only=True)
class Policy(Fact):
    """A published version: a checkpoint, or a policy for rollouts.

    Attributes:
        version: Its number.
        digest: Of its bytes, hex.
        size: Bytes.
        holder: A peer that says it has it.
        progress: How much of it that peer has, 0 to 1.
        kind: ``checkpoint`` or ``policy``.
    """

    version: int
    digest: str = ""
    size: int = 0
    holder: str = ""
    progress: float = 1.0
    kind: str = "checkpoint"


@dataclass(frozen=True, kw_only=True)
class Verdict(Fact):
    """A verdict on a worker's rollouts.

    Attributes:
        worker: Whose.
        file: Digest of the rollout file, hex.
        outcome: ``accepted``, ``refused`` or ``undecided``.
        validator: Who judged.
        rollouts: How many are in the file.
        reward: Their mean reward; None where it is not known.
        solved: Share of them that are solved; None where it is not known.
        staleness: By how many versions the file was behind.
    """

    worker: str
    file: str
    outcome: str
    code: str = ""
    sentence: str = ""
    validator: str = ""
    rollouts: int = 0
    reward: float | None = None
    solved: float | None = None
    staleness: int = 0
    round: int = -1
