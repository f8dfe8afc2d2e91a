"""What is compared with what: honest kinds of pairs, dishonest cases, forgeries."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from tests.eval.toploc.states import restored
from tests.eval.toploc.work import DISHONEST, EDITS, NOISES, TUNED, Bench
from toploc import Pair, Projection, ProofPoly, build_fingerprints, build_proofs
from toploc.chunks import pick
from toploc.projection import Fingerprint, fingerprint

SIZE = 32
TOPK = 128
SPLIT = 104  # a sequence is judged by a policy fitted to sequences of the other side


@dataclass(frozen=True)
class Scheme:
    """A way to make proofs of states; None stands for polynomials."""

    name: str
    projection: Projection | None

    def prove(self, states: torch.Tensor) -> Sequence[ProofPoly] | list[bytes]:
        if self.projection is None:
            return build_proofs(states, SIZE, TOPK, skip_prefill=True)
        return build_fingerprints(states, SIZE, self.projection, skip_prefill=True)


Pairs = list[Pair]

HONEST = "states-honest-"
HONEST_BFLOAT16 = {
    "cached decode, batch 16 · prefill, batch 8": ("decode16-bf16", "prefill8-bf16"),
    "cached decode, batch 16 · prefill, batch 1": ("decode16-bf16", "prefill1-bf16"),
    "cached decode, batch 16 · prefill, batch 16, 2 threads": ("decode16-bf16", "prefill16-bf16-2threads"),
    "cached decode, batch 16 · prefill, eager attention": ("decode16-bf16", "prefill8-bf16-eager"),
    "cached decode, batch 1 · prefill, batch 8": ("decode1-bf16", "prefill8-bf16"),
    "cached decode, batch 1 · cached decode, batch 16": ("decode1-bf16", "decode16-bf16"),
}
HONEST_MIXED = {
    "honest: bf16 prover · fp32 verifier": ("decode16-bf16", "prefill8-fp32"),
    "honest: fp32 prover · bf16 verifier": ("decode16-fp32", "prefill8-bf16"),
}
HONEST_FLOAT32 = {
    "honest: cached decode, batch 16 · prefill, batch 8": ("decode16-fp32", "prefill8-fp32"),
    "honest: cached decode, batch 16 · prefill, batch 1, eager": ("decode16-fp32", "prefill1-fp32-eager"),
    "honest: prefill, batch 1, eager · prefill, batch 8": ("prefill1-fp32-eager", "prefill8-fp32"),
}

_PLAIN = {
    "noise": "weights with noise of {} %",
    "tuned": "weights of {} fine-tuning step(s) later",
}
_ALTERED = {
    "int8": "int8 weights",
    "int6": "int6 weights",
    "int4": "int4 weights, a scale per row",
    "int4-group32": "int4 weights, a scale per 32",
    "fp8": "fp8 (e4m3) weights",
    "layer-15": "without layer 15",
    "layer-29": "without the last layer",
}


@cache
def bench() -> Bench:
    return Bench()


@cache
def states(name: str) -> torch.Tensor:
    return restored(bench().load(name))


@cache
def _proofs(scheme: Scheme, name: str, count: int) -> list[Sequence[ProofPoly] | list[bytes]]:
    return [scheme.prove(states(name)[number]) for number in range(count)]


def paired(scheme: Scheme, prover: str, verifier: str, count: int | None = None) -> Pairs:
    """Proofs of one item's states against the states of another, sequence by sequence."""
    count = count or min(len(states(prover)), len(states(verifier)))
    return [
        Pair(proofs, states(verifier)[number]) for number, proofs in enumerate(_proofs(scheme, prover, count))
    ]


def honest(scheme: Scheme, kinds: dict[str, tuple[str, str]]) -> dict[str, Pairs]:
    """Honest pairs by kind, as far as the model work is done."""
    return {
        kind: paired(scheme, HONEST + prover, HONEST + verifier)
        for kind, (prover, verifier) in kinds.items()
        if bench().has(HONEST + prover) and bench().has(HONEST + verifier)
    }


def dishonest(scheme: Scheme) -> Iterator[tuple[str, str, Pairs]]:
    """Group, case and pairs of everything that is not what it claims."""
    generated, text = HONEST + "decode16-bf16", HONEST + "prefill8-bf16"
    told = {
        "prompt": "another prompt of the same length",
        "word": "one word of the prompt",
        "first": "its first token",
    }
    known: list[tuple[str, str, str, str]] = [
        ("prompt", sentence, generated, f"states-told-{change}") for change, sentence in told.items()
    ]
    known += [
        ("text", f"one token edited, {128 - step} tokens before the end", generated, f"states-edited-{place}")
        for place, step in EDITS.items()
    ]
    for share in NOISES:
        name = f"noise-{share:g}"
        known.append(
            (
                "weights",
                _PLAIN["noise"].format(f"{100 * share:g}"),
                f"states-{name}-prover",
                f"states-{name}-verifier",
            )
        )
    for steps in TUNED:
        name, sentence = f"tuned-{steps}", _PLAIN["tuned"].format(steps)
        known.append(("weights", sentence, f"states-{name}-prover", f"states-{name}-verifier"))
        known.append(
            ("weights", f"weights of before {steps} fine-tuning step(s)", generated, f"states-stale-{name}")
        )
    for name, sentence in _ALTERED.items():
        group = "layers" if name.startswith("layer") else "precision"
        known.append((group, sentence, f"states-{name}-prover", f"states-{name}-verifier"))
    for name in ("int8", "int4"):
        sentence = f"generated by the model, prefilled by {_ALTERED[name]}"
        known.append(("precision", sentence, f"states-reprefilled-{name}", text))
    for group, sentence, prover, verifier in known:
        if bench().has(prover) and bench().has(verifier):
            yield group, sentence, paired(scheme, prover, verifier, DISHONEST)
    yield from _forged(scheme)


def float32_dishonest(scheme: Scheme) -> Iterator[tuple[str, str, Pairs]]:
    """Cases where prover and verifier both compute in float32."""
    for name, sentence in {
        "noise-0.001": "weights with noise of 0.1 %",
        "noise-0.002": "weights with noise of 0.2 %",
        "int8": "int8 weights",
        "tuned-1": "weights of 1 fine-tuning step later",
    }.items():
        prover = f"states-{name}-prover-fp32"
        if bench().has(prover):
            yield "fp32 throughout", sentence, paired(scheme, prover, HONEST + "prefill8-fp32", DISHONEST)


def mixed_dishonest(scheme: Scheme) -> Iterator[tuple[str, str, Pairs]]:
    """Cases where the prover computes in bfloat16 and the verifier in float32."""
    cases = {f"reprefilled-{name}": f"bf16, {_ALTERED[name]} · fp32 verifier" for name in ("int8", "int4")}
    for name, sentence in cases.items():
        if bench().has(f"states-{name}"):
            yield "mixed", sentence, paired(scheme, f"states-{name}", HONEST + "prefill8-fp32", DISHONEST)


def beyond(scheme: Scheme) -> Iterator[tuple[str, str, Pairs]]:
    """What no proof of activations can see: the text came from elsewhere, the activations are the model's own."""
    if bench().has("states-other-text-prefill16") and bench().has("states-int4-verifier"):
        sentence = "text of the int4 model, proofs of the claimed model over it"
        yield (
            "beyond",
            sentence,
            paired(scheme, "states-other-text-prefill16", "states-int4-verifier", DISHONEST),
        )


def _forged(scheme: Scheme) -> Iterator[tuple[str, str, Pairs]]:
    """Proofs made without the text's activations, from those of texts that the forger computed before."""
    verifier = states(HONEST + "prefill8-bf16")[:DISHONEST]
    others = states(HONEST + "decode16-bf16")[SPLIT:]
    replayed = _proofs(scheme, HONEST + "decode16-bf16", len(states(HONEST + "decode16-bf16")))[SPLIT:]
    forgeries: dict[str, Callable[[int], Sequence[ProofPoly] | list[bytes]]] = {
        "proofs of another text": lambda number: replayed[number],
        "the honest proofs in reversed order": lambda number: list(reversed(_own(scheme)[number])),
    }
    if scheme.projection is None:
        constant, template, outlier = _constant(others), _template(others, 65497), _template(others, 576)
        forgeries |= {
            "a constant polynomial": lambda _: [constant] * 4,
            "a template of usual positions and values": lambda _: [template] * 4,
            "a template modulo H, one value per channel": lambda _: [outlier] * 4,
            "null proofs": lambda _: [ProofPoly.null(TOPK)] * 4,
            "a proof left out": lambda number: _own(scheme)[number][:3],
        }
    else:
        same = Fingerprint(
            scheme.projection.step_exponent, np.zeros((SIZE, scheme.projection.dimensions), np.uint8)
        )
        usual = others.float().mean(dim=(0, 1)).expand(SIZE, -1)
        average = fingerprint(usual, scheme.projection)
        forgeries |= {
            "a constant fingerprint": lambda _: [same.to_bytes()] * 4,
            "the fingerprint of the average token": lambda _: [average.to_bytes()] * 4,
            "a proof left out": lambda number: _own(scheme)[number][:3],
        }
    for sentence, forge in forgeries.items():
        yield "forgery", sentence, [Pair(forge(number), own) for number, own in enumerate(verifier)]


def _own(scheme: Scheme) -> list[Sequence[ProofPoly] | list[bytes]]:
    return _proofs(scheme, HONEST + "decode16-bf16", len(states(HONEST + "decode16-bf16")))


def _constant(others: torch.Tensor) -> ProofPoly:
    """The value met most often among the largest activations of other texts."""
    bits = np.concatenate([pick(text[:SIZE], TOPK).bits for text in others])
    values, counts = np.unique(bits, return_counts=True)
    return ProofPoly([int(values[counts.argmax()])] + [0] * (TOPK - 1), 65497)


def _template(others: torch.Tensor, modulus: int) -> ProofPoly:
    """The positions picked most often in other texts, taken modulo ``modulus``, with their median values."""
    met: dict[int, list[int]] = {}
    for text in others:
        picked = pick(text[:SIZE], TOPK)
        for index, bits in zip(picked.indices.tolist(), picked.bits.tolist(), strict=True):
            met.setdefault(index % modulus, []).append(bits)
    usual = sorted(met, key=lambda place: -len(met[place]))[:TOPK]
    filler = (place for place in range(modulus) if place not in met)
    points = {place: sorted(met[place])[len(met[place]) // 2] for place in usual}
    while len(points) < TOPK:
        points[next(filler)] = 0x4100
    return ProofPoly(ProofPoly.from_points(list(points), list(points.values())).coeffs, modulus)
