"""Merkle trees over BLAKE3 digests: one root commits to all chunks, a short proof shows one of them.

Pairs are hashed level by level; a last one without partner moves up as it is. The root also binds the number
of leaves, so that a proof holds for one position of one tree only. Leaves, inner nodes and roots have their
own keys.
"""

from collections.abc import Sequence

from blake3 import blake3

from protocol.units import Digest

_LEAF = "intellect-node merkle leaf v1"
_NODE = "intellect-node merkle node v1"
_ROOT = "intellect-node merkle root v1"
_DIGEST_BYTES = 32


def leaf(index: int, data: bytes | bytearray | memoryview) -> Digest:
    """Digest of one encoded chunk at its place.

    Args:
        index: Its number, below 2**64.
        data: Its bytes.
    """
    hasher = blake3(index.to_bytes(8, "little"), derive_key_context=_LEAF)
    return Digest(hasher.update(data).digest())


def root(leaves: Sequence[bytes]) -> Digest:
    """The root of a tree with these leaves, 32 bytes each.

    Raises:
        ValueError: No leaf, or one of another length.
    """
    return _root(_levels(leaves)[-1][0], len(leaves))


def proof(leaves: Sequence[bytes], index: int) -> tuple[Digest, ...]:
    """The siblings on the way from leaf ``index`` to the top, lowest first.

    Raises:
        ValueError: No leaf, or one of another length.
        IndexError: There is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf {index} of {len(leaves)}")
    siblings = []
    for level in _levels(leaves)[:-1]:
        sibling = index ^ 1
        if sibling < len(level):
            siblings.append(Digest(level[sibling]))
        index //= 2
    return tuple(siblings)


def check(root: bytes, leaf: bytes, index: int, count: int, proof: Sequence[bytes]) -> bool:
    """Whether ``leaf`` is number ``index`` of the ``count`` leaves under ``root``.

    Never raises: proof and numbers may come from anyone.
    """
    if not 0 <= index < count or any(len(digest) != _DIGEST_BYTES for digest in (leaf, *proof)):
        return False
    siblings = iter(proof)
    node, width = leaf, count
    while width > 1:
        if index ^ 1 < width:
            sibling = next(siblings, None)
            if sibling is None:
                return False
            node = _node(sibling, node) if index & 1 else _node(node, sibling)
        index //= 2
        width = (width + 1) // 2
    return next(siblings, None) is None and _root(node, count) == root


def _levels(leaves: Sequence[bytes]) -> list[Sequence[bytes]]:
    if not leaves or any(len(digest) != _DIGEST_BYTES for digest in leaves):
        raise ValueError("a tree needs at least one leaf, and leaves of 32 bytes")
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above: list[bytes] = [_node(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)]
        if len(below) % 2:
            above.append(below[-1])
        levels.append(above)
    return levels


def _node(left: bytes, right: bytes) -> Digest:
    return Digest(blake3(left + right, derive_key_context=_NODE).digest())


def _root(top: bytes, count: int) -> Digest:
    return Digest(blake3(count.to_bytes(8, "little") + top, derive_key_context=_ROOT).digest())
