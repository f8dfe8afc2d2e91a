"""Commands and events between a daemon and one worker process: JSON lines over a socket pair."""

import json
import select
import socket
from typing import Any

MAX_LINE = 2**20
Line = dict[str, Any]


class Closed(Exception):
    """The daemon has gone."""


class Channel:
    """The worker's end, blocking.

    Args:
        connection: One end of a socket pair.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def send(self, line: Line) -> None:
        """Send one line; a daemon that has gone is noticed by the next `read`."""
        try:
            self._connection.sendall(encode(line))
        except (BrokenPipeError, ConnectionResetError):
            return

    def read(self) -> Line:
        """The next command; waits for it.

        Raises:
            Closed: The other end was closed, or sent more than a line may hold.
        """
        while True:
            line = self._take()
            if line is not None:
                return line
            self._receive()

    def poll(self) -> Line | None:
        """The next command where one has come already; does not wait.

        Raises:
            Closed: As for `read`.
        """
        while True:
            line = self._take()
            if line is not None:
                return line
            if not select.select([self._connection], [], [], 0)[0]:
                return None
            self._receive()

    def _take(self) -> Line | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            return None
        raw = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return decode(raw)

    def _receive(self) -> None:
        data = self._connection.recv(65_536)
        if not data or len(self._buffer) + len(data) > MAX_LINE:
            raise Closed
        self._buffer += data


def encode(line: Line) -> bytes:
    """One line of JSON with its line end. NaN and infinity are sent as JSON's common extension."""
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def decode(raw: bytes) -> Line:
    """The line as a dictionary.

    Raises:
        ValueError: It is none.
    """
    line = json.loads(raw)
    if not isinstance(line, dict):
        raise ValueError("a line between daemon and worker is a JSON object")
    return line
