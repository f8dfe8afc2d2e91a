"""How a node is seen: it asks a peer to call back.

The question names two ports and the fingerprint of the data plane's certificate; the peer tries both at the address
that the question's own connection comes from, at no other, so that nobody can send it against a third. A data plane
shows itself by its certificate, a directory by the greeting of its protocol: a router that answers itself is neither.
"""

import asyncio
import ssl
from collections.abc import Callable
from hashlib import sha256

from protocol.paths.choice import Seen
from protocol.paths.limits import ASK, CALL_BACK, CALL_BACK_EVERY, MAX_CALL_BACKS
from protocol.paths.lines import hear, tell
from protocol.paths.pipe import Duplex

PROTOCOL = "/intellect/seen/1"

_GREETING = b"\x13/multistream/1.0.0\n"
_REMEMBERED = 4096


async def ask(peer: str, stream: Duplex, *, data: int, directory: int, fingerprint: bytes) -> Seen:
    """Asks over a stream that was opened to a peer.

    Args:
        peer: Its peer id.
        stream: The stream; closed at the end.
        data: This node's data port.
        directory: Its directory port.
        fingerprint: SHA-256 of its data plane's certificate.

    Raises:
        ValueError: The answer is none.
        OSError, TimeoutError: It does not come.
    """
    question = {"data": data, "directory": directory, "fingerprint": fingerprint.hex()}
    try:
        async with asyncio.timeout(ASK.total_seconds()):
            await tell(stream, question)
            answer = await hear(stream)
            words = {key: _text(answer, key) for key in ("host", "data", "directory")}
            return Seen(peer, **words, relay=answer.get("relay") is True)
    finally:
        stream.close()


class CallBack:
    """Answers such questions.

    Args:
        clock: Gives seconds that never go back.
        relay: Whether this node is a relay.
    """

    def __init__(self, clock: Callable[[], float], *, relay: bool) -> None:
        self._clock = clock
        self._relay = relay
        self._running = 0
        self._asked: dict[str, float] = {}

    async def answer(self, peer: str, host: str | None, stream: Duplex) -> None:
        """Answers one question and closes its stream.

        Args:
            peer: Who asks, verified.
            host: The address that the stream's connection comes from; None for one that came through a relay.
            stream: The stream.
        """
        try:
            if self._running < MAX_CALL_BACKS and self._may(peer):
                self._running += 1
                try:
                    async with asyncio.timeout(ASK.total_seconds()):
                        await tell(stream, await self._look(host, await hear(stream)))
                finally:
                    self._running -= 1
        except (ValueError, OSError, TimeoutError):
            pass  # a bad question gets no answer
        finally:
            stream.writer.close()

    def _may(self, peer: str) -> bool:
        now = self._clock()
        last = self._asked.get(peer)
        if last is not None and now - last < CALL_BACK_EVERY.total_seconds():
            return False
        self._asked.pop(peer, None)
        self._asked[peer] = now  # last: the order is by time
        if len(self._asked) > _REMEMBERED:
            del self._asked[next(iter(self._asked))]
        return True

    async def _look(self, host: str | None, question: dict[str, object]) -> dict[str, object]:
        if host is None:
            wrong = "the question came through a relay"
            return {"host": "", "data": wrong, "directory": wrong, "relay": self._relay}
        data, directory = _port(question, "data"), _port(question, "directory")
        fingerprint = bytes.fromhex(_text(question, "fingerprint"))
        found = await asyncio.gather(data_plane(host, data, fingerprint), directory_port(host, directory))
        return {"host": host, "data": found[0], "directory": found[1], "relay": self._relay}


async def data_plane(host: str, port: int, fingerprint: bytes) -> str:
    """Why the data plane with that certificate does not answer there; empty if it does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate itself is compared
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(CALL_BACK.total_seconds()):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.transport.abort()
    except (OSError, TimeoutError) as error:
        return _why(error)
    return (
        "" if shown is not None and sha256(shown).digest() == fingerprint else "somebody else answers there"
    )


async def directory_port(host: str, port: int) -> str:
    """Why no directory answers there; empty if one does."""
    try:
        async with asyncio.timeout(CALL_BACK.total_seconds()):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                greeting = await reader.readexactly(len(_GREETING))
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        return _why(error)
    return "" if greeting == _GREETING else "somebody else answers there"


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CALL_BACK.total_seconds():g} s"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    return f"{getattr(error, 'strerror', None) or type(error).__name__}"[:100]


def _text(found: dict[str, object], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"no text {key}")
    return value[:200]


def _port(found: dict[str, object], key: str) -> int:
    value = found.get(key)
    if type(value) is not int or not 0 < value < 65536:
        raise ValueError(f"no port {key}")
    return value
