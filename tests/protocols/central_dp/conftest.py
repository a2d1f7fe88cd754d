"""Small tables with public schemas."""

from __future__ import annotations

import numpy as np
import pytest

from hedgerow.schema import Schema


@pytest.fixture
def numbers():
    """1,200 rows of five numeric columns, two classes, and a schema; one column's values often leave its bounds."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1200, 5))
    X[:, 2] = rng.integers(0, 7, 1200)
    y = (X[:, 0] + X[:, 1] * (X[:, 2] > 3) > 0).astype(int)
    bounds = {f"x{j}": (-3.0, 3.0) for j in range(5)} | {"x2": (0, 6), "x4": (-1.0, 1.0)}
    return X, y, Schema.from_public(bounds=bounds, integers=["x2"], classes=[0, 1])


@pytest.fixture
def lengths():
    """800 rows of two columns whose label, between 10 and 30, follows from them."""
    rng = np.random.default_rng(6)
    X = rng.uniform(0, 1, size=(800, 2))
    y = 10 + 15 * X[:, 0] + 5 * (X[:, 1] > 0.5)
    return X, y, Schema.from_public(bounds={"x0": (0, 1), "x1": (0, 1)}, label_bounds=(10, 30))
