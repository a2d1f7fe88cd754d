"""The exported file, read by treelite and run by its GTIL, predicts what the model predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble, predictions_from
from hedgerow.engine.export_treelite import export_treelite
from hedgerow.errors import ExportRefused
from twins.random_models import OUTPUTS, model_for, random_mapper, random_matrix, random_tree

treelite = pytest.importorskip("treelite")


def opened(model: Ensemble, folder: Path) -> Any:
    """The model as treelite reads it."""
    export_treelite(model, folder / "model.treelite")
    return treelite.Model.deserialize(folder / "model.treelite")


def rows_for(mapper: BinMapper, rng: np.random.Generator, dtype: Any, n_rows: int = 1500) -> np.ndarray:
    """Edges, infinities, missing values, levels and unseen ones, but no codes with fractions."""
    rows = random_matrix(rng, mapper, n_rows, dtype)
    for j, bins in enumerate(mapper.features):
        if bins.levels is not None:
            rows[:, j] = np.floor(rows[:, j])
    return rows


def margins(model: Any, rows: np.ndarray, n_outputs: int) -> np.ndarray:
    """Raw scores [rows, outputs]."""
    return treelite.gtil.predict(model, rows, nthread=1, pred_margin=True).reshape(len(rows), n_outputs)


def margin_bound(model: Ensemble) -> np.ndarray:
    """Per output, as in `export_treelite.py`; and a place of float64, in which all is added there."""
    sizes = np.zeros(model.n_outputs)
    for t, tree in enumerate(model.trees):
        sizes[t % model.n_outputs] += np.abs(tree.value[tree.is_leaf]).max()
    return 2.0**-24 * model.n_iterations * sizes + 2.0**-50 * (sizes + np.abs(model.base_scores))


@pytest.mark.parametrize("loss", OUTPUTS)
@pytest.mark.parametrize("n_categorical", [0, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_margins_and_predictions_agree(loss: str, n_categorical: int, dtype: Any, tmp_path: Path) -> None:
    """Margins within the stated bound, predictions of all four losses accordingly."""
    rng = np.random.default_rng(1)
    mapper = random_mapper(rng, 4, n_categorical)
    model = model_for(loss, mapper, rng)
    read, rows = opened(model, tmp_path), rows_for(mapper, rng, dtype)
    raw = model.raw_scores(rows)
    assert (np.abs(margins(read, rows, model.n_outputs) - raw) <= margin_bound(model)).all()
    predicted = treelite.gtil.predict(read, rows, nthread=1).reshape(len(rows), -1)
    expected = predictions_from(loss, raw).reshape(len(rows), -1)
    np.testing.assert_allclose(predicted, expected[:, 1:] if loss == "logistic" else expected, rtol=1e-5, atol=1e-7)


def test_every_row_reaches_the_same_leaf(tmp_path: Path) -> None:
    """Leaf numbers, which no rounding can blur, are equal: also next to edges that float32 does not have."""
    rng = np.random.default_rng(2)
    numeric = [FeatureBins(f"x{j}", np.sort(rng.normal(size=40))) for j in range(3)]
    mapper = BinMapper((*numeric, *random_mapper(rng, 0, 2).features))
    model = Ensemble(mapper, "squared", [0.0], trees=[random_tree(rng, mapper, 7, 0.9) for _ in range(5)])
    rows = rows_for(mapper, rng, np.float64, 2000)
    rows[::3, :3] = np.nextafter(rows[::3, :3], rng.choice([-np.inf, np.inf], rows[::3, :3].shape))
    leaves = treelite.gtil.predict_leaf(opened(model, tmp_path), rows, nthread=1)
    assert np.array_equal(leaves, model.apply(rows))


@pytest.mark.parametrize("base", [-90.0, 0.1, 40.0])
@pytest.mark.parametrize("n_trees", [0, 2])
def test_base_scores_are_exact(base: float, n_trees: int, tmp_path: Path) -> None:
    """They are float64 there as here; a model without trees is one as well."""
    rng = np.random.default_rng(3)
    mapper = random_mapper(rng, 3, 1)
    model = model_for("logistic", mapper, rng, [base], n_trees)
    rows = rows_for(mapper, rng, np.float32, 300)
    difference = margins(opened(model, tmp_path), rows, 1) - model.raw_scores(rows)
    assert np.abs(difference).max() <= margin_bound(model)[0]


def test_what_treelite_cannot_say_is_refused(tmp_path: Path) -> None:
    """Bounds that trees may leave, and scores from -1 to 1; the way out is named, and nothing is written."""
    rng = np.random.default_rng(4)
    mapper = random_mapper(rng, 3, 1)
    bounded, signed = (model_for("squared", mapper, rng, [0.0]) for _ in range(2))
    bounded.meta["prediction_bounds"] = [-0.1, 0.2]
    signed.classes = ("no", "yes")
    for model, words in ((bounded, "kept between -0.1 and 0.2"), (signed, "scores from -1 to 1")):
        with pytest.raises(ExportRefused, match=f"{words}.*ONNX can express"):
            export_treelite(model, tmp_path / "model.treelite")
    assert not list(tmp_path.iterdir())
    bounded.meta["prediction_bounds"] = [-100.0, 100.0]  # which no sum of leaves reaches
    assert opened(bounded, tmp_path).num_tree == 10


def test_notes_tell_columns_and_levels(tmp_path: Path) -> None:
    """Who has the file alone knows what each column is and which code is which level."""
    rng = np.random.default_rng(5)
    mapper = BinMapper((FeatureBins("age", [30.0]), FeatureBins("town", levels=("Ulm", "Köln"))))
    read = opened(model_for("squared", mapper, rng), tmp_path)
    attributes = json.loads("".join(read.get_header_accessor().get_field("attributes")))
    assert json.loads(attributes["hedgerow.features"])[1] == {"name": "town", "levels": ["Ulm", "Köln"]}
