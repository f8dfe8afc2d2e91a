"""What the options of ``intellect-node shardcast`` mean, and its progress bar.

Raises:
    NodeError: CFG_…, from any of these, for an option that means nothing.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.errors import Code, NodeError

if TYPE_CHECKING:
    from shardcast.draw import Progress
    from shardcast.expect import Expect
    from shardcast.http.door import Access
    from shardcast.http.source import Source


def sources_of(urls: list[str], token_file: Path | None) -> "list[Source]":
    """The servers that ``--from`` names, with the token to show them."""
    from shardcast.http.source import Source

    token = tokens_in(token_file)[0] if token_file is not None else ""
    return [Source.parse(url, token) for url in urls]


def tokens_in(path: Path) -> list[str]:
    """The tokens of a file, one a line."""
    try:
        tokens = [line.strip() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise NodeError(
            Code.CFG_UNREADABLE, f"{path} cannot be read as a file of tokens: {error}."
        ) from error
    if not tokens:
        raise NodeError(Code.CFG_BAD_VALUE, f"{path} holds no token.", fix="Write one on its first line.")
    return tokens


def access_of(
    token_file: Path | None, allow: list[str] | None, proxy: list[str] | None, rate: str
) -> "Access":
    """Who may ask a server."""
    from protocol.units import bandwidth
    from shardcast.http.door import Access, networks

    try:
        limit = float(bandwidth(rate)) if rate else 0.0
    except ValueError as error:
        raise NodeError(Code.CFG_USAGE, f"--rate: {error}.", fix='Write a rate such as "200 Mb/s".') from None
    tokens = tokens_in(token_file) if token_file is not None else ()
    return Access(tokens=tokens, allow=networks(allow or ()), proxies=networks(proxy or ()), rate=limit)


def expect_of(publisher: str, digest: str, version: str) -> "Expect":
    """What is believed."""
    from protocol.units import PeerId
    from shardcast.expect import Expect
    from shardcast.names import check_version

    if not publisher and not digest:
        raise NodeError(
            Code.CFG_USAGE, "Nothing says whose versions are to be believed.",
            fix="Give --publisher, as `intellect-node shardcast publish` prints it, or --digest.",
        )  # fmt: skip
    try:
        return Expect(
            publisher=PeerId(publisher) if publisher else None,
            manifest_digest=bytes.fromhex(digest) if digest else None,
            version=check_version(version) if version else None,
        )
    except ValueError as error:
        raise NodeError(Code.CFG_USAGE, f"--digest: {error}.", fix="Give 64 hexadecimal digits.") from None


def size_of(text: str, option: str) -> int:
    """A number of bytes."""
    from protocol.units import Bytes

    try:
        return int(Bytes.parse(text))
    except ValueError as error:
        raise NodeError(Code.CFG_USAGE, f"{option}: {error}.", fix='Write a size such as "4 MiB".') from None


def tls_of(certificate: Path | None, key: Path | None) -> Any:
    """What a server needs for HTTPS; None without a certificate."""
    import ssl

    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise NodeError(Code.CFG_UNREADABLE, f"{certificate} cannot be used: {error}.") from error
    return context


def shown(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


class Bar(contextlib.AbstractContextManager["Bar"]):
    """A progress bar with the time that is left; silent where nobody watches."""

    def __init__(self, silent: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Shown

        columns = (
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
            TimeRemainingColumn(),
        )  # fmt: skip
        console = Console(stderr=True)
        self._bar = Shown(*columns, console=console, disable=silent or not console.is_terminal)
        self._task: Any = None

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, now: "Progress") -> None:
        """Show how far it is."""
        if self._task is None:
            self._task = self._bar.add_task(now.name, total=now.size)
        self._bar.update(self._task, completed=now.bytes)
