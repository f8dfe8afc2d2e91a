"""What shows that a member signed something false, and what does not."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from blake3 import blake3

from diloco import merkle
from diloco.aggregate import reduce_chunk
from diloco.codec import codec
from diloco.layout import Grid
from diloco.reduce.contribution import Frozen, freeze
from diloco.reduce.evidence import Court, basis_digest, basis_of, judge
from diloco.reduce.messages import Exhibit, Header
from diloco.rounds.roster import Plan, bitmap
from diloco.rounds.statements import Ready
from diloco.rounds.values import Contributor
from protocol.envelope import Sealed, seal, unseal
from protocol.errors import Code, NodeError
from protocol.units import PeerId
from tests.diloco.rounds.swarm import RUN, KeyedSigner, keyed_verify

GRID, INT8 = Grid(1000, 256), codec("int8")
OWNER, SENDER = PeerId("owner"), PeerId("p1")
COURT = Court(
    grid=GRID,
    codec=INT8,
    how="mean",
    unseal_header=lambda raw: unseal(raw, run=RUN, expect=Header, verifier=keyed_verify),
    unseal_ready=lambda raw: unseal(raw, run=RUN, expect=Ready, verifier=keyed_verify),
)
MEMBERS: list[Frozen] = [
    freeze(
        (np.random.default_rng(seed).standard_t(3, 1000) * 1e-3).astype(np.float32), GRID, INT8,
        tokens=8, samples=1,
    )
    for seed in range(4)
]  # fmt: skip
ROSTER = tuple(
    Contributor(peer=f"p{i}", weight=8 + i, tokens=8, samples=1, clip=0.5 if i == 2 else 1.0)
    for i in range(len(MEMBERS))
)
READYS = {
    f"p{i}": Ready(
        epoch=0, round=3, attempt=0, base=b"", tokens=8, samples=1, commitment=member.facts.commitment,
        norms=member.facts.norms,
    )
    for i, member in enumerate(MEMBERS)
}  # fmt: skip
PLAN = Plan(b"", ROSTER, ("owner",) * GRID.count, READYS)


def contribution(position: int, chunk: int = 1) -> Exhibit:
    frame = MEMBERS[position].frame(chunk)
    return Exhibit(chunk=chunk, data=frame.data, proof=frame.proof)


def mean(who: Sequence[int], chunk: int = 1) -> bytes:
    part = GRID.slice(chunk)
    entries = [ROSTER[i] for i in who]
    return reduce_chunk(
        INT8, [MEMBERS[i].chunks[chunk] for i in who], [e.weight for e in entries], part.stop - part.start,
        clips=[e.clip for e in entries],
    )  # fmt: skip


def signed(data: bytes, who: Sequence[int], plan: Plan = PLAN, **changes: int) -> Exhibit:
    """The header that an owner signs for a reduced chunk, with its basis."""
    basis = basis_of(plan)
    header = Header(
        **{"epoch": 0, "round": 3, "attempt": 0, "ownership": 0, "chunk": 1, **changes},
        included=bitmap(who, len(plan.roster)), digest=blake3(data).digest(), basis=basis_digest(basis),
    )  # fmt: skip
    return Exhibit(statement=seal(KeyedSigner(OWNER), RUN, header).raw, basis=basis)


@pytest.mark.parametrize("who", [(0, 1, 2, 3), (0, 2), (3,)])
def test_what_an_honest_owner_shows_is_true(who: tuple[int, ...]) -> None:
    assert judge(COURT, [signed(mean(who), who), *map(contribution, who)]) is None


def lower_by_one_step(data: bytes) -> bytes:
    scales, levels = data[:4], np.frombuffer(data, np.int8)[4:]
    return scales + np.where(levels > -127, levels - 1, levels).astype(np.int8).tobytes()


FALSE: dict[str, Callable[[], list[Exhibit]]] = {
    "one quantization step": lambda: [
        signed(lower_by_one_step(mean(range(4))), range(4)), *map(contribution, range(4))
    ],
    "somebody left out": lambda: [signed(mean([0, 1, 2]), range(4)), *map(contribution, range(4))],
    "other weights": lambda: [
        signed(
            mean(range(4)), range(4),
            replace(PLAN, roster=(replace(ROSTER[0], weight=9), *ROSTER[1:])),
        ),
        *map(contribution, range(4)),
    ],
    "no clipping": lambda: [
        signed(mean([2, 3]), [2, 3], replace(PLAN, roster=tuple(replace(e, clip=1.0) for e in ROSTER))),
        contribution(2), contribution(3),
    ],
}  # fmt: skip


@pytest.mark.failure_mode(37)
@pytest.mark.parametrize("lie", FALSE)
def test_an_owner_that_signed_another_aggregate_is_shown_to_lie(lie: str) -> None:
    assert judge(COURT, FALSE[lie]()) == OWNER


def test_an_owner_that_averaged_bytes_of_no_codec_is_shown_to_lie() -> None:
    bad = (MEMBERS[0].chunks[0], MEMBERS[0].chunks[1][:-1] + b"\x80", *MEMBERS[0].chunks[2:])
    leaves = [merkle.leaf(i, data) for i, data in enumerate(bad)]
    readys = {**READYS, "p0": replace(READYS["p0"], commitment=merkle.root(leaves))}
    shown = Exhibit(chunk=1, data=bad[1], proof=merkle.proof(leaves, 1))
    first = signed(mean([0]), [0], replace(PLAN, readys=readys))
    assert judge(COURT, [first, shown]) == OWNER


NOTHING: dict[str, Callable[[], list[Exhibit]]] = {
    "nothing at all": lambda: [],
    "a contribution too few": lambda: [signed(mean(range(4)), range(4)), *map(contribution, range(3))],
    "a contribution too many": lambda: [signed(mean([0, 1]), [0, 1]), *map(contribution, range(3))],
    "another order": lambda: [signed(mean([0, 1]), [0, 1]), contribution(1), contribution(0)],
    "another chunk": lambda: [signed(mean([0, 1]), [0, 1]), contribution(0, 2), contribution(1, 2)],
    "another contribution": lambda: [
        signed(mean([0, 1]), [0, 1]), contribution(0), replace(contribution(1), data=MEMBERS[2].chunks[1])
    ],
    "another basis": lambda: [
        replace(signed(mean([0, 1]), [0, 1]), basis=basis_of(replace(PLAN, roster=ROSTER[:3]))),
        contribution(0), contribution(1),
    ],
    "a basis of garbage": lambda: [replace(signed(mean([0]), [0]), basis=b"garbage"), contribution(0)],
    "a chunk that there is not": lambda: [signed(mean([0]), [0], chunk=99), contribution(0)],
    "a header without anyone": lambda: [signed(mean([0]), [])],
    "a statement of garbage": lambda: [replace(signed(mean([0]), [0]), statement=b"garbage"), contribution(0)],
}  # fmt: skip


@pytest.mark.failure_mode(29)
@pytest.mark.parametrize("what", NOTHING)
def test_what_was_not_signed_shows_nothing(what: str) -> None:
    with pytest.raises(NodeError):
        judge(COURT, NOTHING[what]())


def test_a_changed_signature_shows_nothing() -> None:
    first = signed(lower_by_one_step(mean([0])), [0])
    forged = replace(first, statement=first.statement[:-1] + bytes([first.statement[-1] ^ 1]))
    with pytest.raises(NodeError) as caught:
        judge(COURT, [forged, contribution(0)])
    assert caught.value.code is Code.WIRE_SIGNATURE


# ---- contributions


def ready(**changes: object) -> Sealed[Ready]:
    return seal(KeyedSigner(SENDER), RUN, replace(READYS["p1"], **changes))  # type: ignore[arg-type]


def test_a_true_ready_is_no_evidence() -> None:
    for chunk in range(GRID.count):
        assert judge(COURT, [Exhibit(statement=ready().raw), contribution(1, chunk)]) is None


@pytest.mark.failure_mode(36)
def test_a_norm_of_a_tenth_and_values_of_a_hundred_are_the_senders_own_evidence() -> None:
    large = freeze(np.full(1000, 100.0, np.float32), GRID, INT8, tokens=8, samples=1)
    lie = ready(commitment=large.facts.commitment, norms=(0.01,) * GRID.count)
    frame = large.frame(1)
    shown = Exhibit(chunk=1, data=frame.data, proof=frame.proof)
    assert judge(COURT, [Exhibit(statement=lie.raw), shown]) == SENDER


@pytest.mark.failure_mode(36)
def test_committed_bytes_that_no_codec_makes_are_evidence() -> None:
    bad = (*MEMBERS[1].chunks[:3], MEMBERS[1].chunks[3][:-1] + b"\x80")
    leaves = [merkle.leaf(i, data) for i, data in enumerate(bad)]
    lie = ready(commitment=merkle.root(leaves))
    shown = Exhibit(chunk=3, data=bad[3], proof=merkle.proof(leaves, 3))
    assert judge(COURT, [Exhibit(statement=lie.raw), shown]) == SENDER


@pytest.mark.failure_mode(29)
def test_bytes_that_the_sender_did_not_commit_to_are_no_evidence() -> None:
    for shown in (contribution(2), replace(contribution(1), chunk=2), replace(contribution(1), proof=())):
        with pytest.raises(NodeError) as caught:
            judge(COURT, [Exhibit(statement=ready().raw), shown])
        assert caught.value.code is Code.RND_EVIDENCE
    with pytest.raises(NodeError):
        judge(COURT, [Exhibit(statement=ready().raw), contribution(1), contribution(1)])
    with pytest.raises(NodeError):
        judge(COURT, [Exhibit(statement=ready().raw), replace(contribution(1), chunk=2**40)])
