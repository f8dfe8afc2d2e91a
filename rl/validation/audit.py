"""The audit: the policy reads what was handed in, and its own states, log-probabilities and choices are compared.

One prefill of each transcript, for each policy version that it has chunks of. From the states come the verdict on the
proofs (other weights, another prompt, edited tokens), the log-probability of each sampled token, and, with the noise of
the rollout's seed, the token that had to be drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

import toploc
from protocol.errors import Code
from protocol.units import Digest, PeerId
from rl.rollouts.record import CHUNK, Group, Int32s, Rollout
from rl.sampling import Sampling, rederive
from rl.sampling.noise import noise_rows
from rl.validation.tolerances import FEW, Tolerances
from rl.validation.verdict import Finding
from rl.work.seeds import token_seed

_BATCH = 1 << 14  # tokens that are read at once
_CELLS = 1 << 22  # of a matrix of logits


class Policy(Protocol):
    """One policy version, ready to read."""

    def states(self, sequences: Sequence[Int32s]) -> Sequence[torch.Tensor]:
        """The hidden states after the final norm, [T, H] for each sequence of T tokens."""
        ...

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """float32 logits [N, V] of states [N, H]."""
        ...


@dataclass
class Audit:
    """What an audit found and measured.

    Attributes:
        findings: What is wrong.
        tokens: Sampled tokens that were compared.
        near_ties: Of them, those that are not the choice and may be, within the tolerance.
        largest: Largest difference of a log-probability.
    """

    findings: list[Finding] = field(default_factory=list)
    tokens: int = 0
    near_ties: int = 0
    largest: float = 0.0


def audit(
    groups: Sequence[Group],
    policies: Mapping[int, Policy],
    beacon: Digest,
    worker: PeerId,
    sampling: Sampling,
    tolerances: Tolerances,
) -> Audit:
    """Runs the model for every rollout of a file that passed the cheap checks.

    Args:
        groups: What the file holds.
        policies: Every version that its chunks are of.
        beacon: Of the version that was leased.
        worker: Who drew.
        sampling: The run's.
        tolerances: See there.

    Raises:
        ValueError: The policy's own numbers are not finite.
    """
    result = Audit()
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for batch in _batches(rollouts):
        states = _states(batch, policies)
        seeds = [token_seed(beacon, rollout.position, worker, rollout.index) for rollout in batch]
        compared = _compare(batch, states, policies, seeds, sampling, tolerances.logit)
        for rollout, own, law in zip(batch, states, compared, strict=True):
            result.findings += _proofs(rollout, own, tolerances)
            result.tokens += len(law.gaps)
            result.near_ties += int((law.possible & (law.gaps > 0)).sum())
            result.findings += _logprobs(rollout, law, sampling, tolerances, result)
            result.findings += _choices(rollout, law)
    most = FEW + tolerances.near_ties * result.tokens
    if result.near_ties > most:
        sentence = (
            f"{result.near_ties} of {result.tokens} tokens are near ties, where at most {most:.0f} may be."
        )
        evidence = {"near_ties": result.near_ties, "tokens": result.tokens}
        result.findings.append(Finding(Code.RL_OTHER_TOKENS, sentence, evidence=evidence))
    return result


def _batches(rollouts: Sequence[Rollout]) -> Iterator[list[Rollout]]:
    batch: list[Rollout] = []
    tokens = 0
    for rollout in rollouts:
        if batch and tokens + rollout.end > _BATCH:
            yield batch
            batch, tokens = [], 0
        batch.append(rollout)
        tokens += rollout.end
    if batch:
        yield batch


def _states(batch: Sequence[Rollout], policies: Mapping[int, Policy]) -> list[torch.Tensor]:
    """The states [end - prompt, H] that predict what follows the prompt, each chunk's by its version."""
    found: list[torch.Tensor | None] = [None] * len(batch)
    for version in sorted({version for rollout in batch for version in rollout.proof_versions}):
        places = [place for place, rollout in enumerate(batch) if version in rollout.proof_versions]
        read = policies[version].states([batch[place].tokens[: batch[place].end - 1] for place in places])
        for place, states in zip(places, read, strict=True):
            rollout = batch[place]
            own = states[rollout.prompt - 1 :]
            before = found[place]
            if before is None:
                found[place] = own
            else:
                start = CHUNK * rollout.proof_versions.index(version)
                found[place] = torch.cat([before[:start], own[start:]])
    return [states for states in found if states is not None]


def _proofs(rollout: Rollout, states: torch.Tensor, tolerances: Tolerances) -> Iterator[Finding]:
    verdict = toploc.check(states.cpu(), rollout.proofs, tolerances.proofs)
    if verdict.reasons:
        first = verdict.reasons[0]
        chunks = len({reason.chunk for reason in verdict.reasons})
        where = "All proofs" if first.chunk is None else f"Proof {first.chunk}"
        version = rollout.proof_versions[first.chunk or 0]
        evidence: dict[str, float | int | str] = {
            "fault": first.fault.value,
            "version": version,
            "chunks": chunks,
            "of": len(rollout.proofs),
        }
        if verdict.score is not None:
            evidence["score"] = verdict.score
        yield Finding(
            Code.RL_PROOF,
            f"{where} of version {version} is refused ({first.fault.value}): {first.sentence}.",
            rollout.position,
            rollout.index,
            evidence,
        )


@dataclass(frozen=True)
class _Compared:
    """What the law says of each sampled token: its choice, the claimed token's log-probability and its gap to it."""

    chosen: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float64]
    gaps: npt.NDArray[np.float64]
    possible: npt.NDArray[np.bool_]


def _compare(
    batch: Sequence[Rollout],
    states: Sequence[torch.Tensor],
    policies: Mapping[int, Policy],
    seeds: Sequence[bytes],
    sampling: Sampling,
    tolerance: float,
) -> list[_Compared]:
    """The law of sampling for every sampled token, rollout by rollout."""
    places = [np.flatnonzero(rollout.sampled) for rollout in batch]
    owner = np.repeat(np.arange(len(batch)), [len(some) for some in places])
    versions = np.concatenate([each.versions[some] for each, some in zip(batch, places, strict=True)])
    tokens = np.concatenate([each.tokens[some] for each, some in zip(batch, places, strict=True)])
    numbers = np.concatenate([np.arange(len(some)) for some in places])
    rows = torch.cat([own[some - each.prompt] for each, own, some in zip(batch, states, places, strict=True)])
    laws: list[_Compared] = []
    order: list[npt.NDArray[np.int64]] = []
    for version in np.unique(versions):
        policy = policies[int(version)]
        some = np.flatnonzero(versions == version)
        width = int(policy.logits(rows[:1]).shape[1])
        for part in np.array_split(some, -(-len(some) * width // _CELLS)):
            logits = policy.logits(rows[torch.from_numpy(part).to(rows.device)]).float().cpu().numpy()
            noised = _noise(owner[part], numbers[part], seeds, width) if _plain(sampling, width) else None
            claims = [(seeds[owner[at]], int(numbers[at]), int(tokens[at])) for at in part]
            laws.append(_law(logits, claims, noised, sampling, tolerance))
            order.append(part)
    back = np.argsort(np.concatenate(order))
    joined = [
        np.concatenate([getattr(law, name) for law in laws])[back]
        for name in ("chosen", "logprobs", "gaps", "possible")
    ]
    ends = np.cumsum([len(some) for some in places])
    return [
        _Compared(*(values[end - len(some) : end] for values in joined))
        for some, end in zip(places, ends, strict=True)
    ]


def _plain(sampling: Sampling, vocab: int) -> bool:
    """Whether the whole distribution is sampled."""
    return sampling.temperature > 0 and sampling.top_p == 1 and not 0 < sampling.top_k < vocab


def _noise(
    owner: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], seeds: Sequence[bytes], vocab: int
) -> npt.NDArray[np.float64]:
    """The noise of every token of the vocabulary for each row [N, V]; rows of one rollout stand together."""
    return np.concatenate(
        [noise_rows(seeds[each], numbers[owner == each], vocab) for each in np.unique(owner)]
    )


def _law(
    logits: npt.NDArray[np.float32],
    claims: Sequence[tuple[bytes, int, int]],
    noised: npt.NDArray[np.float64] | None,
    sampling: Sampling,
    tolerance: float,
) -> _Compared:
    """The law of sampling for rows of logits [N, V].

    Args:
        logits: One row for each claim.
        claims: Seed, the token's number among the rollout's sampled ones, token.
        noised: The noise [N, V], where the whole distribution is sampled.
        sampling: The run's.
        tolerance: Of one logit.

    Raises:
        ValueError: The logits are not finite.
    """
    if not np.isfinite(logits).all():
        raise ValueError("the policy's logits are not finite")
    if noised is None:
        each = [rederive(row, sampling, *claim, tolerance) for row, claim in zip(logits, claims, strict=True)]
        return _Compared(
            np.array([one.chosen for one in each]),
            np.array([one.logprob for one in each]),
            np.array([one.gap for one in each]),
            np.array([one.possible for one in each]),
        )
    rows, tokens = np.arange(len(claims)), np.array([token for _, _, token in claims])
    tempered = (logits - logits.max(1, keepdims=True)) / np.float32(sampling.temperature)
    logprobs = tempered[rows, tokens].astype(np.float64) - np.log(np.exp(tempered).sum(1, dtype=np.float64))
    noised += tempered
    chosen = noised.argmax(1)
    gaps = noised[rows, chosen] - noised[rows, tokens]
    return _Compared(chosen, logprobs, gaps, gaps <= 2 * tolerance / sampling.temperature)


def _logprobs(
    rollout: Rollout, compared: _Compared, sampling: Sampling, tolerances: Tolerances, result: Audit
) -> Iterator[Finding]:
    known = np.isfinite(
        compared.logprobs
    )  # a token at a cut may be cut here: its log-probability says nothing
    apart = np.where(known, rollout.logprobs[rollout.sampled] - np.where(known, compared.logprobs, 0), 0)
    scale = 1.0 if sampling.temperature == 0 else 1 / sampling.temperature
    worst = int(np.abs(apart).argmax())
    largest, mean = float(np.abs(apart[worst])), float(apart.mean())
    result.largest = max(result.largest, largest)
    few = scale * tolerances.logit / len(apart) ** 0.5  # a mean of few is not so exact
    if largest > 2 * scale * tolerances.logit:
        place = int(np.flatnonzero(rollout.sampled)[worst])
        sentence = (
            f"The log-probability of token {place} is {rollout.logprobs[place]:.5f}, and by the policy "
            f"{compared.logprobs[worst]:.5f}."
        )
    elif abs(mean) > scale * tolerances.mean_logprob + few:
        sentence = f"Log-probabilities differ by {mean:+.5f} from the policy's on average."
    else:
        return
    evidence = {"largest": largest, "mean": mean, "version": int(rollout.versions[rollout.sampled][worst])}
    yield Finding(Code.RL_OTHER_LOGPROBS, sentence, rollout.position, rollout.index, evidence)


def _choices(rollout: Rollout, compared: _Compared) -> Iterator[Finding]:
    if compared.possible.all():
        return
    wrong = int((~compared.possible).argmax())
    count = int((~compared.possible).sum())
    place = int(np.flatnonzero(rollout.sampled)[wrong])
    gap = float(compared.gaps[wrong])
    yield Finding(
        Code.RL_OTHER_TOKENS,
        f"Token {place} is {rollout.tokens[place]}, and the seed gives {compared.chosen[wrong]}; "
        f"{count} of {len(compared.gaps)} tokens are not those that the seed gives.",
        rollout.position,
        rollout.index,
        {
            "place": place,
            "token": int(rollout.tokens[place]),
            "chosen": int(compared.chosen[wrong]),
            "gap": min(gap, 1e9),
            "wrong": count,
        },
    )
