"""Values that carry their unit: names of peers and runs, sizes, rates, durations.

No bare number crosses a module border; whatever a person may write as text is parsed here, and text that
cannot be understood is a ``ValueError`` that names the allowed forms.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple, NewType, Self

PeerId = NewType("PeerId", str)
"""A libp2p peer id of an Ed25519 key, base58 text that begins with ``12D3KooW``."""

RunId = NewType("RunId", str)
"""The name of a run: BLAKE3 of its genesis bytes, 64 lower-case hexadecimal digits."""

Digest = NewType("Digest", bytes)
"""A BLAKE3 digest, 32 bytes. A message field of this type accepts no other length."""

DIGEST_BYTES = 32

_NUMBER_AND_UNIT = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)\s*")
_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(s|min|h)(?:\s+burst\s+(\d{1,9}))?\s*")
_SIZES = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_BITS = {"b": 1, "kb": 10**3, "Kb": 10**3, "Mb": 10**6, "Gb": 10**9}
_DURATIONS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PERIODS = {"s": timedelta(seconds=1), "min": timedelta(minutes=1), "h": timedelta(hours=1)}


class Address(NamedTuple):
    """Where a peer's data plane listens: a host name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Bytes(int):
    """A number of bytes; prints itself for people (``4 KiB``)."""

    @classmethod
    def parse(cls, text: "str | int") -> Self:
        """Reads ``"4 KiB"``, ``"1.5 MB"``, ``"512"`` or a plain number of bytes.

        Raises:
            ValueError: Anything else, and what is not a whole number of bytes.
        """
        if isinstance(text, int) and not isinstance(text, bool):
            if text < 0:
                raise ValueError(f"{text} bytes is less than nothing")
            return cls(text)
        match = _NUMBER_AND_UNIT.fullmatch(text) if isinstance(text, str) else None
        if match is None or match[2] not in _SIZES:
            raise ValueError(
                f"{text!r} is no size: write a number and B, KB, MB, GB, KiB, MiB or GiB, as '4 KiB'"
            )
        value = float(match[1]) * _SIZES[match[2]] if "." in match[1] else int(match[1]) * _SIZES[match[2]]
        if value != int(value):
            raise ValueError(f"{text!r} is not a whole number of bytes")
        return cls(int(value))

    def __str__(self) -> str:
        """The size in the largest binary unit that leaves at least one."""
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            size = _SIZES[unit]
            if self >= size:
                value = int(self) / size
                return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"
        return f"{int(self)} B"

    def __repr__(self) -> str:
        """``Bytes(4096)``."""
        return f"Bytes({int(self)})"


def bandwidth(text: "str | int") -> Bytes:
    """Bytes per second from ``"20 Mb/s"`` (bits), ``"3 MB/s"`` or ``"1 MiB/s"`` (bytes), or a plain number of bytes.

    Raises:
        ValueError: Anything else.
    """
    if isinstance(text, int):
        return Bytes.parse(text)
    match = _NUMBER_AND_UNIT.fullmatch(text.strip().removesuffix("/s"))
    if match is None or not text.strip().endswith("/s") or not (match[2] in _BITS or match[2] in _SIZES):
        raise ValueError(
            f"{text!r} is no bandwidth: write '20 Mb/s' for bits, '3 MB/s' or '1 MiB/s' for bytes"
        )
    if match[2] in _BITS:
        return Bytes(int(float(match[1]) * _BITS[match[2]] / 8))
    return Bytes(int(float(match[1]) * _SIZES[match[2]]))


@dataclass(frozen=True)
class Rate:
    """How often something may happen.

    Attributes:
        count: Events per ``period``.
        period: The period.
        burst: How many may come at once after a silence.
    """

    count: int
    period: timedelta
    burst: int

    @classmethod
    def parse(cls, text: "str | Rate") -> "Rate":
        """Reads ``"10/s"``, ``"3/min"``, ``"100/h"``, each also with ``burst N`` behind (the count otherwise).

        Raises:
            ValueError: Anything else.
        """
        if isinstance(text, Rate):
            return text
        match = _RATE.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[1]) == 0 or (match[3] is not None and int(match[3]) == 0):
            raise ValueError(f"{text!r} is no rate: write '10/s', '3/min' or '100/h', with 'burst 20' behind")
        count = int(match[1])
        return cls(count, _PERIODS[match[2]], int(match[3]) if match[3] else count)

    @cached_property
    def per_second(self) -> float:
        """Events per second in the long run."""
        return self.count / self.period.total_seconds()

    def __str__(self) -> str:
        """The text it would be parsed from."""
        period = next(name for name, value in _PERIODS.items() if value == self.period)
        return f"{self.count}/{period}" + (f" burst {self.burst}" if self.burst != self.count else "")


def duration(text: "str | timedelta") -> timedelta:
    """Reads ``"5 s"``, ``"250 ms"``, ``"2 min"``, ``"1.5 h"``; a ``timedelta`` stays as it is.

    Raises:
        ValueError: Anything else; a bare number too, because it has no unit.
    """
    if isinstance(text, timedelta):
        return text
    match = _NUMBER_AND_UNIT.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in _DURATIONS:
        raise ValueError(f"{text!r} is no duration: write a number and us, ms, s, min, h or d, as '250 ms'")
    try:
        return float(match[1]) * _DURATIONS[match[2]]
    except OverflowError as error:
        raise ValueError(f"{text!r} is longer than anything, which '250 ms' is not") from error
