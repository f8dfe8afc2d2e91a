"""The status socket: what a node is doing and why it waits, for the command line on the same machine.

A local socket in the data directory, mode 0600. One question per line and one answer per line, both JSON objects.
Questions: ``{"ask": "status"}``, ``{"ask": "stop", "now": false}``, and for a node with the operator's key
``{"ask": "admin", "do": "ban", "peer": "12D3KooW…", "reason": "…"}``.
"""

import asyncio
import contextlib
import dataclasses
import errno
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from node.lifecycle import Holder, holder
from protocol.errors import Code, NodeError

SCHEMA = 1
SOCKET_FILE = "status.sock"
MAX_LINE = 256 * 1024
ANSWER_WITHIN = timedelta(seconds=5)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeStatus:
    """What a node says about itself. Everything has a default, because early in its life a node knows little.

    Attributes:
        phase: One word, such as "starting", "training", "reducing", "waiting", "draining".
        reason: One word for why the phase lasts, such as "members".
        sentence: What the node is doing or waiting for, for people.
        since: When the phase began, unix seconds.
        until: When it ends at the latest, unix seconds; None when nothing bounds it.
        next: What happens then, for people.
        missing: Peers that are waited for.
        recent: The last notable happenings and verdicts, oldest first.
        tokens_per_second: Of this node's own training.
        bytes_sent: All bytes to sockets since the start.
        reach: How others reach this node, for people.
        trouble: What is wrong with this node itself and lasts, for people.
        evidence: What members signed that no honest one can have signed, a sentence each.
        paths: The way to each member: "direct", "punched" or "relayed"; empty for one not yet dialled.
    """

    peer: str = ""
    name: str = ""
    run: str = ""
    run_name: str = ""
    roles: tuple[str, ...] = ()
    pid: int = field(default_factory=os.getpid)
    version: str = ""
    started: float = 0.0
    phase: str = "starting"
    reason: str = ""
    sentence: str = ""
    since: float = 0.0
    until: float | None = None
    next: str = ""
    missing: tuple[str, ...] = ()
    round: int = 0
    rounds: int = 0
    attempt: int = 0
    members: tuple[str, ...] = ()
    loss: float | None = None
    validation_loss: float | None = None
    tokens_per_second: float | None = None
    bytes_sent: int = 0
    multiaddrs: tuple[str, ...] = ()
    recent: tuple[str, ...] = ()
    reach: str = ""
    trouble: str = ""
    evidence: tuple[str, ...] = ()
    paths: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """A path to the socket in `folder` that is always short enough.

    Socket paths end at 107 bytes. Through this process's own descriptor of the folder every folder's path is short, so
    the socket can lie in the data directory, wherever that is, and nothing is left elsewhere.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_FILE}"
    finally:
        os.close(descriptor)


class StatusServer:
    """Answers on the status socket while the node lives. A node that cannot have a socket goes on without it.

    Args:
        folder: The data directory, held by this process (`node.lifecycle.hold`).
        status: Gives the present status; called for every question, in the loop.
        stop: Told that somebody wants the node to stop; the argument says whether at once.
        admin: Carries out an operator's wish and says what was done; raises ``NodeError`` when it cannot be done.
    """

    def __init__(
        self,
        folder: Path,
        status: Callable[[], NodeStatus],
        stop: Callable[[bool], None],
        admin: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        self._folder = folder
        self._status = status
        self._stop = stop
        self._admin = admin
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> bool:
        """Begin to answer. False, with a warning, where the file system has no sockets.

        A socket file that a killed node left is replaced: who holds the data directory is the only one there.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            os.fchmod(listener.fileno(), 0o600)  # decides the mode of the file that bind makes
            with _short_path(self._folder) as path:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                listener.bind(path)
                os.chmod(path, 0o600)
            listener.setblocking(False)
            self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_LINE)
        except OSError as error:
            listener.close()
            _log.warning(
                "There is no status socket in %s (%s); the node goes on without it.", self._folder, error
            )
            return False
        return True

    async def stop(self) -> None:
        """End all connections and remove the socket. May be called twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for writer in tuple(self._connections):
            writer.close()
        with contextlib.suppress(OSError), _short_path(self._folder) as path:
            os.unlink(path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while line := await reader.readline():
                try:
                    answer = self._answer(json.loads(line))
                except (ValueError, AttributeError, RecursionError):
                    answer = {"ok": False, "error": "The question is not a JSON object."}
                writer.write(json.dumps({"schema": SCHEMA, **answer}, default=str).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # the asker has left, or sent too long a line
        finally:
            self._connections.discard(writer)
            writer.close()

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            match question.get("ask"):
                case "status":
                    return {"ok": True, "status": dataclasses.asdict(self._status())}
                case "stop":
                    self._stop(bool(question.get("now", False)))
                    return {"ok": True}
                case "admin" if self._admin is not None:
                    return {"ok": True, "done": self._admin(question)}
                case other:
                    return {"ok": False, "error": f"Unknown question {other!r}; ask status, stop or admin."}
        except NodeError as error:
            return {"ok": False, "error": error.sentence, "code": str(error.code), "fix": error.fix}
        except Exception as error:
            _log.warning("The status socket could not answer: %r", error)
            return {"ok": False, "error": "The node could not answer."}


def ask_status(folder: Path, timeout: timedelta = ANSWER_WITHIN) -> NodeStatus:
    """The status of the node in `folder`.

    Raises:
        NodeError: SYS_NOT_RUNNING, also for a node that runs but does not answer in time.
    """
    with _connect(folder, timeout) as connection:
        answer = _ask(connection, {"ask": "status"}, folder)
    known = {each.name for each in dataclasses.fields(NodeStatus)}
    content = answer.get("status")
    if not isinstance(content, dict):
        raise NodeError(Code.SYS_NOT_RUNNING, f"The node in {folder} gave no status.")
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in content.items()
        if name in known
    }
    return NodeStatus(**plain)


def ask_admin(folder: Path, do: str, fields: Mapping[str, str], *, timeout: timedelta = ANSWER_WITHIN) -> str:
    """Have the node in `folder` carry out an operator's wish.

    Args:
        folder: Data directory of a node that holds the operator's key.
        do: What, see ``node.roles.wishes``.
        fields: What the wish needs: ``peer``, ``reason``, ``name``, ``value``.
        timeout: How long it may take to answer.

    Returns:
        What was done, in a sentence.

    Raises:
        NodeError: What the node says against it, or SYS_NOT_RUNNING.
    """
    with _connect(folder, timeout) as connection:
        answer = _ask(connection, {"ask": "admin", "do": do, **fields}, folder)
    return str(answer.get("done", ""))


def ask_stop(
    folder: Path, *, now: bool = False, wait: timedelta | None = None, timeout: timedelta = ANSWER_WITHIN
) -> bool:
    """Have the node in `folder` drain, or end at once with `now`; a node that does not answer gets the signal instead.

    Args:
        folder: Data directory.
        now: Without draining.
        wait: How long to wait for its end; None does not wait.
        timeout: How long it may take to answer.

    Returns:
        Whether it has ended.

    Raises:
        NodeError: SYS_NOT_RUNNING.
    """
    held_by = holder(folder)
    if held_by is None:
        with _connect(folder, timeout):  # says it when the directory is another user's
            pass
        raise _not_running(folder)
    try:
        with _connect(folder, timeout) as connection:
            _ask(connection, {"ask": "stop", "now": now}, folder)
    except NodeError:
        _signal(held_by, folder, now)
    if wait is None:
        return holder(folder) is None
    deadline = time.monotonic() + wait.total_seconds()
    while holder(folder) is not None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _signal(held_by: Holder, folder: Path, now: bool) -> None:
    process = held_by.process()
    if process is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL if now else signal.SIGTERM)
    elif holder(folder) is not None:
        raise NodeError(
            Code.SYS_NOT_RUNNING,
            f"The node that holds {folder} does not answer, and its process cannot be seen from here.",
            fix="Stop it where it was started: in its container or on its machine.",
        )


@contextlib.contextmanager
def _connect(folder: Path, timeout: timedelta) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(timeout.total_seconds())
        try:
            with _short_path(folder) as path:
                connection.connect(path)
            yield connection
        except TimeoutError as error:
            raise _silent(folder) from error
        except PermissionError as error:
            raise NodeError(
                Code.SYS_NOT_RUNNING,
                f"The node in {folder} belongs to another user.",
                fix="Ask as that user.",
            ) from error
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR) and holder(folder) is None:
                raise _not_running(folder) from error
            raise _silent(folder) from error


def _ask(connection: socket.socket, question: dict[str, Any], folder: Path) -> dict[str, Any]:
    connection.sendall(json.dumps(question).encode() + b"\n")
    with connection.makefile("rb") as stream:
        line = stream.readline(MAX_LINE)
    try:
        answer = json.loads(line)
        ok, sentence = answer["ok"], answer.get("error", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _silent(folder) from None
    if not ok and answer.get("code") in tuple(Code):
        raise NodeError(Code(answer["code"]), str(sentence), fix=str(answer.get("fix", "")))
    if not ok:
        raise NodeError(
            Code.SYS_NOT_RUNNING, f"The node in {folder} refused: {sentence}", fix="Use the same version."
        )
    return dict(answer)


def _not_running(folder: Path) -> NodeError:
    return NodeError(Code.SYS_NOT_RUNNING, f"No node runs in {folder}.")


def _silent(folder: Path) -> NodeError:
    return NodeError(
        Code.SYS_NOT_RUNNING,
        f"The node in {folder} does not answer; it may be starting, stopping or hanging.",
        fix=f"Ask again in a moment, read {folder}/events.jsonl, or stop it with `intellect-node stop --now`.",
    )
