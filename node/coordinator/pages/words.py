"""What numbers, times and other people's words look like on a page. Pure."""

import unicodedata

LONGEST = 120
"""Characters of a peer's text that are shown at most."""


def safe(text: str, longest: int = LONGEST) -> str:
    """A peer's text as it may be shown: what cannot be seen, or turns the direction of text, becomes a symbol.

    A page inserts text as text, never as markup, so markup needs nothing here.
    """
    shown = "".join(_symbol(char) if _hides(char) else char for char in text[: longest + 1])
    return shown if len(text) <= longest else f"{shown[:longest]}…"


def _hides(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _symbol(char: str) -> str:
    return f"⟨{ord(char):04X}⟩"


def short(identity: str) -> str:
    """A peer id or a digest in a few characters."""
    return identity if len(identity) <= 14 else f"{identity[:4]}…{identity[-6:]}"


def count(value: float | None) -> str:
    """A count with a unit prefix, three digits: ``1.23 M``; a dash for None."""
    return _scaled(value, 1000.0, ("", " k", " M", " G", " T", " P"))


def size(value: float | None) -> str:
    """Bytes in words, in powers of 1,000."""
    return _scaled(value, 1000.0, (" B", " kB", " MB", " GB", " TB", " PB"))


def seconds(value: float | None) -> str:
    """A span: ``85 ms``, ``3.2 s``, ``4 min 5 s``, ``2 h 3 min``."""
    if value is None:
        return "—"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; a dash for None, and words for what is no number."""
    if value is None:
        return "—"
    return f"{value:.{digits}f}" if value - value == 0 else "not a number"


def share(part: float, whole: float) -> str:
    """A share in percent; a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "—"


def _scaled(value: float | None, base: float, units: tuple[str, ...]) -> str:
    if value is None or value - value != 0:
        return "—"
    place = 0
    while abs(value) >= base and place < len(units) - 1:
        value, place = value / base, place + 1
    digits = 0 if place == 0 or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{units[place]}"
