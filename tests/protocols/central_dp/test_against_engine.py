"""Without noise, the sequential baseline is the plain engine, to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow.engine.boosting import train
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import read_table
from hedgerow.protocols.central.bins import public_bins
from hedgerow.protocols.central.dpboost.fit import fit_central
from hedgerow.protocols.central.dpboost.settings import GRADIENT_BITS, DPBoostSettings
from hedgerow.schema import Schema


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("l2", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("n_rows", [40, 600, 5000])
def test_trees_of_the_engine(missing, l2, n_rows):
    """Features, bins, thresholds, missing directions, shapes, leaf values, predictions."""
    rng = np.random.default_rng(n_rows)
    X = rng.normal(size=(n_rows, 6))
    X[:, 1] = rng.integers(0, 5, n_rows)
    X[:, 5] = X[:, 0]  # a copy: every tie goes to the lower feature
    y = (X[:, 0] * X[:, 1] + rng.normal(size=n_rows) > 0).astype(int)
    X[rng.random(X.shape) < missing] = np.nan
    bounds = {f"x{j}": (-3.0, 5.0) for j in range(6)}
    schema = Schema.from_public(bounds=bounds, may_be_missing=missing > 0, classes=[0, 1])
    settings = DPBoostSettings(epsilon=math.inf, protocol="central.sequential", n_trees=8, max_depth=5, l2=l2)
    ours = fit_central(X, y, schema, settings, np.random.default_rng(0)).model
    bins = public_bins(schema, settings.max_bins)
    codes = bins.transform(read_table(X, like=bins.features))
    params = BoostingParams(
        loss="squared", n_iterations=8, max_depth=5, l2=l2, learning_rate=0.1, min_child_weight=0.0, base_score=0.0,
        label_range=(-1.0, 1.0), gradient_bits=GRADIENT_BITS,
    )  # fmt: skip
    theirs = train(params, bins, codes, 2.0 * y - 1.0).ensemble
    assert len(ours.trees) == len(theirs.trees) == 8
    for mine, other in zip(ours.trees, theirs.trees, strict=True):
        for name in ("feature", "bin", "threshold", "missing_left", "left", "right"):
            assert np.array_equal(getattr(mine, name), getattr(other, name), equal_nan=name == "threshold"), name
        assert np.array_equal(mine.value[mine.is_leaf], other.value[mine.is_leaf])
    assert np.array_equal(ours.raw_scores_binned(codes), theirs.raw_scores_binned(codes))
