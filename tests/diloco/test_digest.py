"""State digests and Merkle trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco import digest, merkle
from diloco.golden import pattern
from diloco.layout import Grid

PARAMS, MOMENTUM = pattern(1, 1000), pattern(2, 1000)
GRID = Grid(1000, 256)


def test_equal_states_have_equal_digests_and_every_bit_counts() -> None:
    base = digest.state_digest(3, PARAMS, MOMENTUM, GRID)
    assert base == digest.state_digest(3, PARAMS.copy(), MOMENTUM.copy(), GRID)
    flipped = PARAMS.copy()
    flipped.view(np.uint32)[999] ^= 1
    others = [
        digest.state_digest(4, PARAMS, MOMENTUM, GRID),
        digest.state_digest(3, flipped, MOMENTUM, GRID),
        digest.state_digest(3, MOMENTUM, PARAMS, GRID),
        digest.state_digest(3, PARAMS, flipped, GRID),
        digest.state_digest(3, PARAMS, MOMENTUM, Grid(1000, 512)),
        digest.state_digest(3, PARAMS, MOMENTUM, GRID, schedule=b"lr"),
    ]
    assert len({base, *others}) == 7


def test_negative_zero_is_another_state_than_zero() -> None:
    zeros = np.zeros(1000, np.float32)
    assert digest.parameters_digest(zeros) != digest.parameters_digest(-zeros)
    assert digest.parameters_digest(zeros) != digest.momentum_digest(zeros)


def test_the_leaves_show_which_chunks_differ_and_give_the_digest() -> None:
    changed = MOMENTUM.copy()
    changed[600] += 1
    ours, theirs = digest.leaves(PARAMS, MOMENTUM, GRID), digest.leaves(PARAMS, changed, GRID)
    assert [index for index in range(GRID.count) if ours[index] != theirs[index]] == [2]
    assert digest.digest_of_leaves(3, ours, GRID) == digest.state_digest(3, PARAMS, MOMENTUM, GRID)
    part = GRID.slice(2)
    assert digest.leaf(2, PARAMS[part], MOMENTUM[part]) == ours[2]
    assert digest.leaf(1, PARAMS[part], MOMENTUM[part]) != ours[2]


def test_vectors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="1000 values"):
        digest.state_digest(0, PARAMS[:-1], MOMENTUM, GRID)
    with pytest.raises(ValueError, match="differ in shape"):
        digest.leaf(0, PARAMS, MOMENTUM[:-1])
    with pytest.raises(ValueError, match="4 chunks"):
        digest.digest_of_leaves(0, digest.leaves(PARAMS, MOMENTUM, GRID)[:-1], GRID)
    with pytest.raises(TypeError, match="float64"):
        digest.parameters_digest(PARAMS.astype(np.float64))


@settings(max_examples=80, deadline=None)
@given(count=st.integers(1, 40), data=st.data())
def test_a_proof_holds_for_its_leaf_place_and_tree_only(count: int, data: st.DataObject) -> None:
    leaves = [merkle.leaf(index, bytes([index])) for index in range(count)]
    root = merkle.root(leaves)
    index = data.draw(st.integers(0, count - 1))
    proof = merkle.proof(leaves, index)
    assert len(proof) <= max(1, (count - 1).bit_length())
    assert merkle.check(root, leaves[index], index, count, proof)
    for other in range(count):
        assert merkle.check(root, leaves[index], other, count, proof) == (other == index)
        assert merkle.check(root, leaves[other], index, count, proof) == (other == index)
    assert not merkle.check(root, leaves[index], index, count + 1, proof)
    assert not merkle.check(root, leaves[index], index, count, (*proof, leaves[0]))
    assert not merkle.check(root, leaves[index], index, count, proof[:-1]) or not proof


def test_bad_proofs_are_false_and_never_raise() -> None:
    leaves = [merkle.leaf(index, b"chunk") for index in range(5)]
    root, proof = merkle.root(leaves), merkle.proof(leaves, 4)
    assert merkle.check(root, leaves[4], 4, 5, proof)
    assert not merkle.check(root, leaves[4], -1, 5, proof)
    assert not merkle.check(root, leaves[4], 5, 5, proof)
    assert not merkle.check(root, leaves[4], 0, 0, proof)
    assert not merkle.check(root, b"short", 4, 5, proof)
    assert not merkle.check(root, leaves[4], 4, 5, (b"short",))
    assert not merkle.check(root, leaves[4], 4, 2**64 + 5, proof)
    assert merkle.check(merkle.root(leaves[:1]), leaves[0], 0, 1, ())


def test_a_tree_needs_leaves_of_32_bytes() -> None:
    for wrong in ([], [b"short"]):
        with pytest.raises(ValueError, match="at least one leaf"):
            merkle.root(wrong)
    with pytest.raises(IndexError):
        merkle.proof([bytes(32)], 1)
