"""The exported PMML, evaluated by a naive reader of the standard, predicts what the model predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.export_pmml import export_pmml
from hedgerow.errors import ExportRefused
from twins.naive_pmml import NaivePmml
from twins.random_models import OUTPUTS, model_for, random_mapper, random_matrix


def opened(model: Ensemble, folder: Path) -> NaivePmml:
    """The file as the naive reader has it."""
    export_pmml(model, folder / "model.pmml")
    return NaivePmml((folder / "model.pmml").read_bytes())


def as_rows(model: Ensemble, matrix: np.ndarray) -> list[dict[str, Any]]:
    """Rows by name: numbers, levels themselves (an unseen one where the code is none), None for missing."""
    rows = []
    for values in matrix.tolist():
        row: dict[str, Any] = {}
        for feature, value in zip(model.features, values, strict=True):
            if np.isnan(value):
                row[feature.name] = None
            elif feature.levels is None:
                row[feature.name] = value
            else:
                known = value == int(value) and 0 <= value < len(feature.levels)
                row[feature.name] = feature.levels[int(value)] if known else "never seen"
        rows.append(row)
    return rows


@pytest.mark.parametrize("loss", OUTPUTS)
@pytest.mark.parametrize("n_categorical", [0, 2])
def test_predictions_agree(loss: str, n_categorical: int, tmp_path: Path) -> None:
    """Edges, infinities, missing values, levels and unseen ones, for every loss."""
    rng = np.random.default_rng(1)
    mapper = random_mapper(rng, 4, n_categorical)
    model = model_for(loss, mapper, rng, n_trees=4)
    read, matrix = opened(model, tmp_path), random_matrix(rng, mapper, 300, np.float64)
    expected = model.predictions(model.raw_scores(matrix))
    for row, wanted in zip(as_rows(model, matrix), expected, strict=True):
        found = read.predict(row)
        np.testing.assert_allclose(
            list(found.values()) if isinstance(found, dict) else found, wanted, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("levels", [("a b", 'say "x"', "ü"), (3, 1, 20), (True, False), (0.5, 2.0)])
def test_levels_of_all_types_are_written_so_that_they_are_found(levels: tuple[Any, ...], tmp_path: Path) -> None:
    """Spaces, quotation marks, whole numbers, booleans, fractions."""
    rng = np.random.default_rng(2)
    mapper = BinMapper((FeatureBins("x", [0.5]), FeatureBins("label", levels=levels)))
    model = model_for("squared", mapper, rng, n_trees=6)
    read = opened(model, tmp_path)
    for code, level in enumerate(levels):
        raw = model.raw_scores(np.array([[0.0, code]]))[0, 0]
        assert read.predict({"x": 0.0, "label": level}) == pytest.approx(raw, abs=1e-6)


def test_bounds_and_a_model_without_trees(tmp_path: Path) -> None:
    """Predictions stay within the bounds of a private regression; a base score alone is a model too."""
    rng = np.random.default_rng(3)
    mapper = random_mapper(rng, 3, 0)
    model = model_for("squared", mapper, rng, [0.0])
    model.meta["prediction_bounds"] = [-0.1, 0.2]
    read, matrix = opened(model, tmp_path), random_matrix(rng, mapper, 100, np.float64)
    found = [read.predict(row) for row in as_rows(model, matrix)]
    np.testing.assert_allclose(found, model.predictions(model.raw_scores(matrix)), atol=1e-6)
    assert {-0.1, 0.2} <= set(found)
    bare = Ensemble(mapper, "poisson", [0.7])
    assert opened(bare, tmp_path).predict(as_rows(bare, matrix)[0]) == pytest.approx(np.exp(0.7))


def test_what_pmml_cannot_say_is_refused(tmp_path: Path) -> None:
    """Control characters in names, scores from -1 to 1, classes of several types: a sentence, and no file."""
    rng = np.random.default_rng(4)
    odd = BinMapper((FeatureBins("a\x00b", [0.5]),))
    signed = model_for("squared", random_mapper(rng, 2, 0), rng, [0.0])
    signed.classes = ("no", "yes")
    mixed = model_for("logistic", random_mapper(rng, 2, 0), rng)
    mixed.classes = (0, "one")
    backslash = BinMapper((FeatureBins("x", levels=("a\\", "b", "c\\")),))
    for model, words in (
        (model_for("squared", odd, rng), "XML has no way"),
        (signed, "scores from -1 to 1"),
        (mixed, "several types"),
        (model_for("squared", backslash, rng), "backslash"),
    ):
        with pytest.raises(ExportRefused, match=words):
            export_pmml(model, tmp_path / "model.pmml")
    assert not list(tmp_path.iterdir())
