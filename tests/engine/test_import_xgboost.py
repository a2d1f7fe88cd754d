"""A model that XGBoost has saved, read back here, predicts what XGBoost predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgerow
from hedgerow.engine.binning import WideBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.export_xgboost import export_xgboost
from hedgerow.engine.import_xgboost import float64_edges, from_document, import_xgboost
from hedgerow.engine.importing import load_ensemble
from hedgerow.engine.table import read_table
from hedgerow.errors import HedgerowError, InvalidInput, ModelFileError
from twins.damage import as_often, damaged
from twins.random_models import OUTPUTS, model_for, random_mapper, random_matrix

xgb = pytest.importorskip("xgboost")

OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary:logistic": {},
    "multi:softprob": {"num_class": 3},
    "multi:softmax": {"num_class": 3},
    "reg:squarederror": {},
    "count:poisson": {},
    "reg:absoluteerror": {},
    "reg:quantileerror": {"quantile_alpha": 0.8},
}


def table(rng: np.random.Generator, n_rows: int = 800) -> np.ndarray:
    """Numbers with missing ones among them, in float64 that float32 has to round."""
    rows = rng.normal(size=(n_rows, 4))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows


def labels(objective: str, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels that the objective takes, and that follow from the rows."""
    score = np.nan_to_num(rows[:, 0]) * 2 + np.nan_to_num(rows[:, 1]) ** 2
    if objective.startswith("binary"):
        return (score > 1).astype(float)
    if objective.startswith("multi"):
        return np.digitize(score, [0.0, 2.0]).astype(float)
    return rng.poisson(np.exp(score / 4)).astype(float) if objective.startswith("count") else score + 100.0


def trained(params: dict[str, Any], rows: Any, y: Any, n_trees: int = 20, **how: Any) -> Any:
    """A booster of XGBoost."""
    data = xgb.DMatrix(rows, y, **how)
    return xgb.train({"nthread": 1, "seed": 1, "max_depth": 4, **params}, data, n_trees)


def margin_bound(model: Ensemble) -> np.ndarray:
    """Per output, as in `import_xgboost.py`."""
    sizes = np.abs(model.base_scores)
    for t, tree in enumerate(model.trees):
        sizes[t % model.n_outputs] += np.abs(tree.value[tree.is_leaf]).max()
    return 2.0**-23 * (model.n_iterations + 2) * sizes


def assert_same(model: Ensemble, booster: Any, rows: Any, **how: Any) -> None:
    """Margins within the bound, which a single row in another leaf would break."""
    wanted = booster.predict(xgb.DMatrix(rows, **how), output_margin=True).reshape(len(rows), -1)
    found = model.raw_scores(read_table(rows, like=model.features))
    assert (np.abs(found - wanted) <= margin_bound(model)).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("ending", ["json", "ubj"])
def test_margins_are_those_of_xgboost(objective: str, ending: str, tmp_path: Path) -> None:
    """Every objective, from both kinds of file, for values of 64 and of 32 bits, missing ones too."""
    rng = np.random.default_rng(1)
    rows = table(rng)
    booster = trained({"objective": objective, **OBJECTIVES[objective]}, rows, labels(objective, rows, rng))
    booster.save_model(tmp_path / f"model.{ending}")
    model = load_ensemble(tmp_path / f"model.{ending}")
    for dtype in (np.float64, np.float32):
        assert_same(model, booster, table(rng).astype(dtype))


def test_predictions_come_from_an_estimator_of_the_right_kind(tmp_path: Path) -> None:
    """A classifier has probabilities, a regressor numbers; names of columns are the file's."""
    rng = np.random.default_rng(2)
    rows = pd.DataFrame(table(rng), columns=["a", "b", "c", "d"])
    path = tmp_path / "model.json"
    for objective in ("binary:logistic", "multi:softprob", "count:poisson"):
        booster = trained({"objective": objective, **OBJECTIVES[objective]}, rows, labels(objective, rows.values, rng))
        booster.save_model(path)
        model = hedgerow.load_model(path)
        predict = model.predict if objective.startswith("count") else model.predict_proba
        wanted = booster.predict(xgb.DMatrix(rows))
        found = predict(rows)
        np.testing.assert_allclose(found[:, 1] if objective.startswith("binary") else found, wanted, rtol=1e-5)
        assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("tree_method", ["hist", "exact"])
def test_columns_may_have_more_thresholds_than_a_byte_holds(tree_method: str, tmp_path: Path) -> None:
    """Prediction, contributions and the model file work; continuing the training is refused in a sentence."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(3000, 3)).astype(np.float32)
    y = np.sin(3 * rows[:, 0]) * rows[:, 1]
    booster = trained({"tree_method": tree_method, "max_bin": 1024, "max_depth": 8}, rows, y, 60)
    booster.save_model(tmp_path / "xgboost.json")
    estimator = hedgerow.load_model(tmp_path / "xgboost.json")
    model = estimator.ensemble_
    assert any(isinstance(feature, WideBins) for feature in model.features)
    assert_same(model, booster, rows)
    assert (booster.predict(xgb.DMatrix(rows), pred_leaf=True) >= 0).all()
    estimator.save_model(tmp_path / "ours.json")
    again = hedgerow.load_model(tmp_path / "ours.json")
    np.testing.assert_array_equal(again.predict(rows), estimator.predict(rows))
    export_xgboost(model, tmp_path / "back.json")
    back = xgb.Booster(model_file=tmp_path / "back.json")
    np.testing.assert_allclose(
        back.predict(xgb.DMatrix(rows)), booster.predict(xgb.DMatrix(rows)), rtol=1e-5, atol=1e-5
    )
    estimator.set_params(warm_start=True, max_iter=61)
    with pytest.raises(InvalidInput, match="more than a byte can tell apart.*cannot be trained on"):
        estimator.fit(rows, y)


@pytest.mark.parametrize("one_hot", [1, 100])
def test_categories_are_levels(one_hot: int, tmp_path: Path) -> None:
    """Of a data frame by name, text and numbers; of a matrix by code. Missing ones go their own way."""
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(table(rng), columns=["a", "b", "c", "d"])
    rows["b"] = pd.Categorical(rng.choice(["Ulm", "Essen", "Bonn", "Trier"], len(rows)))
    rows["d"] = pd.Categorical(rng.integers(3, 30, len(rows)))
    rows.loc[rng.random(len(rows)) < 0.1, ["b", "d"]] = np.nan
    y = rows["b"].isin(["Ulm", "Bonn"]) ^ (rows["d"].astype(float) % 3 == 0)
    params = {"objective": "binary:logistic", "max_cat_to_onehot": one_hot}
    path = tmp_path / "model.ubj"
    booster = trained(params, rows, y, enable_categorical=True)
    booster.save_model(path)
    model = load_ensemble(path)
    assert model.features[1].levels == ("Bonn", "Essen", "Trier", "Ulm")
    assert_same(model, booster, rows, enable_categorical=True)
    codes = rows.assign(b=rows["b"].cat.codes.astype(float), d=rows["d"].cat.codes.astype(float)).replace(-1.0, np.nan)
    how = {"feature_types": ["q", "c", "q", "c"], "enable_categorical": True}
    booster = trained(params, codes.values, y, **how)
    booster.save_model(path)
    assert_same(load_ensemble(path), booster, codes.values, **how)


def test_forests_and_dart(tmp_path: Path) -> None:
    """Several trees in one iteration, and weights of trees."""
    rng = np.random.default_rng(5)
    rows = table(rng)
    for objective, params in (
        ("multi:softprob", {"num_parallel_tree": 3, "subsample": 0.5, "num_class": 3}),
        ("reg:squarederror", {"booster": "dart", "rate_drop": 0.4}),
    ):
        booster = trained({"objective": objective, **params}, rows, labels(objective, rows, rng), 8)
        booster.save_model(tmp_path / "model.json")
        assert_same(load_ensemble(tmp_path / "model.json"), booster, rows)


@pytest.mark.parametrize("loss", OUTPUTS)
def test_what_was_exported_comes_back(loss: str, tmp_path: Path) -> None:
    """Random trees with levels, written by our export and read again: the same leaves, the same sums."""
    rng = np.random.default_rng(6)
    mapper = random_mapper(rng, 4, 2)
    model = model_for(loss, mapper, rng)
    export_xgboost(model, tmp_path / "model.json")
    again = load_ensemble(tmp_path / "model.json")
    rows = random_matrix(rng, mapper, 1000)
    rows[~np.isfinite(rows)] = np.nan
    for j, bins in enumerate(mapper.features):
        if bins.levels is not None:
            rows[:, j] = np.where((rows[:, j] >= 0) & (rows[:, j] < bins.missing_code), np.floor(rows[:, j]), np.nan)
    np.testing.assert_array_equal(again.apply(rows), model.apply(rows))
    np.testing.assert_allclose(again.raw_scores(rows), model.raw_scores(rows), atol=1e-5)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(-1, 1))
def test_edges_divide_float64_as_rounding_does(threshold: float, offset: float) -> None:
    """x below the edge if and only if x, rounded to float32, is below the threshold."""
    t = np.float32(threshold)
    (edge,) = float64_edges(np.array([t]))
    with np.errstate(over="ignore"):
        near = float(t) + offset * float(np.spacing(np.abs(t)))
    for x in (near, edge, np.nextafter(edge, -np.inf), float(t), np.nextafter(edge, np.inf)):
        with np.errstate(over="ignore"):
            assert (x < edge) == (np.float32(x) < t)


# --- what is refused ---------------------------------------------------------------------------------------------------


def small_files() -> dict[str, bytes]:
    """A file of each kind, with categories."""
    rng = np.random.default_rng(7)
    rows = pd.DataFrame({"a": rng.normal(size=60), "b": pd.Categorical(rng.choice(["u", "v", "w"], 60))})
    booster = trained({"max_depth": 2, "max_cat_to_onehot": 1}, rows, rows["b"] == "v", 2, enable_categorical=True)
    return {kind: bytes(booster.save_raw(kind)) for kind in ("json", "ubj")}


FILES = small_files()


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("objective", "name"), "rank:ndcg", "objective 'rank:ndcg'; those that can be read are binary:logistic"),
        (("gradient_booster", "name"), "gblinear", "the booster is 'gblinear'; only boosters of trees"),
        (("learner_model_param", "num_target"), "2", "several targets at once"),
        (
            ("learner_model_param", "num_feature"),
            "1",
            "split_indices of tree 0 must hold whole numbers from 0 to 0|names",
        ),
        (
            ("learner_model_param", "base_score"),
            "[1,2,3]",
            "base_score must have a finite number for each of 1 outputs",
        ),
        (("gradient_booster", "model", "trees", 0, "left_children"), [0, -1, -1], "own ancestors|entries"),
        (("gradient_booster", "model", "trees", 0, "tree_param", "size_leaf_vector"), "3", "a vector of values"),
    ],
)
def test_what_cannot_be_expressed_is_refused_in_a_sentence(path: tuple[Any, ...], value: Any, sentence: str) -> None:
    """The file says what it is, and the error what is not known here."""
    document = json.loads(FILES["json"])
    at = document["learner"]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(ModelFileError, match=sentence):
        from_document(document)


def test_nodes_that_never_end_are_refused() -> None:
    """A child that is its own ancestor, and one of two parents."""
    for children in ([0, 1], [1, 1]):
        document = json.loads(FILES["json"])
        tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
        tree["left_children"][0], tree["right_children"][0] = children
        with pytest.raises(ModelFileError, match="own ancestors|two nodes"):
            from_document(document)


@pytest.mark.parametrize("kind", FILES)
@as_often(150)
@given(data=st.data())
def test_any_damage_is_a_model_or_refused(kind: str, data: st.DataObject) -> None:
    """Whatever is done to the file, the outcome is a model that predicts, or a ModelFileError."""
    content = data.draw(damaged(FILES[kind], kind))
    try:
        model = import_xgboost(content)
    except ModelFileError:
        return
    assert model.raw_scores(np.zeros((3, len(model.features)))).shape == (3, model.n_outputs)


def test_files_are_recognised_and_named(tmp_path: Path) -> None:
    """A damaged file is told with its name; what is no model of anybody's is told as no model of ours."""
    path = tmp_path / "model.bin"
    for content, words in ((FILES["json"][:-20], "JSON"), (FILES["ubj"][:-9], "UBJSON"), (b"{}", "Hedgerow")):
        path.write_bytes(content)
        with pytest.raises(HedgerowError, match=words) as caught:
            hedgerow.load_model(path)
        assert words == "Hedgerow" or str(path) in str(caught.value)
