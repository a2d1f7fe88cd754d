from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hedgerow.protocols.central.bins import cells_of, grid_edges, grid_of
from hedgerow.schema import NumericColumn, Schema


def test_a_short_range_of_whole_numbers_has_a_cell_each():
    """17 to 90: every value is alone in its cell, in order."""
    edges = grid_edges(NumericColumn("age", 17, 90, integer=True))
    assert np.searchsorted(edges, np.arange(17, 91), side="right").tolist() == list(range(74))


@pytest.mark.parametrize(
    ("low", "high", "special"), [(0, 99_999, 0), (-40, 0, 0), (-1e6, 3e5, 0), (1, 1000, 1), (-500, -3, -3)]
)
@pytest.mark.parametrize("integer", [False, True])
def test_values_crowd_near_zero(low, high, special, integer):
    """The bound nearer to zero, or zero itself, is separated from what is a thousandth of the range away."""
    edges = grid_edges(NumericColumn("x", low, high, integer))
    width = max((high - low) * 1e-3, 1.0 if integer else 0.0)
    near = [special] + [x for x in (special - width, special + width) if low <= x <= high]
    cells = np.searchsorted(edges, near, side="right")
    assert len(set(cells.tolist())) == len(near)
    assert 100 < len(edges) <= 253 or integer


@given(
    st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda pair: pair[0] < pair[1]), st.booleans()
)
@example((0.0, 5e-324), False)
@example((-5e-324, 0.0), False)
@example((-5e-324, 5e-324), False)
@example((0.0, 1e-315), False)
def test_any_bounds_give_a_usable_grid(bounds, integer):
    """Edges rise strictly, lie inside the bounds and are at most 253."""
    low, high = (np.floor(bounds[0]), np.ceil(bounds[1])) if integer else bounds
    edges = grid_edges(NumericColumn("x", float(low), float(high), integer))
    assert (np.diff(edges) > 0).all()
    assert ((edges > low) & (edges <= high)).all()
    assert len(edges) <= 253


def test_missing_values_have_a_cell_where_the_schema_says_so():
    """One cell more for a column that may be missing; levels have one each."""
    schema = Schema.from_public(
        bounds={"a": (0, 9), "b": (0, 9)}, levels={"c": ["x", "y"]}, integers=["a", "b"], may_be_missing=["b", "c"]
    )
    assert cells_of(schema, grid_of(schema)) == (10, 11, 3)
