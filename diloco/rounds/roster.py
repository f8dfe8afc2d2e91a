"""Who contributes to a round, with what weight, and who reduces which chunk: pure functions of a value and Readys.

The leader of an attempt computes them and every member computes them again (rule 4).
"""

import math
import struct
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from diloco.rounds.electorate import is_quorum
from diloco.rounds.leases import samples_of
from diloco.rounds.partition import measured, owners_of, partition
from diloco.rounds.rules import Rules
from diloco.rounds.statements import Ready
from diloco.rounds.values import Contributor, ReducedChunk, Value

_CLIP = 3
_FEWEST_CLIPPED = 4
_LARGEST_NORM = 1e18  # squared, of a chunk; more than any codec's largest values make


@dataclass(frozen=True)
class Plan:
    """What a free proposal means.

    Attributes:
        base: State digest of the round.
        roster: Contributors, ordered by peer id.
        owners: Owner of each chunk.
        readys: The Ready of every listed peer.
        struck: Whom evidence names: no contributor, and no voter of the next round.
    """

    base: bytes
    roster: tuple[Contributor, ...]
    owners: tuple[str, ...]
    readys: Mapping[str, Ready]
    struck: frozenset[str] = frozenset()


def base_of(tip: Value, readys: Mapping[str, Ready]) -> bytes | None:
    """The state digest that a quorum of the electorate reports (rule 12), if any."""
    bases = {e.peer: readys[e.peer].base for e in tip.electorate if e.peer in readys}
    for base, _ in Counter(bases.values()).most_common(2):  # a third one has no half
        if is_quorum([peer for peer in bases if bases[peer] == base], tip.electorate, tip.tie_breaker):
            return base
    return None


def make_plan(
    rules: Rules, tip: Value, readys: Mapping[str, Ready], struck: Collection[str] = ()
) -> Plan | None:
    """Roster, weights and partition from the value before and the listed Readys; None when no base has a quorum."""
    base = base_of(tip, readys)
    if base is None:
        return None
    chunks = len(rules.slot(tip.round + 1))
    leased = {lease.peer: samples_of(lease) for lease in tip.leases}
    seated = {elector.peer for elector in tip.electorate}
    willing = {
        peer: ready
        for peer, ready in ({} if tip.paused else readys).items()
        if ready.base == base and peer in leased and peer not in struck and _gives(ready, chunks)
    }
    tokens = {
        peer: min(
            ready.tokens, leased[peer] * rules.tokens_per_sample, ready.samples * rules.tokens_per_sample
        )
        for peer, ready in willing.items()
    }
    tokens = {peer: count for peer, count in tokens.items() if count > 0}
    weights = weigh(rules, tokens, seated)
    norms = {peer: math.fsum(willing[peer].norms) for peer in weights}
    clips = clip_factors(norms, tokens, seated)
    roster = tuple(
        Contributor(
            peer=peer,
            weight=weights[peer],
            tokens=tokens[peer],
            samples=min(willing[peer].samples, leased[peer]),
            clip=clips[peer],
        )
        for peer in sorted(weights)
    )
    rates = measured(readys, seated)
    voters = [peer for peer in sorted(weights) if peer in seated]
    recorded = [
        peer for peer in voters if not readys[peer].lost_record
    ]  # others may have signed chunks before
    owners = owners_of(recorded or voters, rates, {entry.peer for entry in tip.unproven})
    return Plan(base, roster, partition(chunks, owners, rates), readys, frozenset(struck))


def _gives(ready: Ready, chunks: int) -> bool:
    """Whether a Ready describes a contribution that can be one at all."""
    norms_fit = len(ready.norms) == chunks and all(0 <= norm <= _LARGEST_NORM for norm in ready.norms)
    return ready.tokens > 0 and len(ready.commitment) == 32 and norms_fit


def weigh(rules: Rules, tokens: Mapping[str, int], seated: Collection[str]) -> dict[str, int]:
    """The weight of each contributor in the mean, from its tokens: capped, and strangers bounded together.

    The cap is a multiple of the median of those with a seat, so that free identities cannot lower it for the others.
    """
    held_tokens = [count for peer, count in tokens.items() if peer in seated]
    if not held_tokens:
        return {}
    cap = int(rules.weight_cap * median(held_tokens))
    weights = {peer: min(count, cap) for peer, count in tokens.items()}
    held = sum(weight for peer, weight in weights.items() if peer in seated)
    strangers = sum(weight for peer, weight in weights.items() if peer not in seated)
    allowed = int(held * rules.open_share / (1 - rules.open_share))
    if strangers > allowed:
        weights = {p: w if p in seated else w * allowed // strangers for p, w in weights.items()}
    return {peer: weight for peer, weight in weights.items() if weight > 0}


def clip_factors(
    norms: Mapping[str, float], tokens: Mapping[str, int], seated: Collection[str]
) -> dict[str, float]:
    """By how much each contribution is scaled so that none is longer than 3 times the usual for its tokens.

    A pseudo-gradient of twice the tokens is about sqrt(2) times as long, so norm / sqrt(tokens) is what is compared,
    with the median of the contributors that have a seat: identities without one are free, and must not set it. Below
    ``_FEWEST_CLIPPED`` contributors there is no usual.

    Args:
        norms: Squared L2 norm of each contribution.
        tokens: Tokens for which each counts, positive.
        seated: Who has a seat; at least one contributor.

    Returns:
        Factors from 0 to 1, representable in fp32.
    """
    if len(norms) < _FEWEST_CLIPPED:
        return dict.fromkeys(norms, 1.0)
    lengths = {peer: math.sqrt(norm / tokens[peer]) for peer, norm in norms.items()}
    most = _CLIP * median(length for peer, length in lengths.items() if peer in seated)
    return {peer: _fp32(most / length) if length > most else 1.0 for peer, length in lengths.items()}


def _fp32(value: float) -> float:
    """The nearest number that fp32 has."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


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


def partial_tokens(sizes: Sequence[int], plan: Plan, chunks: Sequence[ReducedChunk]) -> int:
    """Tokens of contributors that are missing in some chunk, in proportion to the values that miss them.

    Args:
        sizes: Values of each chunk of the round.
        plan: Who contributes.
        chunks: What was agreed on.
    """
    size = sum(sizes)
    partial = 0
    for position, entry in enumerate(plan.roster):
        missing = sum(n for n, chunk in zip(sizes, chunks, strict=True) if not included(chunk, position))
        partial += entry.tokens * missing // size
    return partial
