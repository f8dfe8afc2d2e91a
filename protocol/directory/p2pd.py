"""The network helper: hivemind's go-libp2p daemon as a child that cannot outlive its parent.

Nothing of it stays on disk. Its key reaches it through an anonymous file, not through one with a name. Its control
socket and the one to which it brings streams are made in a folder of the node and lose their names at once; a
descriptor of each stays, and ``/proc/self/fd`` leads to the socket through it (so a long path does not matter either: a
socket address holds 107 bytes).
"""

import asyncio
import contextlib
import importlib.util
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from protocol.directory.limits import MAX_WORDS, PROGRESS_EVERY, STOP
from protocol.errors import Code, NodeError
from protocol.parent import die_with_parent
from protocol.paths.limits import RELAY_BUFFER

_SOCKET_PREFIX = "p2pd-"
_CHATTER = ("Control socket:", "Peer Addrs:", "/ip4/", "/ip6/")


def default_program() -> Path:
    """The helper's binary: what ``INTELLECT_NODE_HELPER`` names, else hivemind's, found without importing hivemind.

    Raises:
        NodeError: ``E-SYS-003`` if hivemind is not installed.
    """
    named = os.environ.get("INTELLECT_NODE_HELPER")
    if named:
        return Path(named)
    found = importlib.util.find_spec("hivemind")
    if found is None or not found.submodule_search_locations:
        raise NodeError(
            Code.SYS_VERSION, "The package hivemind is not installed; it exists for Linux on x86-64 only."
        )
    return Path(found.submodule_search_locations[0]) / "hivemind_cli" / "p2pd"


@dataclass(frozen=True)
class HelperStanding:
    """How the helper takes part in the network.

    Attributes:
        local: It listens on loopback only; then it neither maps ports nor relays.
        public: Others are known to reach it, so it need not find out.
        relays: Multiaddrs of relays at which it reserves a place, because others do not reach it.
        serves: It is a relay itself, with these bounds: circuits per peer, reservations, bytes per circuit and
            direction, seconds per circuit.
    """

    local: bool = False
    public: bool = False
    relays: tuple[str, ...] = ()
    serves: tuple[int, int, int, float] | None = None

    def flags(self) -> dict[str, str]:
        """The helper's own words for it."""
        if self.local:
            return {"natPortMap": "0", "autonat": "0", "relay": "0", "relayService": "0"}
        flags = {"natPortMap": "1", "autonat": "1", "relay": "1", "relayService": "0"}
        if self.serves is not None:
            circuits, reservations, most, seconds = self.serves
            flags |= {
                "relayService": "1", "relayMaxCircuits": str(circuits), "relayMaxReservations": str(reservations),
                "relayDataLimit": str(most), "relayTimeLimit": f"{seconds:.0f}s",
                "relayBufferSize": str(int(RELAY_BUFFER)),
            }  # fmt: skip
        if self.public or self.serves is not None:
            flags["forceReachabilityPublic"] = "1"
        elif self.relays:
            flags |= {
                "autoRelay": "1", "relayDiscovery": "0", "trustedRelays": ",".join(self.relays),
                "forceReachabilityPrivate": "1",
            }  # fmt: skip
        return flags


class Helper:
    """A running helper process. Made by :meth:`start`, belongs to one event loop.

    Attributes:
        incoming: The listening socket to which it brings streams; who serves it closes it.
        brought_to: The multiaddr of that socket, as the helper reaches it.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        folder: int,
        name: str,
        incoming: socket.socket,
        brought_to: str,
    ) -> None:
        self.incoming = incoming
        self.brought_to = brought_to
        self._process = process
        self._folder = folder
        self._socket = name
        self._door = -1
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
        standing: HelperStanding,
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
            standing: How it takes part in the network.
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
        name = f"{_SOCKET_PREFIX}{os.getpid()}.sock"
        incoming, way_in = _nameless_listener(descriptor)
        flags = {
            "listen": f"/unix/proc/self/fd/{descriptor}/{name}",
            "id": f"/proc/self/fd/{identity}",
            "hostAddrs": listen,
            "dhtServer": "1",
            "tls": "1",
            "connManager": "1",
            "persistentConnMaxMsgSize": str(4 * 1024**2),
            **standing.flags(),
        }
        if announce is not None:
            flags["announceAddrs"] = announce
        parent = os.getpid()
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *(f"-{flag}={value}" for flag, value in flags.items()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(identity, descriptor, way_in),
                preexec_fn=lambda: die_with_parent(parent),
                # of a relay see protocol.directory.relaying
                env={
                    "GOMAXPROCS": "2" if standing.serves is None else "1",
                    "GOLOG_LOG_LEVEL": "error",
                    **os.environ,
                },
            )
        except OSError as error:
            os.close(descriptor)
            incoming.close()
            raise NodeError(
                Code.DIR_START, f"The network helper {program} cannot be run: {error}."
            ) from error
        finally:
            os.close(identity)
            os.close(way_in)
        helper = cls(process, descriptor, name, incoming, f"/unix/proc/self/fd/{way_in}")
        try:
            await helper._wait_ready(limit, progress)
            helper._hide()
        except BaseException:
            await helper.stop()
            raise
        return helper

    @property
    def pid(self) -> int:
        """The helper's process id."""
        return self._process.pid

    @property
    def door(self) -> str:
        """The path of the control socket, as this process and no other reaches it."""
        return f"/proc/self/fd/{self._door}"

    def _hide(self) -> None:
        """Takes the control socket's name away; the way through the descriptor stays."""
        try:
            self._door = os.open(self._socket, os.O_PATH, dir_fd=self._folder)
            os.unlink(self._socket, dir_fd=self._folder)
        except OSError as error:
            raise NodeError(Code.DIR_START, f"The network helper made no control socket: {error}.") from error

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
        self.incoming.close()
        if self._door >= 0:
            os.close(self._door)
            self._door = -1
        if self._folder >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._socket, dir_fd=self._folder)
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


def _nameless_listener(folder: int) -> tuple[socket.socket, int]:
    """A listening socket without a name, and a descriptor through which those who have it connect."""
    name = f"{_SOCKET_PREFIX}{os.getpid()}-in.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{name}")
        way_in = os.open(name, os.O_PATH, dir_fd=folder)
        os.unlink(name, dir_fd=folder)
        listener.listen(128)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener, way_in


async def _cancel(tasks: Sequence["asyncio.Task[object]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
