"""The network helper: hivemind's go-libp2p daemon as a child that cannot outlive its parent.

Nothing of it stays on disk. Its key reaches it through an anonymous file, not through one with a name. Its control
socket lives in a folder of the node, is reached through ``/proc/self/fd`` (so a long path does not matter: a socket
address holds 107 bytes) and loses its name as soon as the connections that are needed are open.
"""

import asyncio
import contextlib
import ctypes
import importlib.util
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from protocol.directory.limits import MAX_WORDS, PROGRESS_EVERY, STOP
from protocol.errors import Code, NodeError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_SOCKET_PREFIX = "p2pd-"
_CHATTER = ("Control socket:", "Peer Addrs:", "/ip4/", "/ip6/")


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill the calling process when its parent, the process ``parent``, ends.

    The kernel watches the parent's *thread* that made this process, which has to live as long as the parent.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def default_program() -> Path:
    """Where hivemind keeps the helper; found without importing hivemind.

    Raises:
        NodeError: ``E-SYS-003`` if hivemind is not installed.
    """
    found = importlib.util.find_spec("hivemind")
    if found is None or not found.submodule_search_locations:
        raise NodeError(
            Code.SYS_VERSION, "The package hivemind is not installed; it exists for Linux on x86-64 only."
        )
    return Path(found.submodule_search_locations[0]) / "hivemind_cli" / "p2pd"


class Helper:
    """A running helper process. Made by :meth:`start`, belongs to one event loop."""

    def __init__(self, process: asyncio.subprocess.Process, folder: int, socket: str) -> None:
        self._process = process
        self._folder = folder
        self._socket = socket
        self._words: deque[str] = deque(maxlen=30)
        self._ready = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        *,
        program: Path,
        seed: bytes,
        public_key: bytes,
        folder: Path,
        listen: str,
        announce: str | None,
        private: bool,
        limit: timedelta,
        progress: Callable[[str], None],
    ) -> "Helper":
        """Starts the helper and waits until it is ready.

        Args:
            program: The helper's binary.
            seed: The node's Ed25519 seed, 32 bytes.
            public_key: The public key that belongs to the seed, 32 bytes.
            folder: An existing folder of the node; its control socket lives there for a moment.
            listen: The multiaddr to listen on; port 0 is any free port.
            announce: The multiaddr that others are told instead, if any.
            private: Whether it listens on loopback only; then it neither maps ports nor relays.
            limit: How long the helper has to become ready.
            progress: Is told what is being waited for.

        Raises:
            NodeError: ``E-DIR-001`` with the helper's own words.
        """
        identity = os.memfd_create("identity")
        # libp2p's PrivateKey {Type = Ed25519 (1), Data = seed and public key}
        os.write(identity, b"\x08\x01\x12\x40" + seed + public_key)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for name in os.listdir(descriptor):
            if name.startswith(_SOCKET_PREFIX):  # left by a start that was killed within its first moments
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)
        socket = f"{_SOCKET_PREFIX}{os.getpid()}.sock"
        flags = {
            "listen": f"/unix/proc/self/fd/{descriptor}/{socket}",
            "id": f"/proc/self/fd/{identity}",
            "hostAddrs": listen,
            "dhtServer": "1",
            "tls": "1",
            "connManager": "1",
            "persistentConnMaxMsgSize": str(4 * 1024**2),
            "natPortMap": "0" if private else "1",
            "autonat": "0" if private else "1",
            "relay": "0" if private else "1",
            "relayService": "0" if private else "1",
        }
        if announce is not None:
            flags["announceAddrs"] = announce
        parent = os.getpid()
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *(f"-{name}={value}" for name, value in flags.items()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(identity, descriptor),
                preexec_fn=lambda: die_with_parent(parent),
                env={"GOMAXPROCS": "2", "GOLOG_LOG_LEVEL": "error", **os.environ},
            )
        except OSError as error:
            os.close(descriptor)
            raise NodeError(
                Code.DIR_START, f"The network helper {program} cannot be run: {error}."
            ) from error
        finally:
            os.close(identity)
        helper = cls(process, descriptor, socket)
        try:
            await helper._wait_ready(limit, progress)
        except BaseException:
            await helper.stop()
            raise
        return helper

    @property
    def pid(self) -> int:
        """The helper's process id."""
        return self._process.pid

    @property
    def control(self) -> str:
        """The multiaddr of the control socket, as this process reaches it, until :meth:`hide`."""
        return f"/unix/proc/self/fd/{self._folder}/{self._socket}"

    def hide(self) -> None:
        """Takes the control socket's name away; open connections stay."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._socket, dir_fd=self._folder)

    def words(self) -> str:
        """The last lines that the helper wrote, for people."""
        return "\n".join(self._words)[-MAX_WORDS:] or "(it wrote nothing)"

    async def ended(self) -> str:
        """Waits until the helper ends by itself, and says how."""
        status = await self._process.wait()
        await asyncio.wait((self._reader,), timeout=1)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"The network helper {how}. Its last words: {self.words()}"

    async def stop(self) -> None:
        """Ends the helper and removes what it left; can be called twice."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP.total_seconds())
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        self._reader.cancel()
        if self._folder >= 0:
            self.hide()
            os.close(self._folder)
            self._folder = -1

    async def _wait_ready(self, limit: timedelta, progress: Callable[[str], None]) -> None:
        ready = asyncio.create_task(self._ready.wait())
        over = asyncio.create_task(self.ended())
        waited, most = 0.0, limit.total_seconds()
        try:
            while waited < most:
                seconds = min(PROGRESS_EVERY.total_seconds(), most - waited)
                done, _ = await asyncio.wait(
                    (ready, over), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if ready in done:
                    return
                if over in done:
                    raise NodeError(Code.DIR_START, over.result())
                waited += seconds
                progress(f"still waiting for the network helper to start ({waited:.0f} of {most:.0f} s)")
            sentence = f"The network helper did not start within {most:.0f} s. Its last words: {self.words()}"
            raise NodeError(Code.DIR_START, sentence)
        finally:
            await _cancel((ready, over))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:  # a line longer than the reader's limit: its head was dropped
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text.startswith("Peer ID:"):
                self._ready.set()
            elif text and not text.startswith(_CHATTER):
                self._words.append(text[:500])


async def _cancel(tasks: Sequence["asyncio.Task[object]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
