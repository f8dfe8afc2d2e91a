"""The tables of ``docs/toploc.md``, written between its markers, and the numbers behind them as JSON."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from tests.bench.toploc_proofs import typical
from tests.eval.toploc.judging import TARGET, Jury, Row, halves, tokens_needed
from tests.eval.toploc.pairs import (
    HONEST,
    HONEST_BFLOAT16,
    HONEST_FLOAT32,
    HONEST_MIXED,
    SIZE,
    SPLIT,
    Pairs,
    Scheme,
    beyond,
    dishonest,
    float32_dishonest,
    honest,
    mixed_dishonest,
    states,
)
from toploc import Policy, Projection, check
from toploc.calibration import fit
from toploc.policy import Rate

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "toploc.md"
BEGIN, END = "<!-- evidence: begin, written by `make eval-toploc` -->", "<!-- evidence: end -->"

POLYNOMIAL = Scheme("polynomial", None)


def schemes() -> dict[str, Scheme]:
    """The polynomial scheme and the projection scheme at three sizes, its step fitted to honest differences."""
    apart = [
        (states(HONEST + "decode16-bf16")[number], states(HONEST + "prefill8-bf16")[number])
        for number in range(32)
    ]
    sized = {f"projection, {count} directions": count for count in (16, 8, 4)}
    return {"polynomial": POLYNOMIAL} | {
        name: Scheme(name, Projection.fitting(apart, dimensions=count)) for name, count in sized.items()
    }


def judged(scheme: Scheme) -> list[Row]:
    """All rows of one scheme, honest ones first."""
    kinds = honest(scheme, HONEST_BFLOAT16)
    jury = Jury(scheme, kinds, "bfloat16")
    rows = [jury.row("honest", kind, pairs) for kind, pairs in kinds.items()]
    rows += [jury.row(*case) for case in dishonest(scheme)]
    rows += [jury.row(*case) for case in beyond(scheme)]
    # Types that differ between the two sides, with a policy that was fitted to such pairs as well.
    mixed = honest(scheme, HONEST_MIXED)
    jury = Jury(scheme, kinds | mixed, "bfloat16 and float32")
    rows += [jury.row("mixed", kind, pairs) for kind, pairs in mixed.items()]
    rows += [jury.row(*case) for case in mixed_dishonest(scheme)]
    exact = honest(scheme, HONEST_FLOAT32)
    if sum(map(len, halves(exact, SPLIT)[1].values())) >= 20:
        # Where both compute in float32, a policy of their own; the step of the projection stays what it was.
        jury = Jury(scheme, exact, "float32")
        rows += [jury.row("fp32 throughout", kind, pairs) for kind, pairs in exact.items()]
        rows += [jury.row(*case) for case in float32_dishonest(scheme)]
    return rows


def policy_of(scheme: Scheme, rows: Iterable[Row]) -> Policy:
    """The policy for users: fitted to all honest pairs, with the error rates measured across halves."""
    base = Policy("SmolLM2-135M-Instruct", "bfloat16", SIZE, projection=scheme.projection)
    fitted = fit(honest(scheme, HONEST_BFLOAT16), base, target=TARGET, longest=4)
    rates = {
        row.case: row for row in rows if not row.case.startswith("fp32:") and row.group != "fp32 throughout"
    }
    return replace(
        fitted,
        false_positives={
            case: Rate(
                row.strict.total - row.strict.count, row.strict.total, 1 - row.strict.high, 1 - row.strict.low
            )
            for case, row in rates.items()
            if row.group == "honest"
        },
        false_negatives={
            case: row.strict for case, row in rates.items() if row.group not in ("honest", "beyond")
        },
    )


def costs(scheme: Scheme, policy: Policy) -> dict[str, float]:
    """Bytes per token, and microseconds to build and to check a chunk of 32 tokens, one thread."""
    torch.set_num_threads(1)
    chunk = states(HONEST + "decode16-bf16")[0, :SIZE].clone()
    proofs = [proof if isinstance(proof, bytes) else proof.to_bytes() for proof in scheme.prove(chunk)]
    return {
        "bytes per token": len(proofs[0]) / SIZE,
        "build, µs": 1e6 * typical(lambda: scheme.prove(chunk), 1.0),
        "check, µs": 1e6 * typical(lambda: check(chunk, proofs, policy), 1.0),
    }


def write(seconds: float) -> None:
    """Judge everything that was computed (in ``seconds`` of processor time); write the page and the JSON."""
    begin = time.process_time()
    found: dict[str, list[Row]] = {}
    policies: dict[str, Policy] = {}
    needed: dict[str, dict[str, int | None]] = {}
    costing: dict[str, dict[str, float]] = {}
    for name, scheme in schemes().items():
        found[name] = judged(scheme)
        policies[name] = policy_of(scheme, found[name])
        light: dict[str, Pairs] = {
            case: pairs for group, case, pairs in dishonest(scheme) if group in ("weights", "precision")
        }
        needed[name] = tokens_needed(scheme, honest(scheme, HONEST_BFLOAT16), light)
        costing[name] = costs(scheme, policies[name])
    runs = ROOT / "runs" / "eval-toploc"
    runs.mkdir(parents=True, exist_ok=True)
    held = {name: [asdict(row) for row in rows] for name, rows in found.items()}
    (runs / "evidence.json").write_text(
        json.dumps({"rows": held, "needed": needed, "costs": costing}, indent=1)
    )
    for name, policy in policies.items():
        policy.save(runs / f"smollm2-135m-instruct.{name.replace(', ', '-').replace(' ', '-')}.json")
    text = "\n".join([
        *_main_table(found["polynomial"], found["projection, 16 directions"]),
        "",
        f"Model work: {seconds / 60:.0f} minutes of processor time, one thread; judging it: "
        f"{(time.process_time() - begin) / 60:.0f} more.",
        "",
        *_comparison(found, needed, costing),
    ])  # fmt: skip
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    print(f"{PAGE.relative_to(ROOT)} is written; policies and numbers are in {runs.relative_to(ROOT)}.")


_GROUPS = {
    "honest": "**Honest**",
    "prompt": "**Other prompt**",
    "text": "**Edited text**",
    "weights": "**Other weights**",
    "layers": "**Other layer count**",
    "precision": "**Other precision**",
    "forgery": "**Forged proofs**",
    "mixed": "**Two computing types** (first two rows honest)",
    "fp32 throughout": "**fp32 on both sides** (first rows honest)",
    "beyond": "**Beyond any proof of activations**",
}


def _main_table(polynomial: Sequence[Row], projection: Sequence[Row]) -> list[str]:
    other = {(row.group, row.case): row for row in projection}
    lines = [
        "| case | sequences | published cut-offs | `check`, polynomial | `check`, projection |",
        "|---|---|---|---|---|",
    ]
    cases = [row for row in projection if row.group == "forgery"]
    own = {(row.group, row.case) for row in polynomial}
    rows: list[tuple[Row | None, Row | None]] = [
        (row, other.get((row.group, row.case))) for row in polynomial
    ]
    rows += [(None, row) for row in cases if (row.group, row.case) not in own]
    for group, title in _GROUPS.items():
        inside = [pair for pair in rows if (pair[0] or pair[1]).group == group]  # type: ignore[union-attr]
        if inside:
            lines.append(f"| {title} | | | | |")
        for first, second in inside:
            row = first or second
            assert row is not None
            published = _rate(first.published) if first and first.published else "–"
            lines.append(
                f"| {row.case} | {row.strict.total} | {published} | {_rate(first.strict) if first else '–'} "
                f"| {_rate(second.strict) if second else '–'} |"
            )
    return lines


def _rate(rate: Rate | None) -> str:
    """Accepted, with the 95 % interval in percent."""
    if rate is None:
        return "–"
    return f"{rate.count} ({100 * rate.low:.1f}–{100 * rate.high:.1f} %)"


def _comparison(
    found: Mapping[str, Sequence[Row]],
    needed: Mapping[str, Mapping[str, int | None]],
    costing: Mapping[str, Mapping[str, float]],
) -> list[str]:
    names = list(found)
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for key in next(iter(costing.values())):
        lines.append(f"| {key} | {' | '.join(f'{costing[name][key]:.3g}' for name in names)} |")
    areas: dict[str, dict[str, Any]] = {name: {row.case: row.area for row in found[name]} for name in names}
    lines += ["", "Area under the ROC curve (one text of 128 tokens), and tokens until 95 % are refused:", ""]
    lines += [f"| case | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for case in needed[names[0]]:
        cells = []
        for name in names:
            area, tokens = areas[name].get(case), needed[name].get(case)
            cells.append(f"{area:.3f}, {tokens or '> 2048'}" if area is not None else "–")
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return lines
