"""``intellect-node shardcast``: publish files, pass them on, fetch, list and verify them."""

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from node.shardcast_fetch import fetch_deltas, fetch_files
from node.shardcast_options import access_of, expect_of, shown, size_of, sources_of, tls_of
from protocol.errors import Code, NodeError

if TYPE_CHECKING:
    from shardcast.http.origin import Origin

RUNS = Path("runs")

shardcast = typer.Typer(help="Move large files to many machines, every byte verified.", no_args_is_help=True)

From = Annotated[
    list[str],
    typer.Option("--from", metavar="URL", help="A server that has it; may be given several times."),
]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="What the object is called.")]
Publisher = Annotated[
    str, typer.Option("--publisher", metavar="PEER", help="Whose versions are believed.", show_default=False)
]
Digest = Annotated[
    str,
    typer.Option(
        "--digest", metavar="HEX", help="The digest of the one manifest that is believed.", show_default=False
    ),
]
Version = Annotated[
    str,
    typer.Option("--version", metavar="LABEL", help="This version; else the newest.", show_default=False),
]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes any free one.")]
Keep = Annotated[int, typer.Option("--keep", min=1, help="Versions of each name that stay.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Tokens of which clients have to show one, one a line.",
        readable=False,
    ),
]
ShowToken = Annotated[
    Path | None,
    typer.Option(
        "--show-token",
        metavar="FILE",
        help="The token to show to servers, on its first line.",
        readable=False,
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="NETWORK", help="Only clients from here; may be given several times."),
]
Proxy = Annotated[
    list[str] | None,
    typer.Option("--proxy", metavar="NETWORK", help="A proxy before this server, believed for whom it asks."),
]
Rate = Annotated[
    str,
    typer.Option(
        "--rate", metavar="RATE", help="The most that one client gets: '200 Mb/s'.", show_default=False
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option("--certificate", metavar="FILE", help="Serve over HTTPS with this chain.", readable=False),
]
Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="The certificate's private key.", readable=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


@shardcast.command()
def publish(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files, oldest first. With --watch folders, whose files are published as they appear.",
            show_default=False,
            readable=False,
        ),
    ],
    name: Name = "weights",
    version: Version = "",
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="The file is still written and will have this size."),
    ] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Publish each file that is moved into the folders.")
    ] = False,
    deltas: Annotated[
        bool, typer.Option("--deltas", help="Publish safetensors files also as what changed since the last.")
    ] = False,
    shard_size: Annotated[str, typer.Option("--shard-size", metavar="SIZE", help="Of one shard.")] = "8 MiB",
    folder: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="Where it remembers what it published.", readable=False),
    ] = RUNS / "shardcast" / "origin",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    keep: Keep = 5,
    token_file: TokenFile = None,
    allow: Allow = None,
    proxy: Proxy = None,
    rate: Rate = "",
    certificate: Certificate = None,
    key: Key = None,
) -> int:
    """Publish files and serve them until it is stopped."""
    from protocol.identity import Identity
    from shardcast.http.origin import Origin
    from shardcast.http.versions import Publisher

    if deltas and size:
        raise NodeError(
            Code.CFG_USAGE, "--deltas is for files that are whole, --size for one that is not.",
            fix="Leave one of the two out.",
        )  # fmt: skip
    identity = Identity.load_or_create(folder / "publisher.key")
    origin = Origin(folder, identity, keep=keep, access=access_of(token_file, allow, proxy, rate))
    options: dict[str, Any] = {
        "size": size_of(size, "--size") if size else None,
        "shard_size": size_of(shard_size, "--shard-size"),
    }

    forms = Publisher(origin, folder / "forms", name, shard_size=options["shard_size"]) if deltas else None

    async def one(file: Path, version: str | None) -> None:
        if forms is None:
            await _publish(origin, file, name, {**options, "version": version})
            return
        for done in await forms.publish(file, version):
            print(
                f"{file}: {done.name} {done.version} is whole; its digest is {done.digest.hex()}.", flush=True
            )

    async def work() -> int:
        await origin.start(host, port, tls_of(certificate, key))
        scheme = "https" if certificate else "http"
        print(f"Serving on {scheme}://{shown(host)}:{origin.server.port} as {origin.publisher}.")
        print(
            f"  Fetch with: intellect-node shardcast fetch --from {scheme}://{shown(host)}:{origin.server.port}"
            f" --publisher {origin.publisher} --name {name} --to FILE",
            flush=True,
        )
        if watch:
            await _watch(files, one)
        for file in files:
            await one(file, version or None)
        await asyncio.Event().wait()
        return 0

    return _until_stopped(work(), origin.stop)


async def _watch(folders: list[Path], publish: Callable[[Path, str | None], Awaitable[None]]) -> None:
    """Publish what is moved into folders; what was there before is left alone but for the newest file."""
    seen: set[tuple[str, int]] = set()
    first = True
    while True:
        found = [path for folder in folders for path in _files(folder)]
        found.sort(key=lambda path: path.stat().st_mtime_ns)
        fresh = [path for path in found if (str(path), path.stat().st_ino) not in seen]
        seen |= {(str(path), path.stat().st_ino) for path in fresh}
        for path in fresh[-1:] if first else fresh:
            await publish(path, None)
        first = False
        await asyncio.sleep(0.5)


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    except OSError as error:
        raise NodeError(
            Code.CFG_UNREADABLE, f"{folder} cannot be watched: {error.strerror}.", fix="Name a folder."
        ) from error


async def _publish(origin: "Origin", file: Path, name: str, options: dict[str, Any]) -> None:
    publication = await origin.publish(file, name, **options)
    print(f"{file}: {name} {publication.version} can be fetched while it is hashed.", flush=True)
    done = await publication.done()
    print(f"{file}: {name} {done.version} is whole; its digest is {done.digest.hex()}.", flush=True)


@shardcast.command()
def relay(
    sources: From,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where versions lie.", readable=False)
    ] = RUNS / "shardcast" / "relay",
    host: Host = "127.0.0.1",
    port: Port = 8001,
    names: Annotated[
        list[str] | None, typer.Option("--name", metavar="NAME", help="Only objects of this name.")
    ] = None,
    publishers: Annotated[
        list[str] | None, typer.Option("--publisher", metavar="PEER", help="Only versions of this publisher.")
    ] = None,
    keep: Keep = 5,
    disk: Annotated[
        str, typer.Option("--disk", metavar="SIZE", help="The most that versions take: '200 GiB'.")
    ] = "",
    show_token: ShowToken = None,
    token_file: TokenFile = None,
    allow: Allow = None,
    proxy: Proxy = None,
    rate: Rate = "",
    certificate: Certificate = None,
    key: Key = None,
) -> int:
    """Fetch versions as they appear and serve them to others, until it is stopped."""
    from protocol.units import PeerId
    from shardcast.http.relay import Relay

    made = Relay(
        folder,
        sources_of(sources, show_token),
        names=names or (),
        publishers=[PeerId(peer) for peer in publishers or ()],
        keep=keep,
        budget=size_of(disk, "--disk") if disk else None,
        access=access_of(token_file, allow, proxy, rate),
        tell=lambda error: print(f"{error.code}: {error.sentence}", file=sys.stderr),
    )

    async def work() -> int:
        await made.start(host, port, tls_of(certificate, key))
        scheme = "https" if certificate else "http"
        print(f"Serving on {scheme}://{shown(host)}:{made.server.port}.", flush=True)
        await asyncio.Event().wait()
        return 0

    return _until_stopped(work(), made.stop)


@shardcast.command()
def fetch(
    sources: From,
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FILE", help="The file to make.", show_default=False, readable=False),
    ],
    publisher: Publisher = "",
    digest: Digest = "",
    name: Name = "weights",
    version: Version = "",
    deltas: Annotated[
        bool,
        typer.Option("--deltas", help="FILE is a folder of versions: fetch what changed since the last."),
    ] = False,
    show_token: ShowToken = None,
    patience: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", help="How long nothing may come.")
    ] = 120.0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with each newer version, until it is stopped.")
    ] = False,
    serve: Annotated[
        int,
        typer.Option(
            "--serve",
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve it to others at this port, and fetch from others that serve; they see this address.",
        ),
    ] = 0,
    as_json: AsJson = False,
) -> int:
    """Fetch a version into a file. Stopped at any moment, the next call goes on."""
    expect = expect_of(publisher, digest, version)
    if follow and (digest or version or deltas):
        raise NodeError(
            Code.CFG_USAGE, "--follow takes the newest, and that whole.",
            fix="Leave out --version, --digest and --deltas.",
        )  # fmt: skip
    if deltas and (expect.publisher is None or digest or version or serve):
        raise NodeError(
            Code.CFG_USAGE, "--deltas brings the newest version of a publisher, and serves nobody.",
            fix="Give --publisher, and neither --digest nor --version nor --serve.",
        )  # fmt: skip
    urls, wait = sources_of(sources, show_token), timedelta(seconds=patience)
    if deltas:
        return _until_stopped(fetch_deltas(urls, to, expect, name, wait, as_json=as_json), stopped=130)
    return _until_stopped(
        fetch_files(urls, to, expect, name, wait, follow=follow, serve=serve, as_json=as_json),
        stopped=0 if follow else 130,
    )


@shardcast.command("list")
def list_versions(sources: From, show_token: ShowToken = None, as_json: AsJson = False) -> int:
    """What servers say that they have."""
    from dataclasses import asdict

    from protocol.units import Bytes
    from shardcast.http.fetching import read_list

    entries = asyncio.run(read_list(sources_of(sources, show_token)))
    if as_json:
        print(json.dumps([asdict(entry) for entry in entries]))
        return 0
    for entry in entries:
        state = "" if entry.closed else "  still being published"
        print(
            f"{entry.name}  {entry.version}  {Bytes(entry.size)}  {entry.encoding}  by {entry.author}{state}"
        )
    return 0


@shardcast.command()
def verify(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The file to look at.", show_default=False, readable=False),
    ],
    sources: From,
    publisher: Publisher = "",
    digest: Digest = "",
    name: Name = "weights",
    version: Version = "",
    show_token: ShowToken = None,
) -> int:
    """Say whether a file is a version, byte for byte."""
    from shardcast.expect import Plan
    from shardcast.http.fetching import read_manifest
    from shardcast.partial import is_whole

    if not file.is_file():
        raise NodeError(Code.CFG_UNREADABLE, f"{file} is no file.", fix="Name a file that is there.")
    expect = expect_of(publisher, digest, version)
    manifest = asyncio.run(read_manifest(sources_of(sources, show_token), expect, name))
    label = f"{manifest.name} {manifest.header.version}"
    if is_whole(file, Plan.of(manifest)):
        print(f"{file} is {label}.")
        return 0
    raise NodeError(
        Code.STO_CORRUPT, f"{file} is not {label}.",
        fix="Fetch it again to the same place: what is right is kept.",
    )  # fmt: skip


def _until_stopped(
    work: Coroutine[Any, Any, int], stop: Callable[[], Awaitable[None]] | None = None, stopped: int = 0
) -> int:
    """Run until it ends or a signal asks for the end, which makes the status `stopped`; then stop in good order."""

    async def run() -> int:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return stopped
        finally:
            if stop is not None:
                await stop()

    return asyncio.run(run())
