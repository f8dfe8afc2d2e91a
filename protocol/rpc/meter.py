"""The bytes that really left this process: what the kernel counted on its TCP sockets."""

import os
import socket
import struct
from collections.abc import Callable

# struct tcp_info, include/uapi/linux/tcp.h: tcpi_bytes_sent, with retransmissions, headers of TCP and IP without.
_BYTES_SENT = struct.Struct("=Q")
_BYTES_SENT_AT = 200
_TCP_INFO_SIZE = 256


class SocketMeter:
    """Counts what this process writes to its TCP sockets, framing and TLS included, loopback too.

    The kernel keeps the count per socket and forgets it when the socket closes, so :meth:`sent` has to be asked now
    and then; what a socket sent between the last question and its end is lost. Linux only. Used from one thread.

    Args:
        ports: If given, only sockets whose local or remote port it contains are counted. It is asked each time.
    """

    def __init__(self, ports: Callable[[], frozenset[int]] | None = None) -> None:
        self._ports = ports
        self._by_inode: dict[str, int] = {}
        self._closed = 0

    def sent(self) -> int:
        """Bytes sent so far by all sockets that were ever seen."""
        wanted = None if self._ports is None else self._ports()
        now: dict[str, int] = {}
        for name in os.listdir("/proc/self/fd"):
            try:
                inode = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue  # closed since
            if not inode.startswith("socket:"):
                continue
            count = _bytes_sent(int(name), wanted)
            if count is not None:
                now[inode] = count
        for inode, count in self._by_inode.items():
            if now.get(inode, -1) < count:  # it closed, or its number was given to a new socket
                self._closed += count
        self._by_inode = now
        return self._closed + sum(now.values())


def _bytes_sent(descriptor: int, ports: frozenset[int] | None) -> int | None:
    """What one TCP connection sent; None for any other socket, and for one that closed in between."""
    try:
        seen = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        if seen.family not in (socket.AF_INET, socket.AF_INET6) or seen.type != socket.SOCK_STREAM:
            return None
        if ports is not None and not {seen.getsockname()[1], seen.getpeername()[1]} & ports:
            return None
        info = seen.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    except OSError:
        return None
    finally:
        # The descriptor is gRPC's and is only looked at: closing it, or a copy of it, would confuse gRPC's poller.
        seen.detach()
    if len(info) < _BYTES_SENT_AT + _BYTES_SENT.size:
        return None
    count: int = _BYTES_SENT.unpack_from(info, _BYTES_SENT_AT)[0]
    return count
