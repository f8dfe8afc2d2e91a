"""How an error crosses a connection: code, hint and sentence in the trailing metadata, and back into a NodeError."""

import grpc
import grpc.aio

from protocol import limits
from protocol.errors import CATALOGUE, Code, NodeError
from protocol.units import PeerId

CODE_KEY = "intellect-code"
RETRY_KEY = "intellect-retriable"
FIX_KEY = "intellect-fix-bin"

_BY_STATUS = {
    grpc.StatusCode.UNAVAILABLE: (Code.NET_UNREACHABLE, "cannot be reached"),
    grpc.StatusCode.CANCELLED: (Code.NET_UNREACHABLE, "ended the call"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (Code.NET_TIMEOUT, "did not answer in time"),
    grpc.StatusCode.UNIMPLEMENTED: (Code.NET_UNKNOWN_MESSAGE, "does not know the message"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (Code.WIRE_TOO_LARGE, "and this node disagree on a message's size"),
}


async def abort(context: "grpc.aio.ServicerContext[bytes, bytes]", error: NodeError) -> None:
    """Ends a call on the server's side with an error. Always raises."""
    trailing: list[tuple[str, str | bytes]] = [
        (CODE_KEY, str(error.code)),
        (RETRY_KEY, str(int(error.retriable))),
    ]
    if error.fix != CATALOGUE[error.code].fix:
        trailing.append((FIX_KEY, _utf8(error.fix)))
    context.set_trailing_metadata(tuple(trailing))
    await context.abort(grpc.StatusCode.ABORTED, _utf8(error.sentence).decode())


def from_call(error: grpc.aio.AioRpcError, peer: PeerId, name: str) -> NodeError:
    """The error of a call as the caller sees it."""
    details = _printable(error.details() or "")
    said = {key: _text(value) for key, value in error.trailing_metadata() or ()}
    if CODE_KEY in said:
        fix = _printable(said[FIX_KEY]) if FIX_KEY in said else None
        try:
            code, retriable = Code(said[CODE_KEY]), None
        except ValueError:  # of a newer version, which says at least whether trying again may help
            code, retriable = Code.NET_INTERNAL, said.get(RETRY_KEY) == "1"
            details = f"{_printable(said[CODE_KEY])[:16]}: {details}"
        return NodeError(code, details, fix=fix, peer=peer, message=name, retriable=retriable)
    if error.code() is grpc.StatusCode.UNAVAILABLE and _refused_in_handshake(details):
        return NodeError(
            Code.NET_UNTRUSTED,
            f"Peer {peer} closed the connection while it was made: it may not know this node's certificate yet.",
            peer=peer,
            message=name,
        )
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" not in details:
        return NodeError(
            Code.NET_BUSY, f"Peer {peer} serves too many calls already: {name}.", peer=peer, message=name
        )
    code, what = _BY_STATUS.get(error.code(), (Code.NET_INTERNAL, "answered with an error"))
    reason = f" ({details})" if details else ""
    return NodeError(code, f"Peer {peer} {what}: {name}{reason}.", peer=peer, message=name)


def _utf8(text: str) -> bytes:
    """A sentence as it travels; the name of a file may hold what is no Unicode text."""
    return text[: limits.MAX_SENTENCE].encode("utf-8", "replace")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _refused_in_handshake(details: str) -> bool:
    """Whether a connection was accepted and then closed before it was usable, as a server does to a stranger."""
    lowered = details.lower()
    ours = ("timeout", "timed out", "endpoint closing")  # this side gave up
    if "failed to connect" not in lowered or any(sign in lowered for sign in ours):
        return False
    return any(
        sign in lowered for sign in ("socket closed", "connection reset", "handshake", "certificate", "ssl")
    )


def _printable(text: str) -> str:
    """Another peer's words, safe to show: no control characters, not endless."""
    return "".join(letter if letter.isprintable() else " " for letter in text[: limits.MAX_SENTENCE])
