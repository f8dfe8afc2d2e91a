"""`python -m rl.engine`: an engine as a process of its own, over HTTP."""

import argparse
import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from aiohttp import web

from protocol.errors import Code, NodeError
from protocol.parent import die_with_parent
from protocol.units import Digest
from rl.engine.limits import Limits
from rl.engine.shape import read_shape

_MAX_TEXT_BYTES = 2**26


def parser() -> argparse.ArgumentParser:
    """What the process is told."""
    made = argparse.ArgumentParser(
        prog="python -m rl.engine", description="Generate with a Llama-architecture model."
    )
    made.add_argument(
        "--weights", type=Path, required=True, help="a Hugging Face folder, or a safetensors file"
    )
    made.add_argument("--config", type=Path, help="the model's config.json; by default that of the folder")
    made.add_argument(
        "--tokenizer", type=Path, help="tokenizer.json; by default that of the folder, if it has one"
    )
    made.add_argument(
        "--template", choices=("plain", "chatml"), default="plain", help="how messages are laid out"
    )
    made.add_argument("--name", help="what the model is called; by default the folder's or file's name")
    made.add_argument("--digest", help="digest that the weights' file must have")
    made.add_argument("--version", type=int, default=0, help="the policy version of these weights")
    made.add_argument("--kind", choices=("float32", "bfloat16"), default="float32", help="what to compute in")
    made.add_argument("--device", default="cpu", help="where to compute")
    made.add_argument("--threads", type=int, default=0, help="torch's threads; by default its own choice")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    where.add_argument("--socket", type=Path, help="a Unix socket instead of a port")
    where.add_argument(
        "--listen", type=int, help=argparse.SUPPRESS
    )  # a listening socket that was handed over
    made.add_argument("--host", default="127.0.0.1", help="another than loopback needs --token-file")
    made.add_argument("--token-file", type=Path, help="holds what everybody has to show as a bearer token")
    made.add_argument("--control-file", type=Path, help="holds what has to be shown to change weights")
    made.add_argument("--slots", type=int, default=Limits.slots, help="sequences that run at once")
    made.add_argument("--waiting", type=int, default=Limits.waiting, help="requests that may wait")
    made.add_argument(
        "--held-bytes", type=int, default=Limits.held_bytes, help="for conversations between turns"
    )
    made.add_argument(
        "--held-seconds", type=float, default=Limits.held_for.total_seconds(), help="for how long"
    )
    made.add_argument("--parent", type=int, help=argparse.SUPPRESS)  # whose death ends this process
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    options = parser().parse_args(arguments)
    if options.parent is not None:
        die_with_parent(options.parent)
    try:
        asyncio.run(_serve(options))
    except NodeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    token, control = _secret(options.token_file), _secret(options.control_file)
    if options.socket is None and options.listen is None and token is None and not _is_loopback(options.host):
        raise NodeError(Code.RL_REQUEST, "An engine that others can reach needs a --token-file.")
    import torch

    from rl.engine.generator import Generator
    from rl.engine.server import Access, Server
    from rl.engine.service import TorchEngine
    from rl.engine.texts import NoTexts, TokenizerTexts
    from rl.engine.weights import from_file

    if options.threads:
        torch.set_num_threads(options.threads)
    folder = options.weights if options.weights.is_dir() else options.weights.parent
    file = folder / "model.safetensors" if options.weights.is_dir() else options.weights
    shape = read_shape(options.config or folder / "config.json")
    tokenizer = options.tokenizer or (
        folder / "tokenizer.json" if (folder / "tokenizer.json").exists() else None
    )
    texts = None if tokenizer is None else TokenizerTexts(_text(tokenizer), options.template)
    digest = None if options.digest is None else Digest(bytes.fromhex(options.digest))
    weights = from_file(file, shape, options.kind, digest, options.device)
    limits = Limits(
        options.slots, options.waiting, options.held_bytes, timedelta(seconds=options.held_seconds)
    )
    generator = Generator(weights, options.version, limits, texts.decode if texts else None)
    del weights  # they go when a newer version has taken their place
    engine = TorchEngine(generator, options.kind, options.device)
    server = Server(
        engine,
        options.name or options.weights.resolve().stem,
        shape.context,
        texts or NoTexts(),
        texts.decode if texts else None,
        Access(token, control),
        limits.slots + limits.waiting,
    )
    runner = web.AppRunner(server.app(), handler_cancellation=True, access_log=None)
    await runner.setup()
    await _site(options, runner).start()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    print(
        f"The engine serves version {options.version} at {', '.join(map(str, runner.addresses))}.", flush=True
    )
    await ended.wait()
    await engine.close()
    await runner.cleanup()


def _site(options: argparse.Namespace, runner: web.AppRunner) -> web.BaseSite:
    if options.listen is not None:
        return web.SockSite(runner, socket.socket(fileno=options.listen))
    if options.socket is not None:
        with contextlib.suppress(FileNotFoundError):
            options.socket.unlink()
        os.umask(0o177)
        return web.UnixSite(runner, str(options.socket))
    return web.TCPSite(runner, options.host, options.port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _secret(path: Path | None) -> str | None:
    if path is None:
        return None
    secret = _text(path).strip()
    if len(secret) < 16:
        raise NodeError(Code.RL_REQUEST, f"{path.name} holds no secret of at least 16 characters.")
    return secret


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_TEXT_BYTES + 1)
        if len(data) > _MAX_TEXT_BYTES:
            raise ValueError("it is too long")
        return data.decode()
    except (OSError, ValueError) as error:
        raise NodeError(Code.RL_REQUEST, f"{path.name} cannot be read: {error}.") from None


if __name__ == "__main__":
    sys.exit(main())
