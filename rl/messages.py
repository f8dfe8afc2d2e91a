"""What trainers, rollout workers and validators say to each other (docs/rl.md, roles and messages).

A worker and a validator only call trainers, but for the requests to judge and the news about a file. Rollout files
travel unsealed on the bulk plane: their bytes are held against the digest that their worker signed.
"""

from protocol.messages import field, message, part, request

FRAME = 1 << 18
"""Bytes of a file in one frame."""

MOST_FILES, MOST_POSITIONS = 512, 4096
"""Digests of files in one answer, and positions in one question for them."""


@part
class Policy:
    """A policy version: the outer state after so many rounds.

    Attributes:
        version: Rounds behind it.
        weights: The file digest of its safetensors file (32 bytes), as shardcast computes it.
        beacon: From which the seeds of work for this version follow (32 bytes).
        size: Bytes of the file.
    """

    version: int = field(1)
    weights: bytes = field(2, max_bytes=32)
    beacon: bytes = field(3, max_bytes=32)
    size: int = field(4, default=0)


@message("rl.policies", version=1, max_bytes="16 KiB", rate="20/s burst 40", audience="member")
class Policies:
    """The policy versions that a trainer's window reaches, oldest first, and where to have them.

    Attributes:
        policies: The versions.
        sources: Servers that have them, as ``http://host:port``.
        publisher: Who signs their manifests there.
        chain: Number of the chain that draws which of the next files are audited, from 0.
        anchor: Link 0 of that chain (32 bytes), told before any of its links is used.
    """

    policies: tuple[Policy, ...] = field(1, default=(), max_items=64)
    sources: tuple[str, ...] = field(2, default=(), max_items=16)
    publisher: str = field(3, default="", max_bytes=64)
    anchor: bytes = field(4, default=b"", max_bytes=32)
    chain: int = field(5, default=0)


@request(
    "rl.ask-policies", version=1, max_bytes="1 KiB", rate="10/s burst 20", timeout="30 s", replies=Policies,
    audience="member",
)  # fmt: skip
class AskPolicies:
    """Asks a trainer for its policy versions.

    Attributes:
        newer_than: It answers once it has a newer version than this, or when the time is nearly over.
    """

    newer_than: int = field(1, kind="sint64", default=-1)


@message("rl.work-lease", version=1, max_bytes="16 KiB", rate="10/s burst 20", audience="role:trainer")
class WorkLease:
    """A lease of work, or why there is none now.

    Attributes:
        counter: Its number among this trainer's leases to this worker, from 0.
        version: The policy version it is given for.
        positions: The positions whose whole groups are to be made, ascending.
        seconds: Time for it; without work, when to ask again.
        reason: Without work: a stable reason code.
        sentence: ... and the reason as a sentence.
    """

    counter: int = field(1, kind="sint64", default=-1)
    version: int = field(2, default=0)
    positions: tuple[int, ...] = field(3, default=(), max_items=64)
    seconds: float = field(4, default=0.0)
    reason: str = field(5, default="", max_bytes=64)
    sentence: str = field(6, default="", max_bytes=512)


@request(
    "rl.ask-work", version=1, max_bytes="4 KiB", rate="10/s burst 20", timeout="10 s", replies=WorkLease,
    audience="role:rollout",
)  # fmt: skip
class AskWork:
    """A worker asks a trainer for work.

    Attributes:
        holding: Counters of the leases that it has and works on; another open lease of its is given again.
        most: Most positions that it wants.
    """

    holding: tuple[int, ...] = field(1, default=(), max_items=64)
    most: int = field(2, default=64)


@message("rl.abandon", version=1, max_bytes="1 KiB", rate="10/s burst 20", audience="role:rollout")
class Abandon:
    """A worker gives a lease of work back; how often one does is watched."""

    counter: int = field(1)
    reason: str = field(2, default="", max_bytes=512)


@message("rl.receipt", version=1, max_bytes="2 KiB", rate="20/s burst 40", audience="role:trainer")
class Receipt:
    """What a trainer has of a rollout file.

    Attributes:
        held: Bytes of it that are there; an upload goes on behind them.
        done: Whether it is whole, and the answer is taken or refused.
        taken: Whether it counts as the answer to its lease.
        code: Why it does not.
        sentence: The same in words.
    """

    held: int = field(1)
    done: bool = field(2, default=False)
    taken: bool = field(3, default=False)
    code: str = field(4, default="", max_bytes=64)
    sentence: str = field(5, default="", max_bytes=1024)


@request(
    "rl.ask-receipt", version=1, max_bytes="1 KiB", rate="10/s burst 20", timeout="30 s", replies=Receipt,
    audience="role:rollout",
)  # fmt: skip
class AskReceipt:
    """A worker asks how much of its file is there before it sends the rest.

    Attributes:
        counter: The lease that the file answers.
        digest: BLAKE3 of the file (32 bytes).
    """

    counter: int = field(1)
    digest: bytes = field(2, max_bytes=32)


@request(
    "rl.put-rollouts", version=1, max_bytes="300 KiB", rate="400/s", timeout="10 min", replies=Receipt,
    stream="requests", plane="bulk", concurrency=16, audience="role:rollout",
)  # fmt: skip
class PutRollouts:
    """The next bytes of a worker's rollout file. The first frame says which file it is.

    Attributes:
        data: The bytes.
        counter: The lease that the file answers.
        digest: BLAKE3 of the whole file (32 bytes).
        signature: The worker's, over the digest.
        size: Bytes of the whole file.
        offset: Where ``data`` begins in it.
    """

    data: memoryview = field(1)
    counter: int = field(2, default=0)
    digest: bytes = field(3, default=b"", max_bytes=32)
    signature: bytes = field(4, default=b"", max_bytes=255)
    size: int = field(5, default=0)
    offset: int = field(6, default=0)


@message("rl.file-part", version=1, max_bytes="300 KiB", rate="2000/s", audience="member", plane="bulk")
class FilePart:
    """The next bytes of a rollout file. The first part has the signature, too.

    Attributes:
        data: The bytes.
        signer: Who signed the file: its worker; where a validator asks, the trainer that answers.
        signature: Over the file's digest.
        size: Bytes of the whole file.
    """

    data: memoryview = field(1)
    signer: str = field(2, default="", max_bytes=64)
    signature: bytes = field(3, default=b"", max_bytes=255)
    size: int = field(4, default=0)


@request(
    "rl.ask-file", version=1, max_bytes="1 KiB", rate="20/s burst 40", timeout="5 min", replies=FilePart,
    stream="replies", plane="bulk",
)  # fmt: skip
class AskFile:
    """A validator, or another trainer, asks for a rollout file by its digest (32 bytes)."""

    digest: bytes = field(1, max_bytes=32)


@message("rl.files", version=1, max_bytes="32 KiB", rate="20/s burst 40", audience="role:trainer")
class Files:
    """The rollout files that hold some of the positions that were asked for, by their digests (32 bytes)."""

    digests: tuple[bytes, ...] = field(1, default=(), max_items=MOST_FILES)


@request(
    "rl.ask-files", version=1, max_bytes="64 KiB", rate="2/s burst 8", timeout="30 s", replies=Files,
    audience="role:trainer",
)  # fmt: skip
class AskFiles:
    """A trainer asks another one for the files of positions that were to be that one's, and are its own now."""

    positions: tuple[int, ...] = field(1, default=(), max_items=MOST_POSITIONS)


@message("rl.draw", version=1, max_bytes="8 KiB", rate="50/s burst 100", audience="role:trainer")
class Draw:
    """A validator is to judge a file.

    Whether the model is run for it follows from the link, which nobody knew before the file was acknowledged: link i is
    the BLAKE3 of link i + 1, and the chain's anchor was published before any work was.

    Attributes:
        digest: BLAKE3 of the file (32 bytes).
        worker: Whose it is.
        counter: The lease that it answers.
        policy: The policy version of that lease.
        positions: Its positions, ascending.
        newest: The newest policy version when it was acknowledged.
        standing: How far its worker is believed: ``new``, ``established`` or ``suspicious``.
        number: Under which the file was acknowledged, from 1; each chain has 65,536 links.
        link: The link (32 bytes).
        again: Another validator's opinion was disputed or appealed: the model is run in any case.
        trainer: Whose lease the file answers; empty for the sender's.
    """

    digest: bytes = field(1, max_bytes=32)
    worker: str = field(2, max_bytes=64)
    counter: int = field(3)
    policy: Policy = field(4)
    positions: tuple[int, ...] = field(5, max_items=64)
    newest: int = field(6)
    standing: str = field(7, max_bytes=32)
    number: int = field(8)
    link: bytes = field(9, max_bytes=32)
    again: bool = field(10, default=False)
    trainer: str = field(11, default="", max_bytes=64)


@part
class Finding:
    """One thing that is wrong with a file.

    Attributes:
        code: Stable code.
        sentence: The same in words, with numbers.
        position: Whose rollout; -1 for the file.
        index: Which of the group; -1 for the group.
        evidence: Numbers by name, as JSON.
    """

    code: str = field(1, max_bytes=64)
    sentence: str = field(2, max_bytes=512)
    position: int = field(3, kind="sint64", default=-1)
    index: int = field(4, kind="sint64", default=-1)
    evidence: str = field(5, default="{}", max_bytes=1024)


@message("rl.verdict", version=1, max_bytes="32 KiB", rate="50/s burst 100", audience="role:validator")
class Verdict:
    """A validator's word on a file; signed by its envelope.

    Attributes:
        digest: BLAKE3 of the file (32 bytes).
        worker: Whose it is.
        counter: The lease that it answers.
        outcome: ``accepted``, ``refused`` or ``undecided``.
        findings: What is wrong, the gravest first.
        doubts: What is unusual and proves nothing.
        rollouts: How many the file holds.
        audited: For how many of them the model was run.
        seconds: Time that judging took.
    """

    digest: bytes = field(1, max_bytes=32)
    worker: str = field(2, max_bytes=64)
    counter: int = field(3)
    outcome: str = field(4, max_bytes=16)
    findings: tuple[Finding, ...] = field(5, default=(), max_items=8)
    doubts: tuple[Finding, ...] = field(6, default=(), max_items=8)
    rollouts: int = field(7, default=0)
    audited: int = field(8, default=0)
    seconds: float = field(9, default=0.0)


@message("rl.report", version=1, max_bytes="4 KiB", rate="50/s burst 100", audience="role:trainer")
class Report:
    """A worker is told what was found about a file of its, or that it is banned, and why.

    Attributes:
        digest: BLAKE3 of the file (32 bytes); the first piece of evidence where it is banned.
        accepted: Whether nothing was wrong.
        banned: Whether it gets no more work.
        code: What was wrong.
        sentence: The same in words.
        evidence: Digests of the files that show it.
    """

    digest: bytes = field(1, default=b"", max_bytes=32)
    accepted: bool = field(2, default=False)
    banned: bool = field(3, default=False)
    code: str = field(4, default="", max_bytes=64)
    sentence: str = field(5, default="", max_bytes=2048)
    evidence: tuple[bytes, ...] = field(6, default=(), max_items=8)


@message("rl.appeal", version=1, max_bytes="1 KiB", rate="1/s burst 4", audience="role:rollout")
class Appeal:
    """A worker asks for another validator's opinion on a file that was refused (digest, 32 bytes)."""

    digest: bytes = field(1, max_bytes=32)
