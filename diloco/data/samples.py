"""Tokens of a run and the order in which its samples stand: a position says which sample, the same on every node.

Positions 0, 1, 2, … run through the training windows in an order that is shuffled anew in each epoch, so a range of
positions can be leased to a member (docs/architecture.md, data) and no draw of any process matters.
"""

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from diloco.data.corpus import Corpus
from diloco.data.tokenizer import END, load_tokenizer
from diloco.genesis import Genesis
from protocol.errors import Code, NodeError
from protocol.files import write_whole

_HEADER = struct.Struct(
    "<8sQQQ32s"
)  # magic, bytes per token, training tokens, validation tokens, digest of the rest
_MAGIC = b"tokens 1"


class Tokens:
    """The two token streams of a run.

    Attributes:
        train: uint16 or uint32, what is trained on; documents end with the end mark.
        validation: The same for what is held out.
    """

    def __init__(
        self, train: npt.NDArray[np.unsignedinteger], validation: npt.NDArray[np.unsignedinteger]
    ) -> None:
        self.train = train
        self.validation = validation


def load_tokens(genesis: Genesis, corpus: Corpus, folder: Path) -> Tokens:
    """Tokens of the run, from the cache in `folder` where it is whole, else made and stored there.

    Args:
        genesis: The run.
        corpus: Its files on this node.
        folder: Where the cache lies; a damaged cache is replaced.

    Raises:
        NodeError: TRN_DATA when a file is missing or the corpus is shorter than one sample.
    """
    path = folder / f"tokens-{_cache_key(genesis)}.bin"
    tokens = _read_cache(path)
    if tokens is None:
        dtype = np.dtype("<u2") if genesis.sections.model.vocab <= 2**16 else np.dtype("<u4")
        train, validation = (_tokenize(genesis, corpus, part, dtype) for part in ("train", "validation"))
        body = train.tobytes() + validation.tobytes()
        head = _HEADER.pack(_MAGIC, dtype.itemsize, len(train), len(validation), blake3(body).digest())
        write_whole(path, [head, body])
        tokens = Tokens(train, validation)
    shortest = min(len(tokens.train), len(tokens.validation))
    if shortest < genesis.sections.model.context + 1:
        raise NodeError(
            Code.TRN_DATA,
            f"A part of the corpus has {shortest} tokens, fewer than one sample of context + 1.",
            fix="Give the run more text or a shorter context.",
        )
    return tokens


class Samples:
    """Samples by position.

    Args:
        tokens: The run's tokens.
        context: Tokens that the model sees; a sample has one more, the last one's target.
        seed: The run's seed.
    """

    def __init__(self, tokens: Tokens, context: int, seed: int) -> None:
        self._tokens = tokens
        self._context = context
        self._seed = seed
        self._epoch = -1
        self._order: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.count = (len(tokens.train) - 1) // context
        """Samples of one epoch."""

    def sample(self, position: int) -> npt.NDArray[np.int64]:
        """The sample at a position of the run.

        Args:
            position: 0 or more.

        Returns:
            int64[context + 1]; a pure function of tokens, seed and position.
        """
        epoch, index = divmod(position, self.count)
        if epoch != self._epoch:
            self._order, self._epoch = _permutation(self._seed, epoch, self.count), epoch
        start = int(self._order[index]) * self._context
        return self._tokens.train[start : start + self._context + 1].astype(np.int64)

    def validation(self, wanted: int) -> npt.NDArray[np.int64]:
        """Held-out samples, spread evenly, always the same ones.

        Args:
            wanted: How many; fewer come where the slice has fewer.

        Returns:
            int64[at most wanted, context + 1].
        """
        stream = self._tokens.validation
        available = (len(stream) - 1) // self._context
        count = min(wanted, available)
        starts = [available * each // count * self._context for each in range(count)]
        return np.stack([stream[start : start + self._context + 1].astype(np.int64) for start in starts])


def _permutation(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """Order of an epoch: the ranks of raw Philox numbers, whose stream numpy promises never to change."""
    key = blake3(f"{seed} {epoch}".encode(), derive_key_context="diloco sample order 1").digest(16)
    raw = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(count)
    return np.argsort(raw, kind="stable").astype(np.int64)


def _tokenize(
    genesis: Genesis, corpus: Corpus, part: str, dtype: np.dtype
) -> npt.NDArray[np.unsignedinteger]:
    tokenizer = load_tokenizer(genesis.tokenizer, genesis.sections.model.vocab)
    end = np.array([tokenizer.token_to_id(END)], dtype)
    pieces: list[npt.NDArray[np.unsignedinteger]] = []
    # One text at a time: an encoding holds offsets and strings too, many times the size of its ids.
    for document in corpus.documents(part):
        pieces += [np.array(tokenizer.encode(document, add_special_tokens=False).ids, dtype), end]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype)


def _cache_key(genesis: Genesis) -> str:
    hasher = blake3(genesis.tokenizer.encode(), derive_key_context="diloco token cache 1")
    for file in genesis.files:
        hasher.update(f"{file.name} {file.digest} {file.part}\n".encode())
    return str(hasher.hexdigest()[:16])


def _read_cache(path: Path) -> Tokens | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
        body = np.memmap(path, np.uint8, "r", offset=_HEADER.size)
        magic, width, train, validation, digest = _HEADER.unpack(head)
    except (OSError, ValueError, struct.error):
        return None
    if magic != _MAGIC or width not in (2, 4) or len(body) != width * (train + validation):
        return None
    if blake3(body.data).digest() != digest:
        return None
    tokens = body.view(f"<u{width}")
    return Tokens(tokens[:train], tokens[train:])
