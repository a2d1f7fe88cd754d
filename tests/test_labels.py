"""Labels keep the values that they were given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hedgerow import BoostedTreesClassifier, Federation
from hedgerow.estimators.inputs import encode_classes, encode_like, exact_array, read_classes
from hedgerow.estimators.plain import load_model
from hedgerow.federation.vertical_model import VerticalModel

BIG = 2**63


@pytest.mark.parametrize(
    "classes",
    [
        [BIG, BIG + 1],
        [BIG + 1, BIG + 3, BIG + 4097],
        [0, 2**64 - 1],
        [1, BIG + 1],
        [-1, BIG + 1],
        [-(2**63), 2**63 - 1],
        [-(2**70), 2**53 + 1, 2**70 + 1],
        [2**53, 2**53 + 1],
        [-128, 127],
        [False, True],
        ["9223372036854775809", "x"],
    ],
)
def test_classes_keep_their_values(classes):
    """Beyond what int64 or a float can hold: from lists and from objects, encoded and back."""
    given = [classes[k % len(classes)] for k in range(12)]
    columns = [given, np.array(given, dtype=object), pd.Series(given, dtype=object)]
    if all(type(value) is int and 0 <= value < 2**64 for value in given):
        columns += [np.array(given, np.uint64), pa.array(given, pa.uint64()), pd.Series(given, dtype="uint64")]
    for column in columns:
        values = read_classes(column, 12)
        found, codes = encode_classes(values)
        assert found.tolist() == sorted(classes)
        assert [found.tolist()[int(code)] for code in codes] == given
        assert encode_like(values, exact_array(sorted(classes)), "y").tolist() == codes.tolist()


def test_small_whole_numbers_do_not_wrap():
    """A span of 255 does not fit an int8."""
    found, codes = encode_classes(np.array([-128, 127, 0], np.int8))
    assert (found.tolist(), codes.tolist(), found.dtype) == ([-128, 0, 127], [0.0, 2.0, 1.0], np.int8)


def test_fractions_are_left_as_they_are():
    """Floats are floats, also large ones beside whole numbers."""
    assert exact_array([2.0**60, 1]).dtype == np.float64
    assert exact_array([0.5, 2**60]).tolist() == [0.5, 2.0**60]


@pytest.mark.parametrize("classes", [[BIG, BIG + 1], [-5, 2**70 + 1]])
def test_models_predict_the_values(classes, tmp_path):
    """After a fit, after a file, and in a federation whose parts were saved."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = [classes[int(row[0] > 0)] for row in X]
    model = BoostedTreesClassifier(max_iter=2).fit(X, y)
    model.save_model(tmp_path / "model.json")
    for made in (model, load_model(tmp_path / "model.json")):
        assert set(made.predict(X).tolist()) == set(classes)
    companies = Federation.vertical({"bank": X[:, :1], "shop": X[:, 1:]}, labels=("bank", y))
    joint = companies.fit("vertical.secret_shared", n_estimators=1, max_depth=1, max_bins=8).model
    joint.save(tmp_path / "joint")
    for made in (joint, VerticalModel.load(tmp_path / "joint")):
        assert set(made.predict({"bank": X[:, :1], "shop": X[:, 1:]}).tolist()) == set(classes)
