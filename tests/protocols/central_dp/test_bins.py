"""Bins: public ones without a look at the rows, private ones from a noisy histogram."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow.engine.table import read_table
from hedgerow.privacy.events import DiscreteLaplace
from hedgerow.protocols.central.bins import (
    cell_counts,
    counted_columns,
    edges_from_counts,
    even_edges,
    public_bins,
    with_edges,
)
from hedgerow.protocols.central.dpboost.fit import fit_central
from hedgerow.protocols.central.dpboost.plan import planned_event
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.schema import NumericColumn, Schema


@pytest.mark.parametrize(
    ("column", "n_bins", "edges"),
    [
        (NumericColumn("a", 0.0, 8.0), 4, [2.0, 4.0, 6.0]),
        (NumericColumn("a", -1.0, 1.0), 2, [0.0]),
        (NumericColumn("a", 0, 3, integer=True), 4, [1.0, 2.0, 3.0]),  # a bin for each of 0, 1, 2, 3
        (NumericColumn("a", 0, 3, integer=True), 3, [2.0, 3.0]),
        (NumericColumn("a", 0, 9, integer=True), 5, [2.0, 4.0, 6.0, 8.0]),
        (NumericColumn("a", 0.0, 5e-324), 4, []),  # nothing lies between
    ],
)
def test_even_edges(column, n_bins, edges):
    """Evenly spaced, whole for whole numbers, inside the bounds."""
    assert even_edges(column, n_bins).tolist() == edges


@pytest.mark.parametrize("n_bins", [2, 7, 32, 254])
@pytest.mark.parametrize("integer", [False, True])
def test_never_more_bins_than_asked_for(n_bins, integer):
    """Whatever the bounds are."""
    for low, high in ((0.0, 1.0), (-3.0, 500.0), (1e15, 1e15 + 300.0), (-1e300, 1e300)):
        edges = even_edges(NumericColumn("a", low, high, integer=integer), n_bins)
        assert len(edges) < n_bins
        assert ((edges > low) & (edges <= high)).all()
        assert (np.diff(edges) > 0).all()


def make_schema():
    """Two columns whose edges depend on a histogram, and two whose do not."""
    return Schema.from_public(
        bounds={"a": (0.0, 100.0), "b": (0, 5), "c": (0, 1000)},
        levels={"d": ["u", "v"]},
        integers=["b", "c"],
        may_be_missing=["a"],
        classes=[0, 1],
    )


def make_table(n):
    """Column a crowds near 0, with gaps and values out of bounds."""
    import pandas as pd

    rng = np.random.default_rng(0)
    a = rng.exponential(3.0, n)
    a[0], a[1], a[2] = np.nan, -7.0, 1e9
    return pd.DataFrame(
        {"a": a, "b": rng.integers(0, 6, n), "c": rng.integers(0, 1001, n), "d": rng.choice(["u", "v"], n)}
    )


def test_cells_count_every_value_once():
    """Missing values are in no cell; those out of bounds in the outermost."""
    schema = make_schema()
    assert list(counted_columns(schema, 16)) == [0, 2]
    table = read_table(make_table(500), like=public_bins(schema, 16).features)
    counts = cell_counts(table, counted_columns(schema, 16))
    assert counts.shape == (2, 256)
    assert counts.sum(axis=1).tolist() == [499, 500]
    values = np.asarray(table.columns[0].values[3:], float)
    wanted = np.bincount(np.floor(values / 100 * 256).astype(int), minlength=256)
    wanted[0] += 1
    wanted[255] += 1
    assert counts[0].tolist() == wanted.tolist()


def test_exact_counts_give_quantiles():
    """Edges divide the rows about evenly, up to the size of a cell; nothing counted means evenly spaced."""
    schema = make_schema()
    frame = make_table(5000)
    table = read_table(frame, like=public_bins(schema, 8).features)
    edges = edges_from_counts(cell_counts(table, counted_columns(schema, 16)), counted_columns(schema, 16), 8)
    inside = np.searchsorted(edges[2], frame["c"], side="right")
    assert np.abs(np.bincount(inside) / 5000 - 1 / 8).max() < 0.01
    assert edges[0][-1] < 20.0  # not 87.5, as even spacing has it
    nothing = edges_from_counts(np.zeros((2, 256), np.int64), counted_columns(schema, 16), 8)
    assert np.allclose(nothing[0], np.arange(1, 8) * 12.5, atol=0.4)
    bins = with_edges(public_bins(schema, 8), edges)
    assert [f.n_value_bins for f in bins.features] == [len(edges[0]) + 1, 6, len(edges[2]) + 1, 2]


@pytest.mark.parametrize(("assignment", "sensitivity"), [("independent", 2.0), ("paper", 4.0)])
def test_private_edges_are_paid_for(assignment, sensitivity):
    """L1 sensitivity: one cell of each of the two counted columns; two of each when a record is replaced."""
    schema = make_schema()
    settings = DPBoostSettings(
        epsilon=2.0, binning="private", assignment=assignment, n_trees=2, max_depth=2, clipped_count_share=0.0
    )
    event = planned_event(settings, schema).events[0]
    assert isinstance(event, DiscreteLaplace)
    assert event.sensitivity == sensitivity
    assert event.epsilon == pytest.approx(0.1, rel=1e-6)
    frame = make_table(300)
    y = (frame["c"] > 400).to_numpy().astype(int)
    noisy = fit_central(frame, y, schema, settings, np.random.default_rng(0)).model
    exact_settings = DPBoostSettings(epsilon=math.inf, binning="private", n_trees=2, max_depth=2)
    exact = fit_central(frame, y, schema, exact_settings, np.random.default_rng(0)).model
    table = read_table(frame, like=exact.features)
    wanted = edges_from_counts(cell_counts(table, counted_columns(schema, 16)), counted_columns(schema, 16), 32)
    assert np.array_equal(exact.features[0].edges, wanted[0])
    assert not np.array_equal(noisy.features[0].edges, wanted[0])
