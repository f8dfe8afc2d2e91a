"""The least that brings a file through a chain: ``python bare_chain.py ROLE …`` hashes, stores, sends by bare sockets.

Three processes as ours are, without manifests, HTTP, checks or an event loop: what an exchange of a file between them
costs on this machine at least. The client asks for pieces by number over two connections, the relay likewise.
"""

import os
import socket
import struct
import sys
import threading
from pathlib import Path

from blake3 import blake3

PIECE = 4 << 20
READ = 256 << 10
LANES = 2


class Stored:
    """A file, and how many of its pieces are there."""

    def __init__(self, path: Path, size: int) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        self.size = size
        self._there: set[int] = set()
        self._grown = threading.Condition()

    def add(self, index: int) -> None:
        """A piece is there."""
        with self._grown:
            self._there.add(index)
            self._grown.notify_all()

    def wait(self, index: int) -> None:
        """Until a piece is there."""
        with self._grown:
            self._grown.wait_for(lambda: index in self._there)


def serve(stored: Stored) -> None:
    """Answer the numbers of pieces with their bytes, in threads; prints the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        while asked := connection.recv(8):
            (index,) = struct.unpack("<Q", asked)
            stored.wait(index)
            at, end = index * PIECE, min(stored.size, (index + 1) * PIECE)
            while at < end:
                at += os.sendfile(connection.fileno(), stored.descriptor, at, end - at)

    threading.Thread(target=accept, daemon=True).start()
    print(listener.getsockname()[1], flush=True)


def fetch(stored: Stored, port: int) -> None:
    """Bring every piece, hash and store it."""
    pieces = iter(range(-(-stored.size // PIECE)))
    turn = threading.Lock()

    def lane() -> None:
        buffer = memoryview(bytearray(PIECE))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            while True:
                with turn:
                    index = next(pieces, None)
                if index is None:
                    return
                connection.sendall(struct.pack("<Q", index))
                size, at, digest = min(PIECE, stored.size - index * PIECE), 0, blake3()
                while at < size:
                    count = connection.recv_into(buffer[at : min(at + READ, size)])
                    digest.update(buffer[at : at + count])
                    at += count
                digest.digest()
                os.pwrite(stored.descriptor, buffer[:size], index * PIECE)
                stored.add(index)

    lanes = [threading.Thread(target=lane) for _ in range(LANES)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()


def digest_all(stored: Stored) -> None:
    """Hash a file that is there, piece by piece."""
    buffer = memoryview(bytearray(READ))
    for start in range(0, stored.size, PIECE):
        digest = blake3()
        for at in range(start, min(start + PIECE, stored.size), READ):
            digest.update(buffer[: os.preadv(stored.descriptor, [buffer], at)])
        digest.digest()
        stored.add(start // PIECE)


def main(role: str, path: str, size: str, port: str = "0") -> None:
    """Prints the port where it serves; works when it is told to; the client says 0 when the file is there."""
    stored = Stored(Path(path), int(size))
    if role == "client":
        print(0, flush=True)
    else:
        serve(stored)
    sys.stdin.readline()
    if role == "origin":
        digest_all(stored)
    else:
        fetch(stored, int(port))
    if role == "client":
        print(0, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
