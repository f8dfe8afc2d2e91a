"""From Readys to a value: pure functions that the leader computes and every member recomputes (rules 3, 4, 10)."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from blake3 import blake3

from diloco.rounds.electorate import (
    is_quorum,
    leader_order,
    next_beacon,
    next_electorate,
    next_tie_breaker,
)
from diloco.rounds.leases import Ledger, assign, settle
from diloco.rounds.statements import (
    Boot,
    Close,
    Contributor,
    Ghost,
    Order,
    Ready,
    ReducedChunk,
    Taken,
    Value,
)
from protocol.envelope import Sealed
from protocol.errors import NodeError
from protocol.messages import decode, encode

_MOST_TAKEN = 64  # operator orders that one value takes up; the others wait for the next


@dataclass(frozen=True)
class Seat:
    """What an admission says about its holder, as far as rounds need it.

    Attributes:
        seated: Whether the holder may vote.
        digest: Hash of the admission; newcomers enter in its order.
    """

    seated: bool
    digest: bytes


@dataclass(frozen=True)
class Rules:
    """What the genesis fixes about rounds, and the verifiers that the pure functions need.

    Attributes:
        run: Run id.
        rounds: Rounds after which the run is complete; 0 for no end.
        chunk_sizes: Values per chunk of the grid.
        samples: Sample positions that a member is leased per round.
        tokens_per_sample: Tokens in one sample.
        weight_cap: Most weight of one contributor, as a multiple of the roster's median.
        open_share: Most weight of all members without a seat together, as a share of the round's.
        max_voters: Most seats that vote.
        ghost_rounds: Values for which a newcomer follows before it contributes.
        unseal_ready: Verifies the envelope of a Ready and decodes it; raises ``NodeError``.
        unseal_close: Verifies the envelope of a Close and decodes it; raises ``NodeError``.
        unseal_order: Verifies the envelope of an operator's order and decodes it; raises ``NodeError``.
        seat_of: Verifies an admission for a peer; None when it is not one.
    """

    run: str
    rounds: int
    chunk_sizes: tuple[int, ...]
    samples: int
    tokens_per_sample: int
    weight_cap: int
    open_share: float
    max_voters: int
    ghost_rounds: int
    unseal_ready: Callable[[bytes], Sealed[Ready]]
    unseal_close: Callable[[bytes], Sealed[Close]]
    unseal_order: Callable[[bytes], Sealed[Order]]
    seat_of: Callable[[bytes, str], Seat | None]


@dataclass(frozen=True)
class Plan:
    """What a free proposal means.

    Attributes:
        base: State digest of the round.
        roster: Contributors, ordered by peer id.
        owners: Owner of each chunk.
        readys: The Ready of every listed peer.
    """

    base: bytes
    roster: tuple[Contributor, ...]
    owners: tuple[str, ...]
    readys: Mapping[str, Ready]


def value_digest(value: bytes) -> bytes:
    """The digest by which values are chained and voted on."""
    return blake3(b"intellect.value\0" + value).digest()


def leaders(rules: Rules, tip: Value) -> list[str]:
    """Leaders, by attempt, of the round after ``tip``; those that failed or were absent of late come last."""
    failed = {*tip.failed_leaders, *tip.failed_last, *tip.failed_before}
    failed |= {elector.peer for elector in tip.electorate if elector.absent}
    return leader_order(rules.run, tip.round + 1, tip.beacon, tip.electorate, failed)


def base_of(tip: Value, readys: Mapping[str, Ready]) -> bytes | None:
    """The state digest that a quorum of the electorate reports (rule 12), if any."""
    for base, _ in Counter(ready.base for ready in readys.values()).most_common():
        if is_quorum(
            [peer for peer, ready in readys.items() if ready.base == base], tip.electorate, tip.tie_breaker
        ):
            return base
    return None


def quorum_of(tip: Value, readys: Mapping[str, Ready], attempt: int) -> bool:
    """Whether Readys of exactly this attempt, from voters whose record is whole, are a quorum."""
    return is_quorum(
        [peer for peer, ready in readys.items() if ready.attempt == attempt and not ready.lost_record],
        tip.electorate,
        tip.tie_breaker,
    )


@dataclass(frozen=True)
class Choice:
    """What rule 3 leaves a leader: ``free``, ``forced`` to a value, or ``torn`` between two values of one attempt."""

    kind: str
    value: bytes = b""


def choose(rules: Rules, tip: Value, tip_digest: bytes, readys: Mapping[str, Ready]) -> Choice:
    """Apply rule 3 to the Readys that an attempt rests on; a vote that cannot have been given is none."""
    voted = [ready for peer, ready in readys.items() if has_voted(rules, tip, tip_digest, peer, ready)]
    if not voted:
        return Choice("free")
    highest = max(ready.voted_attempt for ready in voted)
    values = {ready.voted_value for ready in voted if ready.voted_attempt == highest}
    return Choice("forced", values.pop()) if len(values) == 1 else Choice("torn")


def has_voted(rules: Rules, tip: Value, tip_digest: bytes, peer: str, ready: Ready) -> bool:
    """Whether a Ready reports a vote that a voter can have given: in this round, asked for by the attempt's leader.

    The leader's own vote is on disk before it says its Close, so its own report needs none.
    """
    attempt, order = ready.voted_attempt - 1, leaders(rules, tip)
    if peer not in order or not 0 <= attempt <= ready.attempt:
        return False
    try:
        value = parse_value(ready.voted_value)
        if (value.epoch, value.round, value.previous) != (ready.epoch, ready.round, tip_digest):
            return False
        leader = order[attempt % len(order)]
        if peer == leader:
            return True
        close = rules.unseal_close(ready.voted_close)
    except (NodeError, ValueError):
        return False
    asked = Close(epoch=ready.epoch, round=ready.round, attempt=attempt, value=ready.voted_value)
    return close.sender == leader and close.message == asked


def make_plan(rules: Rules, tip: Value, readys: Mapping[str, Ready]) -> Plan | None:
    """Roster, weights and partition from the value before and the listed Readys; None when no base has a quorum."""
    base = base_of(tip, readys)
    if base is None:
        return None
    leased = {lease.peer: lease.count for lease in tip.leases}
    seated = {elector.peer for elector in tip.electorate}
    willing = {
        peer: ready
        for peer, ready in readys.items()
        if ready.base == base and peer in leased and _gives(ready, len(rules.chunk_sizes))
    }
    tokens = {
        peer: min(
            ready.tokens, leased[peer] * rules.tokens_per_sample, ready.samples * rules.tokens_per_sample
        )
        for peer, ready in willing.items()
    }
    tokens = {peer: count for peer, count in tokens.items() if count > 0}
    weights = _weights(rules, tokens, seated)
    roster = tuple(
        Contributor(
            peer=peer,
            weight=weights[peer],
            tokens=tokens[peer],
            samples=min(willing[peer].samples, leased[peer]),
        )
        for peer in sorted(weights)
    )
    owners = [peer for peer in sorted(weights) if peer in seated]
    return Plan(base, roster, partition(len(rules.chunk_sizes), owners) if roster else (), readys)


def _gives(ready: Ready, chunks: int) -> bool:
    """Whether a Ready describes a contribution that can be one at all."""
    norms_fit = len(ready.norms) == chunks and all(math.isfinite(norm) and norm >= 0 for norm in ready.norms)
    return ready.tokens > 0 and len(ready.commitment) == 32 and norms_fit


def _weights(rules: Rules, tokens: Mapping[str, int], seated: set[str]) -> dict[str, int]:
    if not tokens:
        return {}
    cap = int(rules.weight_cap * median(tokens.values()))
    weights = {peer: min(count, cap) for peer, count in tokens.items()}
    held = sum(weight for peer, weight in weights.items() if peer in seated)
    strangers = sum(weight for peer, weight in weights.items() if peer not in seated)
    allowed = int(held * rules.open_share / (1 - rules.open_share))
    if not held:
        return {}
    if strangers > allowed:
        weights = {p: w if p in seated else w * allowed // strangers for p, w in weights.items()}
    return {peer: weight for peer, weight in weights.items() if weight > 0}


def partition(chunks: int, owners: Sequence[str]) -> tuple[str, ...]:
    """Give each owner one run of chunks; runs differ by at most one chunk, so nobody owns much more than 1/N."""
    if not owners:
        return ()
    return tuple(owners[chunk * len(owners) // chunks] for chunk in range(chunks))


def included(entry: ReducedChunk, position: int) -> bool:
    """Whether contributor ``position`` of the roster is in a reduced chunk."""
    byte, bit = divmod(position, 8)
    return byte < len(entry.included) and bool(entry.included[byte] >> bit & 1)


def bitmap(positions: Sequence[int], size: int) -> bytes:
    """Little-endian bit set of roster positions, ``ceil(size / 8)`` bytes."""
    bits = bytearray((size + 7) // 8)
    for position in positions:
        bits[position // 8] |= 1 << position % 8
    return bytes(bits)


def make_value(
    rules: Rules, tip: Value, tip_digest: bytes, plan: Plan, attempt: int, chunks: Sequence[ReducedChunk]
) -> Value:
    """The value of a free proposal: a pure function of the value before, plan, attempt and reduced chunks."""
    taken, banned = take_orders(rules, tip, plan.readys)
    listed = set(plan.readys) - banned
    leaving = {peer for peer, ready in plan.readys.items() if ready.leaving}
    seats = {
        peer: rules.seat_of(ready.admission, peer) for peer, ready in plan.readys.items() if ready.admission
    }
    voters = {elector.peer for elector in tip.electorate}
    followed = {ghost.peer: ghost.rounds for ghost in tip.ghosts}
    arrivals = sorted(
        (seat.digest, peer, seat.seated)
        for peer, seat in seats.items()
        if seat is not None and peer not in voters and peer not in tip.members and peer not in banned
        and plan.readys[peer].base == plan.base and peer not in leaving
    )  # fmt: skip
    ripe = [(peer, seated) for _, peer, seated in arrivals if followed.get(peer, 0) >= rules.ghost_rounds]
    electorate, stopped = next_electorate(
        [e for e in tip.electorate if e.peer not in banned] or tip.electorate,
        listed,
        leaving,
        [peer for peer, seated in ripe if seated],
        rules.max_voters,
    )
    stayers = {e.peer for e in electorate if e.absent == 0}
    members = tuple(
        sorted(
            {peer for peer in tip.members if peer in listed and peer not in leaving}
            | {peer for peer, seated in ripe if not seated}
        )
    )
    present = (stayers & listed) | set(members)
    certified = {
        entry.peer: entry.samples
        for position, entry in enumerate(plan.roster)
        if any(included(chunk, position) for chunk in chunks)
    }
    waiting = stayers | set(members) | {e.peer for e in electorate}
    books = settle(Ledger(tip.leases, tip.returned, tip.cursor), certified, waiting)
    last = rules.rounds and tip.round + 2 >= rules.rounds
    if not last:
        books = assign(books, sorted(present), rules.samples)
    total = sum(entry.tokens for entry in plan.roster)
    order = leaders(rules, tip)
    failed = tuple(dict.fromkeys(order[a % len(order)] for a in range(min(attempt, len(order)))))
    return Value(
        epoch=tip.epoch,
        round=tip.round + 1,
        previous=tip_digest,
        base=plan.base,
        roster=plan.roster,
        chunks=tuple(chunks),
        leases=books.leases,
        cursor=books.cursor,
        returned=books.returned,
        electorate=electorate,
        members=members,
        ghosts=tuple(
            Ghost(peer=peer, rounds=followed.get(peer, 0) + 1)
            for _, peer, _ in arrivals
            if peer not in {p for p, _ in ripe}
        ),
        tie_breaker=next_tie_breaker(tip.tie_breaker, electorate, stayers, tip.beacon),
        failed_leaders=failed,
        failed_last=tip.failed_leaders,
        failed_before=tip.failed_last,
        boots=tuple(
            Boot(peer=peer, nonce=ready.boot)
            for peer, ready in sorted(plan.readys.items())
            if ready.lost_record and (peer in voters or peer in {e.peer for e in electorate})
        ),
        left=tuple(sorted(leaving)),
        beacon=next_beacon(tip.beacon, tip.round + 1),
        tokens=total,
        partial_tokens=_partial_tokens(rules, plan, chunks),
        stopped=stopped,
        orders=taken,
        order_number=max((order.number for order in taken), default=tip.order_number),
        banned=tuple(sorted(banned)),
    )


def take_orders(rules: Rules, tip: Value, readys: Mapping[str, Ready]) -> tuple[tuple[Taken, ...], set[str]]:
    """The operator orders that the listed Readys hold and no value has taken up; who is banned after them (rule 11).

    They act in order of number; of two with one number the one with the lower digest counts.
    """
    held: dict[int, Sealed[Order]] = {}
    for raw in sorted({raw for ready in readys.values() for raw in ready.orders}):
        try:
            order = rules.unseal_order(raw)
        except NodeError:
            continue
        number = order.message.number
        if number > tip.order_number and (number not in held or order.digest < held[number].digest):
            held[number] = order
    taken = sorted(held)[:_MOST_TAKEN]
    banned = set(tip.banned)
    for number in taken:
        order = held[number]
        if order.message.kind == "ban":
            banned.add(order.message.peer)
        elif order.message.kind == "unban":
            banned.discard(order.message.peer)
    return tuple(Taken(number=number, digest=held[number].digest) for number in taken), banned


def _partial_tokens(rules: Rules, plan: Plan, chunks: Sequence[ReducedChunk]) -> int:
    """Tokens of contributors that are missing in some chunk, in proportion to the values that miss them."""
    size = sum(rules.chunk_sizes)
    partial = 0
    for position, entry in enumerate(plan.roster):
        missing = sum(
            n for n, chunk in zip(rules.chunk_sizes, chunks, strict=True) if not included(chunk, position)
        )
        partial += entry.tokens * missing // size
    return partial


def parse_value(data: bytes) -> Value:
    """Decode a value and insist that its bytes are canonical, so that one value has one digest.

    Raises:
        NodeError: It is no value.
        ValueError: It is not canonical, or nobody could decide the round after it.
    """
    value = decode(Value, data)
    if encode(value) != data:
        raise ValueError("the bytes of a value are not canonical")
    if not value.electorate:
        raise ValueError("the value names no voter")
    return value
