"""Cheap checks of a whole file, made on every one: form, assignment, window, lengths, endings, log-probabilities.

Each is a function of the file, the run's terms and the lease alone, and gives findings, never an exception: the file
is a stranger's.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from protocol.errors import Code
from rl.rollouts.record import CHUNK, SCHEMA, Group, Provenance, Rollout
from rl.sampling.ending import Decode, finish
from rl.sampling.settings import MAX_STOP_BYTES, Sampling
from rl.validation.terms import Lease, Terms
from rl.validation.verdict import Finding
from rl.work.window import in_window

_SEEN = MAX_STOP_BYTES + 8  # tokens of a turn that decide whether it ends
_ROUNDING = 1e-5  # by which a computed log-probability may be above 0


def check(
    provenance: Provenance, groups: Sequence[Group], terms: Terms, lease: Lease, decode: Decode | None
) -> list[Finding]:
    """Everything that can be said without the environment, the noise or the model.

    Args:
        provenance: What the file says of itself.
        groups: What it holds.
        terms: The run's.
        lease: What it should answer.
        decode: Tokens to text, needed where the run has stop texts.
    """
    found = [*check_provenance(provenance, terms, lease), *check_groups(groups, terms, lease)]
    for rollout in (rollout for group in groups for rollout in group.rollouts):
        broken = [*check_tokens(rollout, terms), *check_lengths(rollout, terms)]
        found += broken
        if broken:
            continue  # what follows indexes by what these looked at
        found += check_versions(rollout, terms, lease)
        found += check_logprobs(rollout, terms.sampling)
        found += check_ending(rollout, terms, decode)
    return found


def check_provenance(provenance: Provenance, terms: Terms, lease: Lease) -> Iterator[Finding]:
    """Is the file of this run, this worker, this lease, and a version within the window?"""
    for name, says, should in (
        ("schema", provenance.schema, SCHEMA),
        ("run", provenance.run, terms.run),
        ("worker", provenance.worker, lease.worker),
        ("trainer", provenance.trainer, lease.trainer),
        ("lease", provenance.counter, lease.counter),
        ("policy version", provenance.version, lease.version),
        ("digest of the weights", provenance.weights.hex(), lease.weights.hex()),
        ("beacon", provenance.beacon.hex(), lease.beacon.hex()),
        ("environment", provenance.environment, terms.environment),
        ("version of the environment", provenance.environment_version, terms.environment_version),
        ("tokenizer", provenance.tokenizer.hex(), terms.tokenizer.hex()),
        ("sampling", str(provenance.sampling), str(terms.sampling)),
    ):
        if says != should:
            yield Finding(
                Code.RL_PROVENANCE,
                f"The file says that its {name} is {says}, and it is {should}.",
                evidence={"says": str(says)[:500], "should": str(should)[:500]},
            )
    if not in_window(lease.version, lease.newest, terms.window):
        yield Finding(
            Code.RL_WINDOW,
            f"Policy version {lease.version} is outside the window: the newest is {lease.newest} and at most "
            f"{terms.window} steps of age are allowed.",
            evidence={"version": lease.version, "newest": lease.newest, "window": terms.window},
        )


def check_groups(groups: Sequence[Group], terms: Terms, lease: Lease) -> Iterator[Finding]:
    """Are these exactly the lease's positions in their order, each with its whole group in order?"""
    positions = tuple(group.position for group in groups)
    if positions != lease.positions:
        yield Finding(
            Code.RL_GROUP,
            f"The file holds the positions {_few(positions)} where the lease has {_few(lease.positions)}.",
            evidence={"holds": str(_few(positions)), "leased": str(_few(lease.positions))},
        )
    for group in groups:
        indices = [rollout.index for rollout in group.rollouts]
        if indices != list(range(terms.group_size)):
            yield Finding(
                Code.RL_GROUP,
                f"The group holds the rollouts {_few(indices)} where it should hold 0 to {terms.group_size - 1}.",
                group.position,
                evidence={"rollouts": len(indices), "group_size": terms.group_size},
            )


def _few(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:8])
    return f"{shown}, … ({len(numbers)})" if len(numbers) > 8 else shown or "(none)"


def check_tokens(rollout: Rollout, terms: Terms) -> Iterator[Finding]:
    """Are all tokens of the vocabulary, and is there something before the first one that was sampled?"""
    outside = (rollout.tokens < 0) | (rollout.tokens >= terms.vocab)
    if outside.any():
        place = int(outside.argmax())
        yield _of(
            rollout,
            Code.RL_TOKENS,
            f"Token {rollout.tokens[place]} at {place} is not of a vocabulary of {terms.vocab}.",
            place=place,
            token=int(rollout.tokens[place]),
        )
    if not len(rollout.tokens) or rollout.sampled[0]:
        yield _of(rollout, Code.RL_TOKENS, "The rollout has no prompt.")


def check_lengths(rollout: Rollout, terms: Terms) -> Iterator[Finding]:
    """Was something sampled, and not more than may be?"""
    count, most = int(rollout.sampled.sum()), terms.sampling.max_tokens
    if not 0 < count <= most:
        sentence = f"{count} tokens were sampled, where 1 to {most} may be."
        yield _of(rollout, Code.RL_LENGTH, sentence, sampled=count, most=most)
    if len(rollout.tokens) > terms.context:
        sentence = f"The transcript has {len(rollout.tokens)} tokens, and the context {terms.context}."
        yield _of(rollout, Code.RL_LENGTH, sentence, tokens=len(rollout.tokens), context=terms.context)


def check_versions(rollout: Rollout, terms: Terms, lease: Lease) -> Iterator[Finding]:
    """Is each proof there and of one version, and does each sampled token have its proof's version?"""
    chunks = rollout.chunks
    if len(rollout.proofs) != chunks or len(rollout.proof_versions) != chunks:
        sentence = f"There are {len(rollout.proofs)} proofs for {chunks} chunks."
        yield _of(rollout, Code.RL_PROOF_FORM, sentence, proofs=len(rollout.proofs), chunks=chunks)
        return
    if any(len(proof) > terms.proof_bytes or not proof for proof in rollout.proofs):
        longest = max(len(proof) for proof in rollout.proofs)
        sentence = f"A proof is empty or has {longest} bytes, where it has at most {terms.proof_bytes}."
        yield _of(rollout, Code.RL_PROOF_FORM, sentence, longest=longest)
    versions = rollout.proof_versions
    if list(versions) != sorted(versions) or len(set(versions)) > terms.refills + 1:
        sentence = f"Proofs are of the versions {_few(versions)}: not in order, or more than {terms.refills} changes."
        yield _of(rollout, Code.RL_PROOF_FORM, sentence)
    if versions and not lease.version <= min(versions) <= max(versions) <= lease.newest:
        yield _of(
            rollout,
            Code.RL_WINDOW,
            f"Tokens are of the versions {min(versions)} to {max(versions)}, where {lease.version} to {lease.newest} "
            "were to be had.",
            oldest=min(versions),
            newest=max(versions),
        )
    should = np.full(len(rollout.tokens), -1, np.int64)
    should[rollout.prompt : rollout.end] = np.repeat(versions, CHUNK)[: rollout.end - rollout.prompt]
    should[~rollout.sampled] = -1
    wrong = rollout.versions != should
    if wrong.any():
        place = int(wrong.argmax())
        sentence = (
            f"Token {place} is said to be of version {rollout.versions[place]}, its proof {should[place]}."
        )
        yield _of(rollout, Code.RL_PROOF_FORM, sentence, place=place)


def check_logprobs(rollout: Rollout, sampling: Sampling) -> Iterator[Finding]:
    """Can these be log-probabilities of what was sampled, and of nothing else?"""
    own = rollout.logprobs[rollout.sampled]
    finite = np.isfinite(own)
    if not finite.all():
        place = int(np.flatnonzero(rollout.sampled)[int((~finite).argmax())])
        sentence = f"The log-probability of token {place} is {rollout.logprobs[place]}."
        yield _of(rollout, Code.RL_LOGPROBS, sentence, place=place)
        return
    most = float(own.max(initial=-np.inf))
    if most > _ROUNDING:
        yield _of(rollout, Code.RL_LOGPROBS, f"A log-probability is {most:g}, above 0.", largest=most)
    if sampling.temperature == 0 and float(own.min(initial=0.0)) < 0:
        yield _of(rollout, Code.RL_LOGPROBS, "A log-probability is below 0 where the largest logit is taken.")
    if np.any(rollout.logprobs[~rollout.sampled] != 0):  # NaN differs, too
        yield _of(rollout, Code.RL_LOGPROBS, "A token that was not sampled has a log-probability.")


def check_ending(rollout: Rollout, terms: Terms, decode: Decode | None) -> Iterator[Finding]:
    """Does every turn end where it has to, and the last one as the rollout says?"""
    before, ends = 0, "over"
    turns = list(_turns(rollout))
    for number, (start, end) in enumerate(turns):
        tokens = rollout.tokens[start:end].tolist()
        early, ends = _ending(tokens, terms, decode, before, start)
        if early is not None:
            sentence = f"The turn goes on after token {start + early}, which ends it."
            yield _of(rollout, Code.RL_TERMINATION, sentence, place=start + early)
            return
        last = number == len(turns) - 1
        if not ends or (ends == "length" and not last):
            sentence = f"The turn ends at token {end - 1}, where nothing ends it."
            yield _of(rollout, Code.RL_TERMINATION, sentence, place=end - 1, token=tokens[-1])
            return
        before += end - start
    said = rollout.finish
    if said != ends and not (said == "over" and ends in ("eos", "stop")):
        yield _of(
            rollout, Code.RL_TERMINATION, f"The rollout says that it ends by {said}, and it ends by {ends}."
        )


def _ending(
    tokens: list[int], terms: Terms, decode: Decode | None, before: int, start: int
) -> tuple[int | None, str]:
    """The place of a token that ends a turn too early, or None; and how its last token ends it, or nothing."""

    def ends(count: int) -> str:
        room = terms.context - start - count
        unseen = max(0, count - _SEEN)
        return finish(terms.sampling, tokens[unseen:count], decode, before + unseen, room) or ""

    if not terms.sampling.stop:  # then only single tokens and counts end a turn
        early = next((at for at, token in enumerate(tokens[:-1]) if token in terms.sampling.eos), None)
        return early, ends(len(tokens))
    return next((at for at in range(len(tokens) - 1) if ends(at + 1)), None), ends(len(tokens))


def _turns(rollout: Rollout) -> Iterable[tuple[int, int]]:
    """Where runs of sampled tokens begin and end."""
    edges = np.flatnonzero(np.diff(rollout.sampled.astype(np.int8), prepend=0, append=0))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _of(rollout: Rollout, code: Code, sentence: str, **evidence: float | int | str) -> Finding:
    return Finding(code, sentence, rollout.position, rollout.index, evidence)
