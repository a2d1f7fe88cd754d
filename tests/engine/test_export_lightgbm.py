"""The exported file, read by LightGBM, predicts what the model predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.export_lightgbm import export_lightgbm
from hedgerow.engine.importing import load_ensemble
from hedgerow.engine.table import read_table
from hedgerow.errors import ExportRefused
from twins.random_models import OUTPUTS, model_for, random_mapper, random_matrix

lgb = pytest.importorskip("lightgbm")


def opened(model: Ensemble, folder: Path) -> Any:
    """The model as LightGBM reads it."""
    export_lightgbm(model, folder / "model.txt")
    return lgb.Booster(model_file=folder / "model.txt")


def rows_for(mapper: BinMapper, rng: np.random.Generator, n_rows: int = 1000) -> np.ndarray:
    """Edges, missing values, levels and unseen ones; no infinities, and no codes with fractions."""
    rows = random_matrix(rng, mapper, n_rows, np.float64)
    rows[np.isinf(rows)] = 7.0
    for j, bins in enumerate(mapper.features):
        if bins.levels is not None:
            rows[:, j] = np.floor(rows[:, j])
    return rows


def raw_bound(model: Ensemble) -> np.ndarray:
    """Per output, as in `export_lightgbm.py`; and a place of float64, in which all is added there."""
    sizes = np.zeros(model.n_outputs)
    for t, tree in enumerate(model.trees):
        sizes[t % model.n_outputs] += np.abs(tree.value[tree.is_leaf]).max()
    return 2.0**-24 * model.n_iterations * sizes + 2.0**-50 * (sizes + np.abs(model.base_scores))


@pytest.mark.parametrize("loss", OUTPUTS)
@pytest.mark.parametrize("n_categorical", [0, 2])
def test_scores_and_predictions_agree(loss: str, n_categorical: int, tmp_path: Path) -> None:
    """Raw scores within the stated bound, predictions of all losses accordingly."""
    rng = np.random.default_rng(1)
    mapper = random_mapper(rng, 4, n_categorical, n_levels=40)
    model = model_for(loss, mapper, rng)
    booster, rows = opened(model, tmp_path), rows_for(mapper, rng)
    raw = model.raw_scores(rows)
    theirs = booster.predict(rows, raw_score=True).reshape(raw.shape)
    assert (np.abs(theirs - raw) <= raw_bound(model)).all()
    expected = model.predictions(raw)
    np.testing.assert_allclose(booster.predict(rows), expected[:, 1] if loss == "logistic" else expected, rtol=1e-5)


def test_data_frames_are_matched_by_their_categories(tmp_path: Path) -> None:
    """Names of levels travel in the file, text and numbers; an unseen one goes where a missing one goes."""
    rng = np.random.default_rng(2)
    mapper = BinMapper(
        (
            FeatureBins("a", [0.0, 1.0]),
            FeatureBins("town", levels=("Ulm", "Köln", "Bonn")),
            FeatureBins("n", levels=(5, 3, 9)),
        )
    )
    model = model_for("squared", mapper, rng)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=200),
            "town": pd.Categorical(rng.choice(["Ulm", "Köln", "Bonn", "Trier"], 200)),
            "n": pd.Categorical(rng.choice([5, 3, 9, 1], 200)),
        }
    )
    raw = model.raw_scores(read_table(frame, like=mapper.features))[:, 0]
    np.testing.assert_allclose(opened(model, tmp_path).predict(frame), raw, atol=1e-5)


@pytest.mark.parametrize("loss", OUTPUTS)
def test_what_was_exported_comes_back(loss: str, tmp_path: Path) -> None:
    """Our own reader of LightGBM's files gives the same scores, and the same levels."""
    rng = np.random.default_rng(3)
    mapper = random_mapper(rng, 3, 2)
    model = model_for(loss, mapper, rng)
    export_lightgbm(model, tmp_path / "model.txt")
    again = load_ensemble(tmp_path / "model.txt")
    rows = rows_for(mapper, rng)
    np.testing.assert_allclose(again.raw_scores(rows), model.raw_scores(rows), atol=1e-5)
    assert [feature.levels for feature in again.features] == [feature.levels for feature in mapper.features]


def test_what_lightgbm_cannot_say_is_refused(tmp_path: Path) -> None:
    """Names with spaces, thresholds that LightGBM takes for 0, bounds, scores from -1 to 1; nothing is written."""
    rng = np.random.default_rng(4)
    mapper = random_mapper(rng, 3, 0)
    bounded, signed = (model_for("squared", mapper, rng, [0.0]) for _ in range(2))
    bounded.meta["prediction_bounds"] = [-0.1, 0.2]
    signed.classes = ("no", "yes")
    spaced, tiny = (BinMapper((FeatureBins(name, [edge]),)) for name, edge in (("a b", 0.5), ("a", 1e-36)))
    for model, words in (
        (bounded, "kept between -0.1 and 0.2"),
        (signed, "scores from -1 to 1"),
        (model_for("squared", spaced, rng), "does not accept spaces"),
        (model_for("squared", tiny, rng), "takes numbers from -1e-35 to 1e-35 for 0"),
    ):
        with pytest.raises(ExportRefused, match=words):
            export_lightgbm(model, tmp_path / "model.txt")
    assert not list(tmp_path.iterdir())


def test_a_model_without_trees(tmp_path: Path) -> None:
    """The base score alone."""
    bare = Ensemble(random_mapper(np.random.default_rng(5), 2, 1), "squared", [1.25])
    assert opened(bare, tmp_path).predict(np.zeros((2, 3))).tolist() == [1.25, 1.25]
