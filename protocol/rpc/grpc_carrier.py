"""gRPC over mutual TLS as the carrier: one listening port, two connections to each peer that is called."""

import errno
import socket
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio

from protocol import limits
from protocol.errors import Code, NodeError
from protocol.rpc.channel import Dial, Links, common_options, milliseconds
from protocol.rpc.memory import keep_freed_frames
from protocol.rpc.server import Router
from protocol.tls import TlsIdentity
from protocol.trust import Trust
from protocol.units import Address


class GrpcCarrier:
    """Serves at one address and connects to the addresses that trusted peers have.

    Args:
        tls: This node's certificate.
        trust: Whom to let connect, and where they are; it may change while this serves.
        listen: Where to listen; port 0 takes any free one.
        dial: Opens the connections.
    """

    def __init__(self, tls: TlsIdentity, trust: Trust, listen: Address, dial: Dial) -> None:
        self._tls = tls
        self._trust = trust
        self._listen = listen
        self.links = Links(trust, tls, dial)
        self._server: grpc.aio.Server | None = None

    async def start(self, router: Router) -> Address:
        """Listens.

        Raises:
            NodeError: ``E-NET-001`` if the port is in use, ``E-NET-002`` if the address is not this machine's.
        """
        _check_free(self._listen)
        keep_freed_frames()
        options = [
            *common_options(limits.KEEPALIVE_BULK),
            ("grpc.so_reuseport", 0),  # else a second node would take the same port without a word
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.server_handshake_timeout_ms", milliseconds(limits.CONNECT_TIMEOUT) * 2),
            ("grpc.max_allowed_incoming_connections", limits.MAX_CONNECTIONS),
            ("grpc.max_concurrent_streams", 2 * limits.MAX_CALLS_PER_PEER),
            ("grpc.max_metadata_size", int(limits.MAX_METADATA)),
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=limits.MAX_CALLS)
        server.add_generic_rpc_handlers((router,))
        try:
            port = server.add_secure_port(str(self._listen), self._credentials())
        except RuntimeError as error:
            raise NodeError(
                Code.NET_PORT_IN_USE, f"The node cannot listen at {self._listen}: {error}."
            ) from error
        await server.start()
        self._server = server
        return Address(self._listen.host, port)

    def _credentials(self) -> grpc.ServerCredentials:
        pair = [(self._tls.key_pem, self._tls.certificate_pem)]
        given = -1

        def current(first: bool = False) -> Any:
            nonlocal given
            version = self._trust.version
            if version == given and not first:
                return None  # nothing changed
            given = version
            return grpc.ssl_server_certificate_configuration(
                pair, self._tls.certificate_pem + self._trust.pem_bundle()
            )

        return grpc.dynamic_ssl_server_credentials(
            current(first=True), current, require_client_authentication=True
        )

    async def stop(self, grace: timedelta) -> None:
        """Accepts no more calls, lets those under way end within ``grace``, then closes everything."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace.total_seconds())
        await self.links.stop()


def _check_free(address: Address) -> None:
    """Tells a taken port from a wrong address, which gRPC's own error does not."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise NodeError(
                    Code.NET_PORT_IN_USE, f"Port {address.port} of {address.host} is in use."
                ) from error
            raise NodeError(
                Code.NET_UNREACHABLE,
                f"The node cannot listen at {address}: {error.strerror}.",
                fix="Use an address of this machine in the run file's [network] section.",
            ) from error
