"""The web server: the application in a thread and an event loop of its own, so that no page holds up the node."""

import asyncio
import errno
import gc
import socket
import threading

import uvicorn
from fastapi import FastAPI

from protocol.errors import Code, NodeError
from protocol.units import Address

_STOP = 5  # seconds that open connections have to end


class Web:
    """Serves one application.

    Args:
        app: The application.
        listen: Where; port 0 takes any free one.
    """

    def __init__(self, app: FastAPI, listen: Address) -> None:
        self._listen = listen
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=_STOP,
            server_header=False, proxy_headers=False, limit_concurrency=2000,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._thread: threading.Thread | None = None
        self.address: Address | None = None

    def start(self) -> Address:
        """Listen and serve; where it listens.

        Raises:
            NodeError: ``NET_PORT_IN_USE``.
        """
        family = socket.AF_INET6 if ":" in self._listen.host else socket.AF_INET
        kind = socket.SOCK_STREAM | socket.SOCK_CLOEXEC
        listener = socket.socket(
            family, kind, socket.IPPROTO_TCP
        )  # named, so that answers leave without delay
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._listen.host, self._listen.port))
            listener.listen(512)
        except OSError as error:
            listener.close()
            taken = error.errno == errno.EADDRINUSE
            why = "is taken" if taken else f"cannot be used: {error.strerror or error}"
            raise NodeError(
                Code.NET_PORT_IN_USE, f"The dashboard's address {self._listen.host}:{self._listen.port} {why}.",
                fix="Name another with --dashboard HOST:PORT; port 0 takes any free one.",
            ) from error  # fmt: skip
        self.address = Address(self._listen.host, listener.getsockname()[1])
        gc.collect()
        gc.freeze()  # what is imported stays; looking through it again would hold up answers for a fifth of a second
        self._thread = threading.Thread(target=self._serve, args=(listener,), name="dashboard", daemon=True)
        self._thread.start()
        return self.address

    def stop(self) -> None:
        """End all connections and the thread."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP + 5)
            gc.unfreeze()

    def _serve(self, listener: socket.socket) -> None:
        asyncio.run(self._server.serve([listener]))
        listener.close()
