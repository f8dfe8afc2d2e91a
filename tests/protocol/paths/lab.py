"""A small internet of network namespaces: public hosts on one bridge, and hosts behind routers that masquerade.

Everything is in namespaces of this process's own making, which have no way out. The routers let out whatever comes from
inside and let in only what belongs to it, as a home's router does; the hosts behind them can only dial out.
"""

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import protocol

_NUMBERS = itertools.count()
_SHAPE = (
    "burst 32kb latency 500ms"  # a queue of half a second: more than a good router has, less than a bad one
)
_RULES = """
table ip nat {{
  chain out {{
    type nat hook postrouting priority 100;
    oifname "wan" masquerade {ports}
  }}
}}
table ip filter {{
  chain onward {{
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    iifname "lan" accept
  }}
  chain inward {{
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iifname {{ "lan", "lo" }} accept
  }}
}}
"""


def missing() -> str:
    """What a lab lacks here; empty if it can be built."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    tools = [tool for tool in ("ip", "nft", "tc", "sysctl") if shutil.which(tool, path=_path()) is None]
    if tools:
        return f"{', '.join(tools)} not found (Debian's packages iproute2, nftables, procps)"
    name = f"lab-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, env=_environment(), check=False)
    if made.returncode != 0:
        return f"network namespaces cannot be made: {made.stderr.decode().strip()}"
    rules = ["ip", "netns", "exec", name, "nft", "-f", "-"]
    try:
        tried = subprocess.run(
            rules,
            input=_RULES.format(ports="").encode(),
            capture_output=True,
            env=_environment(),
            check=False,
        )
    finally:
        subprocess.run(["ip", "netns", "del", name], env=_environment(), check=False)
    return (
        "" if tried.returncode == 0 else f"nftables cannot masquerade: {tried.stderr.decode().strip()[:200]}"
    )


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": _path()}


def _sweep() -> None:
    """Removes what a run that was killed has left."""
    listed = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, env=_environment(), check=False
    )
    for line in listed.stdout.splitlines():
        name = line.split()[0]
        made = re.fullmatch(r"lab(\d+)x\d+-\w+", name)
        if made is not None and not Path(f"/proc/{made[1]}").exists():
            subprocess.run(["ip", "netns", "del", name], check=False, env=_environment(), capture_output=True)


class Lab:
    """The namespaces of one test, gone at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        _sweep()
        self._prefix = f"lab{os.getpid()}x{next(_NUMBERS)}"
        self._made: list[str] = []
        self._hosts: list[Host] = []
        self._public = itertools.count(10)
        self._private = itertools.count(1)
        self._net = self._namespace("net")
        self._in(self._net, "ip link add bridge type bridge")
        self._in(self._net, "ip link set bridge up")

    def public(self, name: str, *, rate: str = "", shape: str = _SHAPE) -> "Host":
        """A host with an address of its own.

        Args:
            name: A short name.
            rate: Shapes what it sends and what it receives, as ``tc`` writes a rate: ``10mbit``.
            shape: What else ``tc`` is to know of the link's token bucket.
        """
        space = self._namespace(name)
        address = self._join(space, name, "eth0", rate, shape)
        self._in(space, "ip route add default dev eth0")
        return self._host(name, space, address)

    def hidden(self, name: str, *, rate: str = "", hard: bool = False) -> "Host":
        """A host behind a router of its own.

        Args:
            name: A short name.
            rate: Shapes the router's line in both directions.
            hard: The router gives every connection another port, so that nobody can tell which.
        """
        router, space = self._namespace(f"{name}r"), self._namespace(name)
        self._join(router, f"{name}r", "wan", rate)
        prefix = f"192.168.{next(self._private)}"
        self._pair(space, "eth0", router, "lan")
        for where, device, address in ((space, "eth0", f"{prefix}.2"), (router, "lan", f"{prefix}.1")):
            self._in(where, f"ip addr add {address}/24 dev {device}")
            self._in(where, f"ip link set {device} up")
        self._in(space, f"ip route add default via {prefix}.1")
        self._in(router, "sysctl -qw net.ipv4.ip_forward=1")
        rules = _RULES.format(ports="fully-random" if hard else "").encode()
        nft = ["ip", "netns", "exec", router, "nft", "-f", "-"]
        subprocess.run(nft, input=rules, check=True, env=_environment())
        return self._host(name, space, f"{prefix}.2")

    def _join(self, space: str, name: str, device: str, rate: str, shape: str = _SHAPE) -> str:
        """Connects a namespace to the bridge."""
        address = f"203.0.113.{next(self._public)}"
        self._pair(space, device, self._net, f"p{name}")
        self._in(self._net, f"ip link set p{name} master bridge up")
        self._in(space, f"ip addr add {address}/24 dev {device}")
        self._in(space, f"ip link set {device} up")
        if rate:
            for where, shaped in ((space, device), (self._net, f"p{name}")):
                self._in(where, f"tc qdisc add dev {shaped} root tbf rate {rate} {shape}")
        return address

    def _pair(self, one: str, device: str, other: str, peer: str) -> None:
        self._run(f"ip link add {device} netns {one} type veth peer name {peer} netns {other}")

    def _namespace(self, name: str) -> str:
        space = f"{self._prefix}-{name}"
        self._run(f"ip netns add {space}")
        self._made.append(space)
        self._in(space, "ip link set lo up")
        return space

    def _in(self, space: str, command: str) -> None:
        self._run(f"ip netns exec {space} {command}")

    def _run(self, command: str) -> None:
        subprocess.run(command.split(), check=True, env=_environment(), capture_output=True)

    def _host(self, name: str, space: str, address: str) -> "Host":
        host = Host(space, address, self._folder / name)
        self._hosts.append(host)
        return host

    async def close(self) -> None:
        """Ends every process and namespace."""
        await asyncio.gather(*(host.end() for host in self._hosts))
        for space in reversed(self._made):
            subprocess.run(
                ["ip", "netns", "del", space], check=False, env=_environment(), capture_output=True
            )


class Host:
    """A machine of the lab, and the node that runs on it."""

    def __init__(self, space: str, address: str, folder: Path) -> None:
        self.address, self.space = address, space
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reading: asyncio.Task[None] | None = None
        self.peer = ""
        self.multiaddrs: tuple[str, ...] = ()

    async def start(self, *join: "Host", **options: Any) -> dict[str, Any]:
        """Starts its node, which joins by other hosts' nodes; returns what it says of itself."""
        self._folder.mkdir(parents=True, exist_ok=True)
        root = str(Path(protocol.__file__).parent.parent)
        self._process = await asyncio.create_subprocess_exec(
            "ip", "netns", "exec", self.space, sys.executable, "-m", "tests.protocol.paths.inside",
            str(self._folder), json.dumps(options),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 22, cwd=root,
            env={**_environment(), "PYTHONPATH": root, "GRPC_VERBOSITY": "NONE"},
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        addresses = [address for host in join for address in host.multiaddrs]
        said: dict[str, Any] = await self.do("start", join=addresses)
        self.peer, self.multiaddrs = said["peer"], tuple(said["multiaddrs"])
        return said

    async def do(self, what: str, **arguments: Any) -> Any:
        """Has the node do something; an error there is an error here."""
        assert self._process is not None and self._process.stdin is not None
        number = len(self._answers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"id": number, "do": what, **arguments}).encode() + b"\n")
        async with asyncio.timeout(120):
            return await future

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            future = self._answers[said["id"]]
            if "error" in said:
                future.set_exception(RuntimeError(said["error"]))
            else:
                future.set_result(said["answer"])
        for future in self._answers.values():
            if not future.done():
                future.set_exception(RuntimeError(f"the node on {self.space} ended"))

    async def end(self) -> None:
        """Stops the node, then its process."""
        if self._process is None:
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(10):
                await self.do("stop")
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)
