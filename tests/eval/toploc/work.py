"""Everything the model has to compute, cached item by item, so that an interrupted evaluation goes on where it was.

``produce`` runs what is missing. Items are arrays ``<name>.npy`` in the cache folder: ``tokens-…`` and ``states-…``.
"""

import time
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import torch

from tests.eval.toploc import alter
from tests.eval.toploc.model import Source, Weights, assemble, cache_folder
from tests.eval.toploc.prompts import content_start, prompts
from tests.eval.toploc.states import Array, decode, generate, prefill

HONEST = 208  # honest sequences
DISHONEST = 64  # sequences of every dishonest case
RATE = 1e-4  # of the fine-tuning steps

NOISES = (0.001, 0.002, 0.005, 0.01, 0.02)
TUNED = (1, 2, 4)
EDITS = {"early": 8, "late": 120}  # decode step whose token is replaced


def altered_names() -> list[str]:
    """Weights other than the model's, by name."""
    noise = [f"noise-{share:g}" for share in NOISES]
    return [*noise, "int8", "int6", "int4", "int4-group32", "fp8", "layer-15", "layer-29", *_tuned_names()]


def _tuned_names() -> list[str]:
    return [f"tuned-{steps}" for steps in TUNED]


class Bench:
    """The model in all its variants, made when asked for, one at a time."""

    def __init__(self) -> None:
        self.folder = cache_folder()
        self._loaded: tuple[tuple[str, str, str], torch.nn.Module] | None = None
        self._tuned: dict[int, Weights] | None = None

    @cached_property
    def source(self) -> Source:
        return Source()

    @cached_property
    def base(self) -> Weights:
        return self.source.weights()

    @cached_property
    def prompts(self) -> list[list[int]]:
        return prompts(self.source.tokenizer())

    def weights(self, name: str) -> Weights:
        """The weights called ``name``; ``base`` is the model itself."""
        kind, _, value = name.partition("-")
        if kind == "base":
            return self.base
        if kind == "noise":
            return alter.noisy(self.base, float(value))
        if kind == "int8":
            return alter.rounded(self.base, 8)
        if kind == "int6":
            return alter.rounded(self.base, 6)
        if kind == "int4":
            return alter.rounded(self.base, 4, 32 if value else None)
        if kind == "fp8":
            return alter.float8(self.base)
        if kind == "layer":
            return alter.without_layer(self.base, int(value))
        if kind == "tuned":
            return self._fine_tuned()[int(value)]
        raise ValueError(f"no weights are called {name}")

    def _fine_tuned(self) -> dict[int, Weights]:
        if self._tuned is None:
            tokens = torch.from_numpy(self.load("tokens-base"))
            whole = torch.cat([torch.tensor(self.prompts), tokens], dim=1)[DISHONEST:]
            batches = [whole[start : start + 4] for start in range(0, 4 * max(TUNED), 4)]
            steps = alter.tuned(self.source.config(), self.base, batches, RATE)
            self._tuned = {step: weights for step, weights in enumerate(steps, 1) if step in TUNED}
        return self._tuned

    def model(self, weights: str, dtype: str, attention: str = "sdpa") -> torch.nn.Module:
        key = (weights, dtype, attention)
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None
            kind = torch.bfloat16 if dtype == "bf16" else torch.float32
            self._loaded = (key, assemble(self.source.config(), self.weights(weights), kind, attention))
        return self._loaded[1]

    def load(self, name: str) -> Array:
        array: Array = np.load(self.folder / f"{name}.npy")
        return array

    def save(self, name: str, array: Array) -> None:
        unfinished = self.folder / f"{name}.part.npy"
        np.save(unfinished, array)
        unfinished.rename(self.folder / f"{name}.npy")

    def has(self, name: str) -> bool:
        return (self.folder / f"{name}.npy").exists()

    def changed_prompts(self, change: str) -> list[list[int]]:
        """What the validator is told the prompts were, where that is a lie."""
        told = [list(prompt) for prompt in self.prompts[:DISHONEST]]
        at = content_start(self.source.tokenizer())
        if change == "prompt":
            return [list(prompt) for prompt in self.prompts[DISHONEST : 2 * DISHONEST]]
        for number, prompt in enumerate(told):
            other = self.prompts[(number + 101) % HONEST]
            place = {"word": at + 12, "first": at}[change]
            prompt[place] = next(
                token for token in [*other[at:], 1000] if token not in (prompt[place], prompt[place - 1])
            )
        return told

    def edited_tokens(self, place: str) -> Array:
        """Honest texts with one token replaced after the fact."""
        tokens = self.load("tokens-base")[:DISHONEST].copy()
        step = EDITS[place]
        for number in range(DISHONEST):
            tokens[number, step] = tokens[number, step + 5 if step < 64 else step - 5]
            if tokens[number, step] == self.load("tokens-base")[number, step]:
                tokens[number, step] = 1000
        return tokens


Item = tuple[tuple[str, ...], Callable[[Bench], tuple[Array, ...]]]


def _generated(
    weights: str, dtype: str, count: int, batch: int, seed: int
) -> Callable[[Bench], tuple[Array, ...]]:
    def run(bench: Bench) -> tuple[Array, ...]:
        model = bench.model(weights, dtype)
        parts = [
            generate(model, bench.prompts[start : start + batch], seed + start)
            for start in range(0, count, batch)
        ]
        return np.concatenate([tokens for tokens, _ in parts]), np.concatenate(
            [states for _, states in parts]
        )

    return run


def _decoded(dtype: str, count: int, batch: int) -> Callable[[Bench], tuple[Array, ...]]:
    def run(bench: Bench) -> tuple[Array, ...]:
        tokens = bench.load("tokens-base")
        model = bench.model("base", dtype)
        parts = [
            decode(model, bench.prompts[start : start + batch], tokens[start : start + batch])
            for start in range(0, count, batch)
        ]
        return (np.concatenate(parts),)

    return run


def _prefilled(
    texts: str,
    count: int,
    batch: int,
    dtype: str,
    *,
    weights: str = "base",
    attention: str = "sdpa",
    threads: int = 1,
) -> Callable[[Bench], tuple[Array, ...]]:
    def run(bench: Bench) -> tuple[Array, ...]:
        model = bench.model(weights, dtype, attention)
        torch.set_num_threads(threads)
        try:
            return (prefill(model, bench.prompts[:count], bench.load(texts)[:count], batch),)
        finally:
            torch.set_num_threads(1)

    return run


def _told(change: str) -> Callable[[Bench], tuple[Array, ...]]:
    def run(bench: Bench) -> tuple[Array, ...]:
        tokens = bench.load("tokens-base")[:DISHONEST]
        return (prefill(bench.model("base", "bf16"), bench.changed_prompts(change), tokens, 8),)

    return run


def _edited(place: str) -> Callable[[Bench], tuple[Array, ...]]:
    def run(bench: Bench) -> tuple[Array, ...]:
        return (
            prefill(bench.model("base", "bf16"), bench.prompts[:DISHONEST], bench.edited_tokens(place), 8),
        )

    return run


def items() -> Iterator[Item]:
    """All arrays, in an order in which each finds what it needs: names, and how to compute them."""
    honest = "states-honest-"
    yield ("tokens-base", honest + "decode16-bf16"), _generated("base", "bf16", HONEST, 16, 1)
    yield (honest + "prefill8-bf16",), _prefilled("tokens-base", HONEST, 8, "bf16")
    for change in ("prompt", "word", "first"):
        yield (f"states-told-{change}",), _told(change)
    for place in EDITS:
        yield (f"states-edited-{place}",), _edited(place)
    yield (honest + "prefill1-bf16",), _prefilled("tokens-base", HONEST, 1, "bf16")
    yield (honest + "prefill16-bf16-2threads",), _prefilled("tokens-base", HONEST, 16, "bf16", threads=2)
    yield (honest + "prefill8-bf16-eager",), _prefilled("tokens-base", HONEST, 8, "bf16", attention="eager")
    yield (honest + "prefill8-fp32",), _prefilled("tokens-base", HONEST, 8, "fp32")
    for name in altered_names():
        yield (f"tokens-{name}", f"states-{name}-prover"), _generated(name, "bf16", DISHONEST, 64, 1000)
        yield (f"states-{name}-verifier",), _prefilled(f"tokens-{name}", DISHONEST, 8, "bf16")
        if name.startswith("tuned"):
            yield (f"states-stale-{name}",), _prefilled("tokens-base", DISHONEST, 8, "bf16", weights=name)
        if name in ("int8", "int4"):
            yield (
                (f"states-reprefilled-{name}",),
                _prefilled("tokens-base", DISHONEST, 8, "bf16", weights=name),
            )
    yield (
        ("states-other-text-prefill16",),
        _prefilled("tokens-int4", DISHONEST, 16, "bf16", attention="eager"),
    )
    yield (honest + "decode16-fp32",), _decoded("fp32", HONEST, 16)
    yield (
        (honest + "prefill1-fp32-eager",),
        _prefilled("tokens-base", HONEST, 1, "fp32", attention="eager"),
    )
    for name in ("noise-0.001", "noise-0.002", "int8", "tuned-1"):
        yield (f"states-{name}-prover-fp32",), _prefilled("tokens-base", DISHONEST, 8, "fp32", weights=name)
    yield (honest + "decode1-bf16",), _decoded("bf16", DISHONEST, 1)


def produce() -> float:
    """Compute what is missing; seconds of processor time spent on it, this time and before."""
    torch.set_num_threads(1)
    bench = Bench()
    times = bench.folder / "seconds.txt"
    for names, run in items():
        if all(bench.has(name) for name in names):
            continue
        begin, used = time.monotonic(), time.process_time()
        for name, array in zip(names, run(bench), strict=True):
            bench.save(name, array)
        with times.open("a") as file:
            file.write(f"{time.process_time() - used:.1f} {names[-1]}\n")
        print(f"{time.monotonic() - begin:7.1f} s  {names[-1]}", flush=True)
    return spent()


def spent() -> float:
    """Seconds of processor time that the cached arrays took; of one that was computed again, the last time counts."""
    lines = (cache_folder() / "seconds.txt").read_text().splitlines()
    return sum({name: float(seconds) for seconds, name in map(str.split, lines)}.values())
