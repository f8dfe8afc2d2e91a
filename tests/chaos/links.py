"""Nodes on links of their own, in network namespaces on one bridge: links that are cut, slow, or lose packets."""

import subprocess
from pathlib import Path

from node.children import start_child
from tests.e2e.cluster import environment, python
from tests.protocol.paths.lab import Host, Lab, _environment, missing

__all__ = ["Links", "missing"]

_LOSS = """\
table ip chaos {{
  chain out {{
    type filter hook output priority 0
    oifname "eth0" numgen random mod 100 < {percent} drop
  }}
}}
"""

_DELAY = """\
table ip far {{
  chain in {{
    type nat hook prerouting priority -100
    iifname "eth0" tcp dport != {port} redirect to :{port}
  }}
}}
"""
_PROXY = 9


class Links:
    """The links of a swarm. Needs root, see ``missing``.

    Args:
        folder: Scratch space.
    """

    def __init__(self, folder: Path) -> None:
        self._lab = Lab(folder)
        self._hosts: dict[str, Host] = {}
        self._proxies: list[subprocess.Popen[bytes]] = []

    def add(self, name: str) -> str:
        """A link for a node; the address on it."""
        host = self._hosts[name] = self._lab.public(name)
        return host.address

    def enter(self, name: str) -> list[str]:
        """The words before a command that run it on the link of a node."""
        return ["ip", "netns", "exec", self._hosts[name].space]

    def cut(self, name: str) -> None:
        """Nothing passes any more, and nobody is told."""
        self._lab._in(self._lab._net, f"ip link set p{name} down")

    def mend(self, name: str) -> None:
        """The link is as new."""
        for command in (f"ip link set p{name} up", f"tc qdisc del dev p{name} root"):
            self._try(self._lab._net, command)
        self._try(self._hosts[name].space, "nft delete table ip chaos")

    def shape(self, name: str, rate: str) -> None:
        """What goes to the node is slow, and waits in a queue of half a second or is lost."""
        self._lab._in(
            self._lab._net, f"tc qdisc replace dev p{name} root tbf rate {rate} burst 16kb latency 500ms"
        )

    def lose(self, name: str, percent: int) -> None:
        """So many of a hundred packets from the node are lost."""
        rules = _LOSS.format(percent=percent)
        nft = ["ip", "netns", "exec", self._hosts[name].space, "nft", "-f", "-"]
        subprocess.run(nft, input=rules.encode(), check=True, env=_environment(), capture_output=True)

    def delay(self, name: str, milliseconds: int) -> None:
        """All connections to the node that are made from now on are so much slower in each direction."""
        space = self._hosts[name].space
        proxy = [*self.enter(name), *python("-m", "tests.chaos.delay", str(_PROXY), str(milliseconds))]
        self._proxies.append(start_child(proxy, threads=1, environment=environment()))
        nft = ["ip", "netns", "exec", space, "nft", "-f", "-"]
        rules = _DELAY.format(port=_PROXY)
        subprocess.run(nft, input=rules.encode(), check=True, env=_environment(), capture_output=True)

    def _try(self, space: str, command: str) -> None:
        words = ["ip", "netns", "exec", space, *command.split()]
        subprocess.run(words, check=False, env=_environment(), capture_output=True)

    async def close(self) -> None:
        """Remove the links."""
        for proxy in self._proxies:
            proxy.kill()
            proxy.wait()
        await self._lab.close()
