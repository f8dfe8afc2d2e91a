"""The data plane: calls between authenticated peers over gRPC and mutual TLS."""

import os

# Failed handshakes and refused connections reach the caller as typed errors; gRPC's own lines about them on stderr
# would only repeat it. Its fork handlers warn at every subprocess that a node starts, and nobody here forks.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from protocol.rpc.endpoint import Endpoint  # noqa: E402
from protocol.rpc.meter import SocketMeter  # noqa: E402
from protocol.rpc.server import Context  # noqa: E402
from protocol.rpc.throttle import Throttle  # noqa: E402

__all__ = ["Context", "Endpoint", "SocketMeter", "Throttle"]
