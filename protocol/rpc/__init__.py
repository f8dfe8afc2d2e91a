"""The data plane: calls between authenticated peers over gRPC and mutual TLS."""

import os

# Failed handshakes and refused connections reach the caller as typed errors; gRPC's own lines about them on stderr
# would only repeat it. Its fork handlers warn at every subprocess that a node starts, and nobody here forks.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from protocol.rpc.desk import Context
from protocol.rpc.endpoint import Endpoint
from protocol.rpc.meter import SocketMeter
from protocol.rpc.throttle import Throttle

__all__ = ["Context", "Endpoint", "SocketMeter", "Throttle"]
