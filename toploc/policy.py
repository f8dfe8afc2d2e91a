"""What a verifier accepts: the shape of proofs, cut-offs, and a score whose honest distribution was measured."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from toploc.evidence import POWERS
from toploc.projection import Projection

SCHEMA = 1
_LEAST, _MOST = 1e-9, 2**62
_TUPLES = {
    "centre": -1e9, "scale": _LEAST, "points": 0, "tail_from": _LEAST, "tail_mean": _LEAST, "limit": _LEAST
}  # fmt: skip
"""A level's tuples, and the least that a number of each may be."""
MAX_POLICY_BYTES = 1 << 20


def _whole(name: str, value: object, least: int = 0) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
        raise ValueError(f"{name} must be a whole number from {least}, not {value!r}")


def _real(name: str, value: object, least: float = 0.0) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= _MOST:
        raise ValueError(f"{name} must be a finite number from {least:g}, not {value!r}")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Per-chunk cut-offs on the reference package's three numbers; each is the largest value accepted.

    Source of the published ones: arXiv 2501.16007, section 5, for bfloat16 and k = 128.
    """

    exp_mismatches: int
    mant_err_mean: float
    mant_err_median: float

    def __post_init__(self) -> None:
        """Refuse what is no bound.

        Raises:
            ValueError: not a number, or below 0.
        """
        _whole("exp_mismatches", self.exp_mismatches)
        _real("mant_err_mean", self.mant_err_mean)
        _real("mant_err_median", self.mant_err_median)


PUBLISHED: Mapping[str, Thresholds] = {
    "bfloat16": Thresholds(38, 10.0, 8.0),
    "float32": Thresholds(8, 256.0, 128.0),
}
"""Published cut-offs by computing type. Values here are rounded to bfloat16, whose mantissa differences end at 127."""


@dataclass(frozen=True, slots=True)
class Level:
    """The honest distribution of the statistics over runs of one length, and how far each may deviate.

    A statistic's deviation is ``(log(statistic) - centre) / scale``. Above ``tail_from`` the share of honest runs that
    deviate further falls off as ``exp(-(deviation^power - tail_from^power) / tail_mean)``.
    Every tuple has one entry per statistic, in the order of ``toploc.evidence.STATISTICS``.

    Attributes:
        chunks: length of the runs, in chunks.
        centre: median logarithm.
        scale: spread of the logarithm above it.
        points: how many differences each was made of.
        tail_from: the deviation that ``tail_share`` of honest runs exceed.
        tail_mean: by how much, on average, the powers of those exceed its power (``toploc.evidence.POWERS``).
        limit: the largest deviation accepted of a single run.
        tail_share: see above.
        runs: honest runs measured.
    """

    chunks: int
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    points: tuple[int, ...]
    tail_from: tuple[float, ...]
    tail_mean: tuple[float, ...]
    limit: tuple[float, ...]
    tail_share: float
    runs: int

    def __post_init__(self) -> None:
        """Refuse what was never measured.

        Raises:
            ValueError: a number is missing, not finite or out of range.
        """
        for name in ("chunks", "runs"):
            _whole(name, getattr(self, name), 1)
        _real("tail_share", self.tail_share, _LEAST)
        for name, least in _TUPLES.items():
            values = getattr(self, name)
            if len(values) != len(POWERS):
                raise ValueError(f"{name} must have {len(POWERS)} numbers, not {len(values)}")
            for value in values:
                _real(name, value, least)

    def limits(self, runs: int) -> tuple[float, ...]:
        """The limits where the worst of so many runs is judged: each is a chance to err, and their rates add up."""
        each = zip(self.limit, self.tail_mean, POWERS, strict=True)
        return tuple((limit**power + mean * math.log(runs)) ** (1 / power) for limit, mean, power in each)

    def false_positive_rate(self, score: float, runs: int = 1) -> float:
        """Share of honest sequences of so many runs that are expected to score at least ``score``; an upper bound."""
        total = 0.0
        for limit, start, mean, power in zip(
            self.limits(runs), self.tail_from, self.tail_mean, POWERS, strict=True
        ):
            deviation = score * limit
            if deviation <= start:
                return 1.0
            total += self.tail_share * math.exp((start**power - deviation**power) / mean)
        return min(1.0, runs * total)


@dataclass(frozen=True, slots=True)
class Rate:
    """A measured share with its 95 % interval (Clopper and Pearson)."""

    count: int
    total: int
    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse what is no share.

        Raises:
            ValueError: not numbers, or below 0.
        """
        _whole("count", self.count)
        _whole("total", self.total)
        _real("low", self.low)
        _real("high", self.high)


@dataclass(frozen=True, slots=True)
class Policy:
    """How proofs must look and how close they must be.

    Attributes:
        model: what it was measured on; for people.
        dtype: type in which honest provers and verifiers compute; for people.
        decode_batching_size: tokens per chunk.
        topk: points per proof.
        skip_prefill: the first step is a decode step, not the prefill.
        thresholds: per-chunk cut-offs.
        sign_mismatches: per chunk, points of one exponent and two signs.
        gross: per chunk, points that the proof does not hold; None: not judged.
        repeats: how often one value may occur among a proof's values, as a multiple of the verifier's own most
            frequent value, and so many more.
        projection: the directions, where proofs are of the projection scheme; the cut-offs then do not apply.
        levels: calibrated lengths, ascending; empty: no score.
        false_positives: honest sequences refused when this policy was measured, by kind of pair.
        false_negatives: dishonest sequences accepted then, by case.
    """

    model: str
    dtype: str
    decode_batching_size: int = 32
    topk: int = 128
    skip_prefill: bool = True
    thresholds: Thresholds = PUBLISHED["bfloat16"]
    sign_mismatches: int = 4
    gross: int | None = None
    repeats: tuple[float, int] = (2.0, 12)
    projection: Projection | None = None
    levels: tuple[Level, ...] = ()
    false_positives: Mapping[str, Rate] = field(default_factory=dict)
    false_negatives: Mapping[str, Rate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: a size below 1, something that is not the number it should be, or levels out of order.
        """
        _whole("decode_batching_size", self.decode_batching_size, 1)
        _whole("topk", self.topk, 1)
        _whole("sign_mismatches", self.sign_mismatches)
        if self.gross is not None:
            _whole("gross", self.gross)
        factor, more = self.repeats
        _real("repeats", factor)
        _whole("repeats", more)
        if not isinstance(self.skip_prefill, bool):
            raise ValueError(f"skip_prefill must be true or false, not {self.skip_prefill!r}")
        lengths = [level.chunks for level in self.levels]
        if lengths != sorted(set(lengths)) or any(length < 1 for length in lengths):
            raise ValueError("levels must be of ascending lengths")

    @classmethod
    def published(cls, dtype: str = "bfloat16", **changes: Any) -> Self:
        """The published cut-offs and the rules of form, without a score: for a model that was not calibrated yet.

        Raises:
            ValueError: nothing was published for ``dtype``.
        """
        if dtype not in PUBLISHED:
            raise ValueError(f"cut-offs were published for {', '.join(PUBLISHED)}, not for {dtype}")
        return cls(**{"model": "any", "dtype": dtype, "thresholds": PUBLISHED[dtype], **changes})

    def to_json(self) -> str:
        """The policy file's text."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The policy that ``to_json`` wrote.

        Raises:
            ValueError: too long, not JSON, of another schema, or with missing, unknown or unfit entries.
        """
        if len(text) > MAX_POLICY_BYTES:
            raise ValueError(f"a policy has at most {MAX_POLICY_BYTES} bytes")
        try:
            held = json.loads(text)
        except RecursionError:
            raise ValueError("not a policy: nested too deeply") from None
        if not isinstance(held, dict) or held.pop("schema", None) != SCHEMA:
            raise ValueError(f"not a policy of schema {SCHEMA}")
        try:
            return cls(
                **{
                    **held,
                    "thresholds": Thresholds(**held["thresholds"]),
                    "projection": None if held["projection"] is None else Projection(**held["projection"]),
                    "repeats": tuple(held["repeats"]),
                    "levels": tuple(
                        Level(**{**level, **{key: tuple(level[key]) for key in _TUPLES}})
                        for level in held["levels"]
                    ),
                    "false_positives": {name: Rate(**rate) for name, rate in held["false_positives"].items()},
                    "false_negatives": {name: Rate(**rate) for name, rate in held["false_negatives"].items()},
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a policy: {error}") from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy file."""
        Path(path).write_text(self.to_json())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a policy file.

        Raises:
            OSError: it cannot be read.
            ValueError: as ``from_json``.
        """
        with open(path, "rb") as file:
            return cls.from_json(file.read(MAX_POLICY_BYTES + 1))
