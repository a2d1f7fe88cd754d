"""The exported file, run by onnxruntime, predicts what the model predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble, predictions_from
from hedgerow.engine.export_onnx import export_onnx
from hedgerow.errors import ExportRefused
from hedgerow.estimators.plain import BoostedTreesClassifier
from twins.random_models import OUTPUTS, model_for, random_mapper, random_matrix, random_tree

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

PREDICTIONS = {
    "logistic": "probabilities",
    "softmax": "probabilities",
    "squared": "prediction",
    "poisson": "prediction",
}


def opened(model: Ensemble, folder: Path) -> Any:
    """The model as onnxruntime reads it."""
    export_onnx(model, folder / "model.onnx")
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


def answers(session: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    """All outputs by name."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": rows.astype(np.float64)}), strict=True))


def sum_bound(model: Ensemble) -> np.ndarray:
    """Per output: how far sums of leaf values may be apart (see `export_onnx.py`)."""
    sizes = np.zeros(model.n_outputs)
    for t, tree in enumerate(model.trees):
        sizes[t % model.n_outputs] += np.abs(tree.value[tree.is_leaf]).max()
    return 2.0**-24 * (model.n_iterations + 1) * sizes


@pytest.mark.parametrize("loss", OUTPUTS)
@pytest.mark.parametrize("n_categorical", [0, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_and_predictions_agree(loss: str, n_categorical: int, dtype: Any, tmp_path: Path) -> None:
    """On edges, infinities, missing values, known and unseen levels: scores within the stated bound."""
    rng = np.random.default_rng(1)
    mapper = random_mapper(rng, 4, n_categorical)
    model = model_for(loss, mapper, rng)
    rows = random_matrix(rng, mapper, 1500, dtype)
    found, raw = answers(opened(model, tmp_path), rows), model.raw_scores(rows)
    assert (np.abs(found["raw_scores"] - raw) <= sum_bound(model)).all()
    np.testing.assert_allclose(
        found[PREDICTIONS.get(loss, "prediction")], predictions_from(loss, raw), rtol=1e-5, atol=1e-7
    )


def test_every_row_reaches_the_same_leaf(tmp_path: Path) -> None:
    """With the numbers of its leaves as values, one tree answers with the leaf itself, also between float32 numbers."""
    rng = np.random.default_rng(2)
    numeric = [FeatureBins(f"x{j}", np.sort(rng.normal(size=40))) for j in range(3)]  # edges that float32 does not have
    mapper = BinMapper((*numeric, *random_mapper(rng, 0, 2).features))
    for _ in range(5):
        tree = random_tree(rng, mapper, 7, 0.9)
        tree.value[:] = np.arange(tree.n_nodes)
        model = Ensemble(mapper, "squared", [0.0], trees=[tree])
        rows = random_matrix(rng, mapper, 2000, np.float64)
        rows[::3, :3] = np.nextafter(rows[::3, :3], rng.choice([-np.inf, np.inf], rows[::3, :3].shape))
        assert np.array_equal(answers(opened(model, tmp_path), rows)["raw_scores"], model.apply(rows))


@pytest.mark.parametrize("base", [-90.0, 0.1, 40.0])
@pytest.mark.parametrize("n_trees", [0, 2])
def test_base_scores_are_exact(base: float, n_trees: int, tmp_path: Path) -> None:
    """They are float64 and added last, as here; a model without trees is one as well."""
    rng = np.random.default_rng(3)
    mapper = random_mapper(rng, 3, 1)
    model = model_for("logistic", mapper, rng, [base], n_trees)
    rows = random_matrix(rng, mapper, 300)
    raw = answers(opened(model, tmp_path), rows)["raw_scores"]
    assert np.abs(raw - model.raw_scores(rows)).max() <= sum_bound(model)[0] + np.spacing(abs(base))


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [3, 7], [1.0, 2.0], ["a", "b", "c"], [2, 0, 1]])
def test_labels_are_those_of_the_classes(labels: list[Any], tmp_path: Path) -> None:
    """Text, booleans and numbers of both kinds; equal odds go to the first class."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(240, 3))
    y = np.array(labels)[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0) * (len(labels) > 2)]
    model = BoostedTreesClassifier(max_iter=3).fit(X, y)
    model.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = answers(session, X)
    assert found["label"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-6)
    even = Ensemble(model.ensemble_.mapper, "logistic", [0.0], classes=["first", "second"])
    assert answers(opened(even, tmp_path), X[:2])["label"].tolist() == ["first", "first"]


def test_classes_of_two_kinds_are_refused(tmp_path: Path) -> None:
    """A tensor has one type, and the error says so."""
    rng = np.random.default_rng(5)
    model = model_for("logistic", random_mapper(rng), rng)
    model.classes = ("no", 1)
    with pytest.raises(ExportRefused, match="all text"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_bounds_and_scores_of_dpboost_are_expressed(tmp_path: Path) -> None:
    """Predictions are clipped where ours are, and scores from -1 to 1 become probabilities as ours do."""
    rng = np.random.default_rng(6)
    mapper = random_mapper(rng, 3, 1)
    rows = random_matrix(rng, mapper, 400)
    bounded = model_for("squared", mapper, rng, [0.0])
    bounded.meta["prediction_bounds"] = [-0.1, 0.2]
    ours = bounded.predictions(bounded.raw_scores(rows))
    theirs = answers(opened(bounded, tmp_path), rows)["prediction"]
    assert (ours.min(), ours.max()) == (-0.1, 0.2) == (theirs.min(), theirs.max())
    np.testing.assert_allclose(theirs, ours, atol=1e-6)
    signed = Ensemble(mapper, "squared", [0.3], trees=bounded.trees, classes=["no", "yes"])
    model = BoostedTreesClassifier().adopt(signed, "a model")
    found, raw = answers(opened(signed, tmp_path), rows), signed.raw_scores(rows)
    np.testing.assert_allclose(found["probabilities"], signed.predictions(raw), atol=1e-6)
    assert found["label"].tolist() == model._winners(raw).tolist()


def test_notes_tell_columns_levels_and_version(tmp_path: Path) -> None:
    """Who has the file alone knows what each column is and which code is which level."""
    rng = np.random.default_rng(7)
    mapper = BinMapper((FeatureBins("age", [30.0]), FeatureBins("town", levels=("Ulm", "Köln"))))
    told = opened(model_for("squared", mapper, rng), tmp_path).get_modelmeta()
    assert told.producer_name == "hedgerow"
    features = json.loads(told.custom_metadata_map["hedgerow.features"])
    assert features == [{"name": "age"}, {"name": "town", "levels": ["Ulm", "Köln"]}]
    assert "hedgerow.statement" not in told.custom_metadata_map
