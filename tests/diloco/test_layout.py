"""The flat layout and its grid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco.layout import Grid, Layout
from protocol.errors import Code, NodeError

SHAPES = [("embed", (10, 4)), ("norm", (4,)), ("scale", ()), ("head", (3, 2, 4))]


def test_parameters_lie_in_declaration_order_without_gaps() -> None:
    layout = Layout.of(SHAPES)
    assert [(slot.name, slot.offset, slot.size) for slot in layout.parameters] == [
        ("embed", 0, 40),
        ("norm", 40, 4),
        ("scale", 44, 1),
        ("head", 45, 24),
    ]
    assert layout.size == 69
    assert layout.slot("head").shape == (3, 2, 4)


def test_views_are_row_major_and_share_memory() -> None:
    layout = Layout.of(SHAPES)
    flat = np.arange(layout.size, dtype=np.float32)
    views = dict(layout.views(flat))
    assert views["embed"][2, 3] == 11
    assert views["head"][1, 0, 2] == 45 + 8 + 2
    views["norm"][:] = -1
    assert (flat[40:44] == -1).all()
    with pytest.raises(ValueError, match="69 values"):
        dict(layout.views(flat[1:]))


def test_the_rows_of_uneven_shards_cover_a_parameter_once() -> None:
    slot = Layout.of(SHAPES).slot("embed")
    shards = [slot.rows(0, 4), slot.rows(4, 4), slot.rows(8, 2)]
    assert [(part.start, part.stop) for part in shards] == [(0, 16), (16, 32), (32, 40)]
    with pytest.raises(ValueError, match="has 10 rows"):
        slot.rows(8, 3)


def test_the_digest_tells_order_names_and_shapes_apart() -> None:
    variants = [
        SHAPES,
        SHAPES[::-1],
        [("embedding", (10, 4)), *SHAPES[1:]],
        [("embed", (4, 10)), *SHAPES[1:]],
        [("embed", (40,)), *SHAPES[1:]],
    ]
    assert len({Layout.of(variant).digest for variant in variants}) == len(variants)
    assert Layout.of(SHAPES).digest == Layout.of(iter(SHAPES)).digest


@pytest.mark.parametrize(
    "shapes", [[], [("a", (0,))], [("a", (2,)), ("a", (2,))], [("", (2,))], [("a", (-2, 3))]]
)
def test_what_is_no_layout_is_refused(shapes: list) -> None:
    with pytest.raises(NodeError) as caught:
        Layout.of(shapes)
    assert caught.value.code == Code.TRN_MODEL


@given(size=st.integers(1, 10_000), blocks=st.integers(1, 8))
def test_chunks_cover_the_vector_once_and_begin_at_blocks(size: int, blocks: int) -> None:
    grid = Grid(size, 256 * blocks)
    parts = list(grid.slices())
    assert len(parts) == grid.count
    assert [index for part in parts for index in range(part.start, part.stop)] == list(range(size))
    assert all(part.start % 256 == 0 for part in parts)
    assert sum(grid.length(index) for index in range(grid.count)) == size


def test_a_grid_that_cuts_blocks_or_has_no_value_is_refused() -> None:
    for size, chunk in ((10, 255), (10, 0), (10, -256), (0, 256)):
        with pytest.raises(ValueError, match=r"must be a positive multiple|at least one value"):
            Grid(size, chunk)
    with pytest.raises(IndexError):
        Grid(1000, 256).slice(4)
    with pytest.raises(IndexError):
        Grid(1000, 256).slice(-1)
