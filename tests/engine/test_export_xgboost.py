"""The exported file, read by XGBoost itself, predicts what the ensemble predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.export_xgboost import export_xgboost
from hedgerow.errors import ExportRefused
from twins.random_models import OUTPUTS, model_for, random_ensemble, random_mapper, random_matrix, random_tree

xgboost = pytest.importorskip("xgboost")


def margin_bound(model):
    """Per output: how far XGBoost's margin may be from our raw score, for float32 inputs (see `export_xgboost.py`)."""
    sizes = np.abs(model.base_scores)
    for t, tree in enumerate(model.trees):
        sizes[t % model.n_outputs] += np.abs(tree.value[tree.is_leaf]).max()
    return 2.0**-23 * (model.n_iterations + 2) * sizes


def exported(model: Ensemble, folder: Path) -> Any:
    """The model as XGBoost reads it back."""
    path = folder / "model.json"
    export_xgboost(model, path)
    return xgboost.Booster(model_file=path)


def rows_for(mapper: BinMapper, rng: np.random.Generator, n_rows: int = 1500) -> np.ndarray:
    """Float32 rows with missing values and unseen codes, but without what XGBoost rejects: infinities."""
    matrix = random_matrix(rng, mapper, n_rows)
    matrix[np.isinf(matrix)] = 0.0
    for j, bins in enumerate(mapper.features):
        if bins.levels is not None:
            column = matrix[:, j]
            column[~np.isin(column, np.arange(bins.n_value_bins + 3))] = np.nan
    return matrix


@pytest.mark.parametrize("loss", OUTPUTS)
@pytest.mark.parametrize("n_categorical", [0, 2])
def test_margins_and_predictions_agree(loss: str, n_categorical: int, tmp_path: Path) -> None:
    """Margins agree within the stated bound and the predictions of all objectives to float32 accuracy."""
    rng = np.random.default_rng(1)
    mapper = random_mapper(rng, 4, n_categorical)
    model = model_for(loss, mapper, rng)
    booster = exported(model, tmp_path)
    matrix = rows_for(mapper, rng)
    raw = model.raw_scores(matrix)
    kinds = ["float" if bins.levels is None else "c" for bins in mapper.features]
    names = booster.feature_names
    frame = xgboost.DMatrix(matrix, feature_names=names, feature_types=kinds, enable_categorical=True)
    for margin in (booster.inplace_predict(matrix, predict_type="margin"), booster.predict(frame, output_margin=True)):
        assert (np.abs(margin.reshape(raw.shape) - raw) <= margin_bound(model)).all()
    expected = {
        "logistic": 1 / (1 + np.exp(-raw)),
        "poisson": np.exp(raw),
        "softmax": np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True),
    }.get(loss, raw)
    np.testing.assert_allclose(booster.predict(frame).reshape(raw.shape), expected, rtol=3e-6, atol=1e-6)


def test_every_row_reaches_the_same_leaf(tmp_path: Path) -> None:
    """Leaf indices, which no rounding can blur, are equal for float32 inputs, the edges themselves included."""
    rng = np.random.default_rng(2)
    mapper = random_mapper(rng, 4, 1, n_bins=100)
    model = model_for("squared", mapper, rng)
    matrix = rows_for(mapper, rng)
    frame = xgboost.DMatrix(matrix, feature_names=[bins.name for bins in mapper.features])
    assert np.array_equal(exported(model, tmp_path).predict(frame, pred_leaf=True), model.apply(matrix))


@pytest.mark.parametrize(
    ("loss", "base"),
    [
        ("logistic", 0.0),
        ("logistic", 7.5),
        ("logistic", 40.0),
        ("logistic", -90.0),
        ("poisson", -3.0),
        ("poisson", 80.0),
    ],
)
@pytest.mark.parametrize("n_trees", [0, 2])
def test_base_scores_that_a_float32_probability_cannot_express(
    loss: str, base: float, n_trees: int, tmp_path: Path
) -> None:
    """Close to probability 1 a float32 probability loses the margin; the first tree gives it back."""
    rng = np.random.default_rng(3)
    mapper = random_mapper(rng, 3, 0)
    model = model_for(loss, mapper, rng, [base], n_trees)
    rows = rows_for(mapper, rng)
    difference = exported(model, tmp_path).inplace_predict(rows, predict_type="margin") - model.raw_scores(rows)[:, 0]
    assert np.abs(difference).max() <= margin_bound(model)[0] + 2.0**-22 * max(1, abs(base))


def test_a_data_frame_is_matched_by_the_names_of_its_levels(tmp_path: Path) -> None:
    """Categories in another order, text or whole numbers, are matched by name as XGBoost does for its own models."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    mapper = BinMapper(
        (
            FeatureBins("size", np.array([0.5])),
            FeatureBins("town", levels=("Ulm", "Trier", "Bonn", "a b")),
            FeatureBins("year", levels=(1999, -4, 2024)),
        )
    )
    model = model_for("logistic", mapper, rng)
    codes = rng.integers(0, 3, (400, 2))
    frame = pandas.DataFrame(
        {
            "size": rng.random(400, dtype=np.float32),
            "town": pandas.Categorical([mapper.features[1].levels[c] for c in codes[:, 0]], ["Bonn", "Trier", "Ulm"]),
            "year": pandas.Categorical([mapper.features[2].levels[c] for c in codes[:, 1]], [2024, 1999, -4]),
        }
    )
    matrix = np.column_stack([frame["size"], codes]).astype(np.float32)
    margin = exported(model, tmp_path).predict(xgboost.DMatrix(frame, enable_categorical=True), output_margin=True)
    assert np.abs(margin - model.raw_scores(matrix)[:, 0]).max() <= margin_bound(model)[0]


def test_levels_that_xgboost_has_no_words_for_are_exported_as_codes(tmp_path: Path) -> None:
    """With fractions or booleans as levels the file holds no names, and matrices of codes still work."""
    rng = np.random.default_rng(5)
    mapper = BinMapper((FeatureBins("half", levels=(0.5, 1.5)), FeatureBins("yes", levels=(False, True))))
    model = model_for("squared", mapper, rng)
    matrix = rows_for(mapper, rng)
    margin = exported(model, tmp_path).inplace_predict(matrix)
    assert "cats" not in json.loads((tmp_path / "model.json").read_text())["learner"]["gradient_booster"]["model"]
    assert np.abs(margin - model.raw_scores(matrix)[:, 0]).max() <= margin_bound(model)[0]


def test_feature_names_are_kept_where_the_data_had_any(tmp_path: Path) -> None:
    """Names are written, unless they are only our own x0, x1, ... for a plain matrix."""
    rng = np.random.default_rng(6)
    named = BinMapper((FeatureBins("age", [1.0]), FeatureBins("höhe über NN", [2.0])))
    assert exported(model_for("squared", named, rng), tmp_path).feature_names == ["age", "höhe über NN"]
    assert exported(model_for("squared", random_mapper(rng, 2, 0), rng), tmp_path).feature_names is None


@pytest.mark.parametrize(
    ("edges", "shown"),
    [
        ([1.7e9, 1.7e9 + 1], "1700000001.0"),  # one number in float32
        ([0.7], "0.7"),  # rounded down: 0.7 itself would go the other way
        ([1e300], "1e\\+300"),
    ],
)
def test_thresholds_that_float32_cannot_separate_are_refused(edges: list[float], shown: str, tmp_path: Path) -> None:
    """The error names the feature and the threshold, and nothing is written."""
    rng = np.random.default_rng(7)
    mapper = BinMapper((FeatureBins("since", edges),))
    with pytest.raises(ExportRefused, match=f"'since' is split at {shown}"):
        export_xgboost(model_for("squared", mapper, rng), tmp_path / "model.json")
    assert not list(tmp_path.iterdir())
    unused = Ensemble(mapper, "squared", [0.0], trees=[random_tree(rng, mapper, 0)])
    assert exported(unused, tmp_path).num_boosted_rounds() == 1


def test_a_threshold_between_two_float32_numbers_is_moved_up(tmp_path: Path) -> None:
    """0.3 is not a float32 number, but the next one above it divides all float32 numbers, and 0.3 itself, alike."""
    rng = np.random.default_rng(8)
    mapper = BinMapper((FeatureBins("x0", [0.3]),))
    model = model_for("squared", mapper, rng, [0.0])
    near = np.float32(0.3)
    rows = np.array([[np.nextafter(near, np.float32(0))], [near], [np.nextafter(near, np.float32(1))]])
    margin = exported(model, tmp_path).inplace_predict(rows)
    np.testing.assert_allclose(margin, model.raw_scores(rows)[:, 0], atol=margin_bound(model)[0])
    assert model.raw_scores(np.array([[0.3]])) == model.raw_scores(rows)[1]


def test_names_that_xgboost_forbids_are_refused(tmp_path: Path) -> None:
    """XGBoost reads files with such names, but no data for them; better to say so at once."""
    rng = np.random.default_rng(9)
    with pytest.raises(ExportRefused, match="as in 'age <30'"):
        export_xgboost(model_for("squared", BinMapper((FeatureBins("age <30", [1.0]),)), rng), tmp_path / "model.json")


def test_splits_at_the_last_bin_send_only_missing_values_right(tmp_path: Path) -> None:
    """The threshold is then +inf, which XGBoost reads and compares as meant."""
    rng = np.random.default_rng(10)
    mapper = BinMapper((FeatureBins("x0", []),))
    model = random_ensemble(rng, mapper, 3, depth=2)
    rows = np.array([[0.0], [3e38], [np.nan]], np.float32)
    margin = exported(model, tmp_path).inplace_predict(rows, predict_type="margin")
    assert np.abs(margin - model.raw_scores(rows)[:, 0]).max() <= margin_bound(model)[0]
