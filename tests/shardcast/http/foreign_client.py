"""A client of another project's making, written from docs/shardcast.md alone. It imports nothing of ours.

``python foreign_client.py PUBLISHER NAME FILE URL...`` fetches the newest version.
"""

import json
import sys
import time
import urllib.error
import urllib.request

from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


class Wrong(Exception):
    """A server sends what cannot be believed."""


def key_of(peer: str) -> VerifyKey:
    number = 0
    for letter in peer:
        number = number * 58 + ALPHABET.index(letter)
    raw = number.to_bytes(38, "big")
    assert raw[:6] == bytes.fromhex("002408011220")
    return VerifyKey(raw[6:])


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=40) as answer:
        data: bytes = answer.read()
    return data


def digest_of(file: str) -> str:
    with open(file, "rb") as data:
        pieces = b"".join(blake3(piece).digest() for piece in iter(lambda: data.read(8 * 2**20), b""))
        start = blake3(b"shardcast file 1").digest() + data.tell().to_bytes(8, "little")
    return blake3(start + pieces).hexdigest()


class Manifest:
    """The manifest as far as its author signed it."""

    def __init__(self, author: str) -> None:
        self.author, self.key = author, key_of(author)
        self.reset()

    def reset(self, raw: bytes = b"") -> None:
        self.raw, self.believed, self.chained = b"", b"", 0
        self.link = blake3(b"shardcast manifest 2").digest()
        self.header: dict = {}
        self.shards: list[tuple[int, str]] = []
        self.closed = False
        if raw:
            self.feed(raw)

    def feed(self, data: bytes) -> None:
        for line in data.splitlines():
            fields = json.loads(line)
            if json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() != line:
                raise Wrong("a line is not canonical")
            self.raw += line + b"\n"
            if fields["record"] == "signature":
                if fields["peer"] == self.author and fields["after"] == self.chained:
                    signed = b"shardcast manifest signature 2\0" + self.link
                    self.key.verify(signed, bytes.fromhex(fields["signature"]))
                    self.believed = self.raw
                continue
            self.link = blake3(self.link + line).digest()
            self.chained += 1
            if fields["record"] == "header":
                self.header, self.name = fields, self.link.hex()
            elif fields["record"] == "shard":
                if fields["index"] != len(self.shards):
                    raise Wrong("a shard is out of order")
                self.shards.append((fields["size"], fields["blake3"]))
            else:
                self.closed, self.result = fields["shards"] == len(self.shards), fields["result"]


def main(author: str, name: str, file: str, *urls: str) -> None:
    found: dict[str, list[str]] = {}
    newest = (-1, "")
    for url in urls:
        try:
            listed = json.loads(get(f"{url}/versions"))["versions"]
        except (OSError, ValueError):
            continue
        for entry in listed:
            if entry["name"] == name and entry["author"] == author:
                found.setdefault(entry["object"], []).append(url)
                newest = max(newest, (entry["serial"], entry["object"]))
    wanted, servers = newest[1], found[newest[1]]
    manifest = Manifest(author)
    while not (manifest.closed and manifest.believed == manifest.raw):
        try:
            manifest.feed(get(f"{servers[0]}/manifests/{wanted}?from={len(manifest.raw)}&wait=20"))
            if manifest.name != wanted or manifest.header["name"] != name:
                raise Wrong("it is another manifest")
        except (Wrong, OSError, ValueError, KeyError, BadSignatureError):
            servers = servers[1:] + servers[:1]
            manifest.reset(manifest.believed)
            time.sleep(0.05)
    with open(file, "wb") as out:
        for index, (size, digest) in enumerate(manifest.shards):
            for attempt in range(100):
                try:
                    data = get(f"{servers[(index + attempt) % len(servers)]}/shards/{digest}")
                    if len(data) == size and blake3(data).hexdigest() == digest:
                        break
                except (OSError, ValueError):
                    time.sleep(0.05)
            else:
                raise Wrong(f"nobody has shard {index}")
            out.write(data)
    if digest_of(file) != manifest.result:
        raise Wrong("the publisher names another file than it publishes")


if __name__ == "__main__":
    main(*sys.argv[1:])
