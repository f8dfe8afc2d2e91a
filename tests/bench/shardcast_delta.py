"""Deltas and snapshots of a model of 135 M parameters: a step that changes 1 % of it, and AdamW steps of a real one.

Speeds are megabytes of the model's file by processor second, of one thread that reads, hashes and writes files.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from shardcast.digest import file_digest
from shardcast.encoding import Held, decode_file, encode_file
from shardcast.header import Decoded
from shardcast.ranges import FileRanges
from shardcast.stream import Parent
from tests.bench.measurement import Measurement
from tests.eval.toploc.model import Source, Weights, assemble

RATES = ("1e-6", "3e-6", "1e-5", "3e-5", "1e-4")
_BEFORE, _MEASURED = 3, 2  # steps: the first ones are larger, before AdamW's moments have settled
_TOKENS = 128
_TEXT = Path(__file__).parents[2] / "docs"


def run() -> Measurement:
    """Measure both."""
    source = Source()
    weights = source.weights()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures |= _one_percent(weights, folder)
        figures |= _snapshots(folder)
        figures |= _steps(source, weights, folder)
    return Measurement(figures)


# a step that changes 1 %


def _one_percent(weights: Weights, folder: Path) -> dict[str, float]:
    """Any bits in 1 % of the elements, so that nothing is gained from how small the changes are."""
    chance = np.random.default_rng(0)
    changed = {}
    for key, tensor in weights.items():
        bits = tensor.bfloat16().view(torch.uint16).numpy().copy()
        places = chance.random(bits.shape) < 0.01
        bits[places] ^= chance.integers(1, 1 << 16, int(places.sum()), np.uint16)
        changed[key] = torch.from_numpy(bits).view(torch.bfloat16)
    old = _published(weights, folder / "old")
    new = _published(changed, folder / "new")
    seconds, decoded = _processor_seconds(lambda: _encode(new.path, folder / "delta", old))
    applied, _ = _processor_seconds(lambda: _decode(folder / "delta", folder / "again", decoded, old))
    size = decoded.size
    return {
        "one_percent_of_full": (folder / "delta").stat().st_size / size,
        "one_percent_encode_mb_per_s": size / seconds / 1e6,
        "one_percent_apply_mb_per_s": size / applied / 1e6,
    }


def _snapshots(folder: Path) -> dict[str, float]:
    """The whole file, as byte planes."""
    seconds, decoded = _processor_seconds(lambda: _encode(folder / "old", folder / "planes", None))
    applied, _ = _processor_seconds(lambda: _decode(folder / "planes", folder / "again", decoded, None))
    return {
        "snapshot_of_full": (folder / "planes").stat().st_size / decoded.size,
        "snapshot_encode_mb_per_s": decoded.size / seconds / 1e6,
        "snapshot_decode_mb_per_s": decoded.size / applied / 1e6,
    }


# real steps


def _steps(source: Source, weights: Weights, folder: Path) -> dict[str, float]:
    """Consecutive steps on text, fp32 weights and AdamW, published as bf16 after each."""
    tokenizer = source.tokenizer()
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(_TEXT.glob("*.md")))
    tokens = torch.tensor(tokenizer.encode(text).ids)
    masters = {key: _between(tensor) for key, tensor in weights.items()}
    figures: dict[str, float] = {}
    for rate in RATES:
        model = assemble(source.config(), masters, torch.float32, "sdpa").train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=float(rate), weight_decay=0.01)
        full, sizes, changed = 0, [], []
        before: Held | None = None
        for step in range(_BEFORE + _MEASURED):
            window = tokens[step * _TOKENS : (step + 1) * _TOKENS + 1][None]
            loss = model(input_ids=window[:, :-1]).logits.flatten(0, 1)
            torch.nn.functional.cross_entropy(loss, window[0, 1:]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if step < _BEFORE - 1:
                continue
            now = _published(dict(model.named_parameters()), folder / f"step-{step % 2}")
            if before is not None:
                full = _encode(now.path, folder / "delta", before).size
                sizes.append((folder / "delta").stat().st_size)
                changed.append(_share(before.path, now.path))
            before = now
        figures[f"lr_{rate}_changed"] = float(np.mean(changed))
        figures[f"lr_{rate}_full_vs_delta"] = full / float(np.mean(sizes))
        if rate == RATES[-1]:
            _encode(folder / f"step-{step % 2}", folder / "planes", None)
            figures["snapshot_after_steps_of_full"] = (folder / "planes").stat().st_size / full
    return figures


def _between(tensor: torch.Tensor) -> torch.Tensor:
    """The weights anywhere within half a unit of the bf16 numbers they round to, as in training."""
    unit = torch.exp2(torch.floor(torch.log2(tensor.abs().clamp(min=1e-30))) - 7)
    chance = torch.Generator().manual_seed(tensor.numel())
    return tensor + unit * (torch.rand(tensor.shape, generator=chance) - 0.5) * 0.99


def _share(before: Path, now: Path) -> float:
    """The share of elements that differ."""
    one, two = load_file(before), load_file(now)
    differ = sum(int((one[key].view(torch.uint16) != two[key].view(torch.uint16)).sum()) for key in one)
    return differ / sum(tensor.numel() for tensor in one.values())


# files


def _published(weights: Weights, path: Path) -> Held:
    save_file({key: tensor.detach().bfloat16().contiguous() for key, tensor in weights.items()}, path)
    return Held(path, file_digest(path))


def _encode(new: Path, into: Path, parent: Held | None) -> Decoded:
    with ExitStack() as stack:
        before = None
        if parent is not None:
            before = Parent(parent.digest, stack.enter_context(FileRanges(parent.path)))
        return encode_file(stack.enter_context(FileRanges(new)), into, before)


def _decode(stream: Path, into: Path, decoded: Decoded, parent: Held | None) -> None:
    with FileRanges(stream) as ranges:
        decode_file(ranges, into, decoded, parent)


def _processor_seconds(call: Callable[[], Decoded | None]) -> tuple[float, Decoded]:
    """The median of three calls, and what the last one gave."""
    times, given = [], None
    for _ in range(4):  # the first reads what is not in memory yet
        with _one_core():
            start = time.thread_time()
            given = call()
            times.append(time.thread_time() - start)
    return sorted(times[1:])[1], given  # type: ignore[return-value]


@contextmanager
def _one_core() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
