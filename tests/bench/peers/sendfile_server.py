"""The least that serves a file over HTTP: ``python sendfile_server.py FILE`` prints its port and sends by sendfile."""

import os
import socket
import sys
import threading
from pathlib import Path


def serve(path: Path) -> None:
    """Answer every request with the file, a thread for each connection."""
    size = path.stat().st_size
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection, path, size), daemon=True).start()


def _answer(connection: socket.socket, path: Path, size: int) -> None:
    with connection, path.open("rb") as file:
        while b"\r\n\r\n" not in connection.recv(65536):
            pass
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % size)
        at = 0
        while at < size:
            at += os.sendfile(connection.fileno(), file.fileno(), at, size - at)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
