"""What happens to the orchestrator (events) and what it asks for (effects). Both are plain frozen data."""

from dataclasses import dataclass

from diloco.rounds.values import Value
from diloco.rounds.waiting import Waiting
from rl.orchestration.rows import File, GroupFacts, Opinion, Row, Work
from rl.work.standing import Standing

# ---- events


@dataclass(frozen=True)
class Certified:
    """A value has been certified: the newest one."""

    value: Value


@dataclass(frozen=True)
class Published:
    """A policy version can be had by workers."""

    version: int


@dataclass(frozen=True)
class Asked:
    """A worker asks for work.

    Attributes:
        worker: Who asks.
        holding: Counters of the leases that it has and works on; another one of its open leases is given again.
        most: Most positions that it wants.
    """

    worker: str
    holding: tuple[int, ...] = ()
    most: int = 1_000_000


@dataclass(frozen=True)
class Abandoned:
    """A worker gives a lease of work back."""

    worker: str
    counter: int
    reason: str = ""


@dataclass(frozen=True)
class Gone:
    """A worker is no longer there."""

    worker: str


@dataclass(frozen=True)
class Uploaded:
    """A rollout file lies whole on disk, its signature and its bounds are checked, and this is in it.

    Attributes:
        worker: Who signed it.
        counter: The lease of work that it answers.
        digest: BLAKE3 of its bytes.
        nbytes: Its size.
        version: The policy version that it says it was leased for.
        groups: What is in it.
        link: The link of the next number of the audit chain (32 bytes).
        twice: Drawn to be judged by two validators.
    """

    worker: str
    counter: int
    digest: bytes
    nbytes: int
    version: int
    groups: tuple[GroupFacts, ...]
    link: bytes
    twice: bool


@dataclass(frozen=True)
class Broken:
    """What a worker sent as an answer is no rollout file; nothing of it was kept."""

    worker: str
    counter: int
    code: str
    sentence: str


@dataclass(frozen=True)
class Lost:
    """Files that rows name are not on the disk, or cannot be read any more."""

    digests: tuple[bytes, ...]


@dataclass(frozen=True)
class Found:
    """A file that answers a lease of another trainer, fetched from it; ``link`` as above.

    It is judged anew: what the other trainer's validators said is no word of this one's.
    """

    file: File
    link: bytes


@dataclass(frozen=True)
class Planted:
    """A file that is known to be bad lies on disk, to test validators with.

    Attributes:
        file: The file.
        beside: Digest of the one that it was made from; who knows that one is not tested with it.
        link: As above.
    """

    file: File
    beside: bytes
    link: bytes


@dataclass(frozen=True)
class Judged:
    """A validator's verdict, its signature checked."""

    digest: bytes
    opinion: Opinion


@dataclass(frozen=True)
class Validators:
    """The validators that are there now, seated by the operator."""

    present: frozenset[str]


@dataclass(frozen=True)
class Appealed:
    """A worker asks for another validator's opinion on a refused file."""

    worker: str
    digest: bytes


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = (
    Certified | Published | Asked | Abandoned | Gone | Uploaded | Broken | Lost | Found | Planted | Judged | Validators
    | Appealed | Tick
)  # fmt: skip


# ---- effects, to be carried out in the order given


@dataclass(frozen=True)
class Save:
    """Rows to be written and rows to be removed, all together or not at all; durable before the next effect."""

    put: tuple[Row, ...]
    gone: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Give:
    """A lease of work for who asked.

    Attributes:
        work: The lease.
        until: When its time is over, seconds on the orchestrator's clock.
    """

    work: Work
    until: float


@dataclass(frozen=True)
class Tell:
    """Who asked has to wait."""

    worker: str
    waiting: Waiting


@dataclass(frozen=True)
class Receipt:
    """What became of an answer: taken, or why not.

    Attributes:
        worker: Who answered.
        counter: The lease.
        taken: Whether it counts as the answer.
        reason: Stable reason code.
        sentence: One sentence with numbers.
    """

    worker: str
    counter: int
    taken: bool
    reason: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class AskVerdict:
    """A validator is to judge a file.

    Attributes:
        validator: Who is asked.
        digest: The file.
        standing: Of its worker, which decides how much is re-derived.
        number: The number under which it was acknowledged.
        link: The link of the audit chain of that number.
    """

    validator: str
    digest: bytes
    standing: Standing
    number: int
    link: bytes


@dataclass(frozen=True)
class Report:
    """A worker is told what was found about its file."""

    worker: str
    digest: bytes
    accepted: bool
    code: str
    sentence: str


@dataclass(frozen=True)
class Ban:
    """A worker is banned, with the files that show why."""

    worker: str
    sentence: str
    evidence: tuple[bytes, ...]


@dataclass(frozen=True)
class Lift:
    """A ban turned out to be wrong."""

    worker: str
    sentence: str


@dataclass(frozen=True)
class Dispute:
    """Validators disagree about a file."""

    digest: bytes
    accepting: tuple[str, ...]
    refusing: tuple[str, ...]


@dataclass(frozen=True)
class Distrust:
    """A validator accepted a file that is known to be bad."""

    validator: str
    digest: bytes


@dataclass(frozen=True)
class Delete:
    """Files that nothing needs any more."""

    digests: tuple[bytes, ...]


Effect = (
    Save | Give | Tell | Receipt | AskVerdict | Report | Ban | Lift | Dispute | Distrust | Delete
)  # fmt: skip
