"""The corpus among members: a node whose Python has other files fetches the run's from members, checked by digest."""

import asyncio
from pathlib import Path

from diloco.data.corpus import Corpus
from diloco.genesis import Genesis
from diloco.member.setting import Emit
from node.network import Network
from protocol.errors import Code, NodeError
from protocol.files import write_whole
from shardcast.building import build_manifest
from shardcast.client import fetch
from shardcast.expect import Expect
from shardcast.manifest import Manifest
from shardcast.shelf import Shelf

NAME = "corpus"
_FILE = "corpus.bin"


async def share_corpus(
    genesis: Genesis, corpus: Corpus, folder: Path, network: Network, shelf: Shelf, emit: Emit
) -> None:
    """Make sure that every file of the run is here, corpus and initial weights, then offer them all as one object.

    Its shards are the files in the genesis' order, so the genesis alone says which bytes are right.

    Raises:
        NodeError: ``TRN_DATA`` when files are missing here and no member has them.
    """
    if not genesis.files:
        return
    missing = await asyncio.to_thread(corpus.missing)
    path = folder / _FILE
    if missing:
        await _fetch(genesis, corpus, path, network, emit, len(missing))
    if genesis.weights is not None:  # an export may need them when the run file is gone
        await asyncio.to_thread(corpus.keep, genesis.weights)
    await asyncio.to_thread(_offer, genesis, corpus, path, shelf)


async def _fetch(
    genesis: Genesis, corpus: Corpus, path: Path, network: Network, emit: Emit, count: int
) -> None:
    sizes = [file.size for file in genesis.files]
    expect = Expect(shard_hashes=[bytes.fromhex(file.digest) for file in genesis.files], shard_sizes=sizes)
    emit("corpus.fetching", files=count)
    while True:
        try:
            await fetch(network.endpoint, NAME, network.peers(), path, expect)
            break
        except NodeError as error:
            if not error.retriable:
                raise
            emit("corpus.waits", code=str(Code.TRN_DATA), reason=error.sentence)
            await asyncio.sleep(1.0)
    await asyncio.to_thread(_unpack, genesis, corpus, path)


def _unpack(genesis: Genesis, corpus: Corpus, path: Path) -> None:
    with open(path, "rb") as file:
        for entry in genesis.files:
            corpus.accept(entry, file.read(entry.size))


def _offer(genesis: Genesis, corpus: Corpus, path: Path, shelf: Shelf) -> None:
    manifest = _whole(genesis, path)
    if manifest is None:
        shelf.remove(NAME)  # it shares its bytes with the file
        write_whole(path, (corpus.read(file) for file in genesis.files))
        manifest = build_manifest(path, NAME, [file.size for file in genesis.files])
    shelf.add(manifest, path)


def _whole(genesis: Genesis, path: Path) -> Manifest | None:
    """What describes the file of the whole corpus; None when it is not there or damaged."""
    try:
        manifest = build_manifest(path, NAME, [file.size for file in genesis.files])
    except NodeError:
        return None
    digests = [bytes.fromhex(file.digest) for file in genesis.files]
    return manifest if [shard.digest for shard in manifest.shards] == digests else None
