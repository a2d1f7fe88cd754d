"""Weights of rows in central.gaussian: shares of the largest one, and no row ever moves a sum by more than without."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow import PrivateBoostingClassifier, PrivateBoostingRegressor, Schema
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.protocols.central.gaussian.kernels import take_share, weigh
from hedgerow.protocols.central.gaussian.requests import UNIT, SumRequest, record_sensitivity_squared
from hedgerow.protocols.central.gaussian.rows import PrivateRows

BOUNDS = {f"x{j}": (-3.0, 3.0) for j in range(3)}


@pytest.fixture(scope="module")
def table():
    """1,500 rows of three columns, three classes, and numbers."""
    X = np.random.default_rng(8).normal(size=(1500, 3))
    return X, (X[:, 0] > 0.3).astype(int) + (X[:, 1] > 0), np.clip(X[:, 0], -3, 3)


def schema(n_classes=None):
    """Of that many classes, or of numbers."""
    about = {"label_bounds": (-3, 3)} if n_classes is None else {"classes": list(range(n_classes))}
    return Schema.from_public(bounds=BOUNDS, **about)


@pytest.mark.parametrize(("loss", "n_classes"), [("logistic", 2), ("squared", 2), ("softmax", 3)])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_one_row_moves_a_sum_by_its_share_of_the_sensitivity(loss, n_classes, weight):
    """Whatever it holds: histograms, squares, bins and leaves, by the exact answer for a single row."""
    label = 0.5 if loss == "squared" else 1.0
    cells = (4, 4)
    rows = PrivateRows(
        np.array([[1], [2]], np.uint8), np.array([label]), cells, loss, n_classes=n_classes, weights=np.array([weight])
    )
    width, n_outputs = (n_classes, n_classes) if loss == "softmax" else (2, 1)
    wanted = [("histograms", width * sum(cells), 0)] + [("squares", 1, 0)] * (loss == "squared")
    start = {"update": "start", "bins": np.tile(np.arange(256, dtype=np.uint8) % 4, (2, 1))}
    start |= {"update_values": np.array([5.0, -5.0, 0.0])} if loss == "softmax" else {"base_score": -5.0}
    wanted.append(("bin_sums", 2 * n_outputs * 4, UNIT))
    for number, (kind, n_sums, clip) in enumerate(wanted):
        squared = record_sensitivity_squared(kind, loss, 2, clip)
        more = {"features": np.array([0], np.int32), **start} if kind == "bin_sums" else {}
        moved = rows.answer(SumRequest(number, kind, n_sums, squared, 1.0, clip=clip, **more))
        length = math.sqrt(int((moved.astype(object) ** 2).sum()))
        assert length <= weight * math.sqrt(squared) + math.sqrt(n_sums)
        assert length**2 <= squared
        assert (length > 0.0) == (weight > 0.0)


def test_products_are_rounded_towards_nothing():
    """Of positive numbers as of negative ones, so that no share is beyond its part."""
    vector = np.array([7, -7, 0, 2**16], np.int32)
    take_share(vector, 2**15)
    assert vector.tolist() == [3, -3, 0, 2**15]
    take_share(vector, 2**20)  # never more than 1
    assert vector.tolist() == [3, -3, 0, 2**15]
    packed = np.array([(-7 << 32) + 9, (7 << 32) + 9, (100 << 32) + 100], np.int64)
    weigh(packed, 50, 60, np.full(3, 2**15), 0, 3)
    assert [(int(p) >> 32, int(p) & 0xFFFFFFFF) for p in packed] == [(-3, 4), (3, 4), (25, 30)]


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_full_weights_are_no_weights(table, kind):
    """Without noise, the largest weight for all rows gives the model that no weights give, bit for bit."""
    X, y, z = table
    if kind == "classes":
        plain = PrivateBoostingClassifier(epsilon=math.inf, schema=schema(3), max_weight=4.0, random_state=0)
        one, other = plain.fit(X, y).predict_proba(X), plain.fit(X, y, np.full(len(y), 9.0)).predict_proba(X)
    else:
        model = PrivateBoostingRegressor(epsilon=math.inf, schema=schema(), max_weight=4.0, random_state=0)
        one, other = model.fit(X, z).predict(X), model.fit(X, z, np.full(len(z), 4.0)).predict(X)
    assert np.array_equal(one, other)


def test_rows_of_weight_0_do_not_count(table):
    """Nor those with a weight that is none."""
    X, _, z = table
    weight = np.ones(len(z))
    weight[1000:] = np.tile([0.0, -2.0, math.nan, -math.inf], 125)
    model = PrivateBoostingRegressor(epsilon=math.inf, schema=schema(), max_weight=1.0, random_state=0)
    some = model.fit(X, z, weight).predict(X)
    assert np.array_equal(some, model.fit(X[:1000], z[:1000], np.ones(1000)).predict(X))


def test_heavier_classes_are_predicted_more_often(table):
    """With noise, at the epsilon that was said."""
    X, _, _ = table
    y = (X[:, 0] + np.random.default_rng(0).normal(size=len(X)) > 0).astype(int)
    more = PrivateBoostingClassifier(epsilon=4.0, schema=schema(2), scale_pos_weight=6.0).fit(X, y)
    less = PrivateBoostingClassifier(epsilon=4.0, schema=schema(2), class_weight={0: 6.0}).fit(X, y)
    assert more.predict(X).mean() > less.predict(X).mean() + 0.2
    assert more.privacy_statement().epsilon == 4.0


def test_wrong_weights_are_refused(table):
    """Before a row is looked at, but for how many there are, and where rows may raise."""
    X, y, z = table
    with pytest.raises(InvalidParameter, match="max_weight"):
        PrivateBoostingClassifier(schema=schema(3)).fit(X, y, np.ones(len(y)))
    with pytest.raises(InvalidParameter, match="policy='exponential'"):
        PrivateBoostingRegressor(schema=schema(), policy="exponential", max_weight=1.0).fit(X, z, np.ones(len(z)))
    with pytest.raises(InvalidInput, match="one number for each row"):
        PrivateBoostingClassifier(schema=schema(3), max_weight=1.0).fit(X, y, np.ones(3))
    with pytest.raises(InvalidInput, match="not between 0 and max_weight"):
        PrivateBoostingClassifier(schema=schema(3), max_weight=1.0, on_bad_rows="raise").fit(X, y, np.full(len(y), 2.0))
