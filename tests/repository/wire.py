"""``python -m tests.repository.wire``: write docs/wire.md and the schema from the message classes."""

# ruff: noqa: E501 - a page's text is wrapped where the page is

from pathlib import Path

from node.extensions import system_messages, system_schema
from node.messages_cli import direction
from protocol import limits
from protocol.envelope import DOMAIN, Header
from protocol.messages import Spec, describe, spec_of
from protocol.messages.describe import bounds
from protocol.messages.exporting import FOLDER, export, golden_of
from protocol.messages.schema import area_of
from protocol.rpc.channel import METHOD_PREFIX, VERSION_KEY
from protocol.rpc.faults import CODE_KEY, FIX_KEY, RETRY_KEY

PAGE = Path(__file__).parent.parent.parent / "docs" / "wire.md"

HEAD = f"""\
# The wire

Written by `make docs` from the message classes; a test fails when it is stale. Implementations in other languages
start from the `.proto` files in [protocol/schema](../protocol/schema), which say the same.

## Encoding

A message is standard proto3. Fields of a newer version are kept and passed on. A node of version *n* of a message
understands versions *n* − 1 to *n* + 1: between two versions a message only gains fields that may be left out.
A value beyond a bound below is refused, and nothing is read of an encoding beyond its message's size.

## Calls

Peers speak gRPC (HTTP/2) over TLS, both ends with a self-signed P-256 certificate that the node's Ed25519 key has
signed in its directory record. A message or request named `area.name` is the method `{METHOD_PREFIX}area.name`: unary, or with
a stream of questions, replies, or both. Control and bulk messages use two connections. The bytes of a call are

- on the control plane an envelope for each question, the bare encoding for each reply;
- on the bulk plane the bare encoding both ways, with the header `{VERSION_KEY}` where the version is not 1.

A call that is refused ends with the status ABORTED, the reason as its text and, in the trailing metadata, `{CODE_KEY}` (a code of
[troubleshooting.md](troubleshooting.md)), `{RETRY_KEY}` (`1` if the same call may succeed later) and, where there is a better hint than
the code's own, `{FIX_KEY}`. A node that does not know a message answers UNIMPLEMENTED.

| bound | value |
|---|---|
| largest control message, bulk message, topic | {limits.MAX_CONTROL}, {limits.MAX_BULK}, {limits.MAX_TOPIC} |
| calls under way of one peer, of all | {limits.MAX_CALLS_PER_PEER}, {limits.MAX_CALLS} |
| connections | {limits.MAX_CONNECTIONS} |
| unverified attempts of one address or peer before more are refused unread | {limits.STRANGER_BURST}, {limits.STRANGER_PER_SECOND:g}/s come back |
| a stream that nobody reads | given up after {limits.STALL.total_seconds():g} s |

## Envelope

    1 byte length of the signature | signature | 2 bytes length of the header (little-endian) | header | payload

The Ed25519 signature is made over the text “intellect-node envelope 1”, a zero byte, and the header's bytes as they are. The header is
protobuf; `domain` is `{DOMAIN}`, `payload` the BLAKE3 hash of the payload. An envelope without a recipient is a *statement*:
it may be passed on. One with a recipient is good once: `boot` is 16 random bytes of the sender's process, `sequence` its counter
towards the recipient, and a window of {limits.REPLAY_WINDOW} is kept. A topic's is a statement with `boot` and a `sequence` per topic.
An envelope is checked in this order: size, domain, the header's bounds, name, version, run, recipient, payload
hash and signature; only then is the message decoded.
"""


def render() -> str:
    """The page's text."""
    lines = [HEAD, *_fields(spec_of(Header)), ""]
    area = ""
    for spec in system_messages():
        if area_of(spec) != area:
            area = area_of(spec)
            lines += [f"## {area}", ""]
        lines += _message(spec)
    return "\n".join(lines).rstrip() + "\n"


def _message(spec: Spec) -> list[str]:
    said = [line.strip() for line in spec.doc.splitlines()]
    doc = said[: said.index("Attributes:")] if "Attributes:" in said else said
    limit = f"{spec.max_bytes}, {spec.rate}"
    if spec.timeout is not None:
        limit += f", {spec.timeout.total_seconds():g} s"
    lines = [
        f"### {spec.name}",
        "",
        " ".join(doc).strip(),
        "",
        f"Version {spec.version} · {direction(spec).replace('->', '→')} · from {spec.audience} · {spec.plane} · {limit}",
        "",
        *_fields(spec),
        "",
    ]
    example = golden_of(spec)["bytes"]
    if example:
        lines += [f"Example: `{example}`", ""]
    return lines


def _fields(spec: Spec) -> list[str]:
    rows = describe(spec.cls)["fields"]
    if not rows:
        return ["No fields."]
    lines = ["| number | field | type | bound |", "|---|---|---|---|"]
    parts: list[Spec] = []
    for row, field in zip(rows, spec.fields, strict=True):
        lines.append(
            f"| {row['number']} | `{row['name']}` | {row['type'].replace('<', '&lt;')} | {bounds(row)} |"
        )
        if field.kind == "message" and spec_of(field.python) not in parts:
            parts.append(spec_of(field.python))
    for inner in parts:
        lines += ["", f"`{inner.cls.__name__}`:", "", *_fields(inner)]
    return lines


if __name__ == "__main__":
    export(FOLDER, system_schema())
    PAGE.write_text(render(), encoding="utf-8")
