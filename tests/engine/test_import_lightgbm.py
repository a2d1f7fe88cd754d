"""A model that LightGBM has saved, read back here, predicts and explains what LightGBM predicts and explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgerow
from hedgerow.engine.contributions import contributions
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.import_lightgbm import import_lightgbm
from hedgerow.engine.importing import load_ensemble
from hedgerow.engine.table import read_table
from hedgerow.engine.zero_is_missing import ZERO
from hedgerow.errors import ModelFileError
from twins.damage import as_often, damaged

lgb = pytest.importorskip("lightgbm")

OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary": {"sigmoid": 2.5},
    "multiclass": {"num_class": 3},
    "regression": {},
    "poisson": {},
    "regression_l1": {},
    "quantile": {"alpha": 0.8},
}
MISSING: dict[str, dict[str, Any]] = {
    "nan": {},
    "zero": {"zero_as_missing": True},
    "none": {"use_missing": False},
}


def table(rng: np.random.Generator, n_rows: int = 800) -> np.ndarray:
    """Numbers with missing ones and zeros among them, and some at the ends of what counts as zero."""
    rows = rng.normal(size=(n_rows, 4))
    rows[rng.random(rows.shape) < 0.2] = 0.0
    rows[rng.random(rows.shape) < 0.1] = np.nan
    around = rng.random(rows.shape) < 0.05
    ends = [ZERO, -ZERO, np.nextafter(ZERO, 1), np.nextafter(-ZERO, -1), 1e-40, -1e-40, -0.0]
    rows[around] = rng.choice(ends, int(around.sum()))
    return rows


def labels(objective: str, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels that the objective takes, and that follow from the rows."""
    score = np.nan_to_num(rows[:, 0], nan=1.0) * 2 + (rows[:, 1] == 0) + rng.normal(size=len(rows)) / 10
    if objective == "binary":
        return (score > 0.5).astype(float)
    if objective == "multiclass":
        return np.digitize(score, [0.0, 2.0]).astype(float)
    return rng.poisson(np.exp(score / 4)).astype(float) if objective == "poisson" else score + 1000.0


def trained(params: dict[str, Any], rows: Any, y: Any, n_trees: int = 15, **how: Any) -> Any:
    """A booster of LightGBM."""
    fixed = {"verbose": -1, "num_threads": 1, "deterministic": True, "seed": 1, "num_leaves": 12, "min_data_in_leaf": 5}
    return lgb.train({**fixed, **params}, lgb.Dataset(rows, y, **how), n_trees)


def raw_bound(model: Ensemble) -> np.ndarray:
    """Per output, as in `import_lightgbm.py`; and a place of float64, in which LightGBM adds."""
    sizes = np.zeros(model.n_outputs)
    for t, tree in enumerate(model.trees):
        sizes[t % model.n_outputs] += np.abs(tree.value[tree.is_leaf]).max()
    return 2.0**-23 * (model.n_iterations + 1) * sizes + 2.0**-50 * np.abs(model.base_scores)


def assert_same(model: Ensemble, booster: Any, rows: Any, factor: float = 1.0) -> None:
    """Raw scores within the bound, which a single row in another leaf would break; contributions to match."""
    read = read_table(rows, like=model.features)
    wanted = booster.predict(rows, raw_score=True).reshape(len(rows), -1) * factor
    assert (np.abs(model.raw_scores(read) - wanted) <= raw_bound(model)).all()
    narrow, columns = model.narrowed()
    found = contributions(narrow, model.codes(read), columns).transpose(0, 2, 1)
    theirs = booster.predict(rows, pred_contrib=True).reshape(found.shape) * factor
    np.testing.assert_allclose(found, theirs, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("missing", MISSING)
def test_scores_and_contributions_are_those_of_lightgbm(objective: str, missing: str, tmp_path: Path) -> None:
    """Every objective and every way to treat missing values, for values of 64 bits, zeros of all kinds among them."""
    rng = np.random.default_rng(1)
    rows = table(rng)
    params = {"objective": objective, **OBJECTIVES[objective], **MISSING[missing]}
    booster = trained(params, rows, labels(objective, rows, rng))
    booster.save_model(tmp_path / "model.txt")
    model = load_ensemble(tmp_path / "model.txt")
    assert_same(model, booster, table(rng), OBJECTIVES[objective].get("sigmoid", 1.0))


def test_predictions_come_from_an_estimator_of_the_right_kind(tmp_path: Path) -> None:
    """A classifier has probabilities, a regressor numbers; names of columns are the file's."""
    rng = np.random.default_rng(2)
    rows = pd.DataFrame(table(rng), columns=["a", "b", "c", "d"])
    for objective in ("binary", "multiclass", "poisson"):
        booster = trained({"objective": objective, **OBJECTIVES[objective]}, rows, labels(objective, rows.values, rng))
        booster.save_model(tmp_path / "model.txt")
        model = hedgerow.load_model(tmp_path / "model.txt")
        found = (model.predict if objective == "poisson" else model.predict_proba)(rows)
        np.testing.assert_allclose(found[:, 1] if objective == "binary" else found, booster.predict(rows), rtol=1e-5)
        assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]


def test_forests_dart_and_many_thresholds(tmp_path: Path) -> None:
    """The mean of a forest is in the leaves; so are DART's weights; 2,000 bins are no obstacle."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(3000, 3))
    y = np.sin(3 * rows[:, 0]) * rows[:, 1] + 10
    forest = {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1}
    many = {"max_bin": 2000, "min_data_in_bin": 1, "num_leaves": 200}
    for params in (forest, {"boosting": "dart", "drop_rate": 0.5}, many):
        booster = trained({"objective": "regression", **params}, rows, y, 30)
        booster.save_model(tmp_path / "model.txt")
        np.testing.assert_allclose(
            hedgerow.load_model(tmp_path / "model.txt").predict(rows), booster.predict(rows), atol=1e-5
        )


def test_categories_are_levels(tmp_path: Path) -> None:
    """Of a data frame by name, of a matrix by number; missing, unknown and negative ones go right."""
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(table(rng), columns=["a", "b", "c", "d"])
    rows["b"] = pd.Categorical(rng.choice(["Ulm", "Köln", "Bonn", "Trier"], len(rows)))
    rows["d"] = pd.Categorical(rng.integers(3, 30, len(rows)))
    rows.loc[rng.random(len(rows)) < 0.1, ["b", "d"]] = np.nan
    y = (rows["b"].isin(["Ulm", "Bonn"]) ^ (rows["d"].astype(float) % 3 == 0)).astype(float)
    params = {"objective": "binary", "min_data_per_group": 5, "max_cat_to_onehot": 1}
    booster = trained(params, rows, y)
    booster.save_model(tmp_path / "model.txt")
    model = load_ensemble(tmp_path / "model.txt")
    assert model.features[1].levels == ("Bonn", "Köln", "Trier", "Ulm")
    assert_same(model, booster, rows)
    codes = rows.values.copy()
    codes[:, 1] = rows["b"].cat.codes
    codes = codes.astype(float)
    booster = trained(params, codes, y, categorical_feature=[1, 3])
    booster.save_model(tmp_path / "model.txt")
    codes[:50, 3] = rng.integers(28, 60, 50)
    assert_same(load_ensemble(tmp_path / "model.txt"), booster, codes)


def small_file() -> str:
    """A file with numbers and categories."""
    rng = np.random.default_rng(7)
    rows = np.column_stack([rng.normal(size=(100, 2)), rng.integers(0, 40, 100)])
    y = (rows[:, 2] % 3 == 0).astype(float) + rows[:, 0]
    params = {"objective": "regression", "num_leaves": 5, "min_data_per_group": 2, "zero_as_missing": True}
    return trained(params, rows, y, 2, categorical_feature=[2]).model_to_string()


FILE = small_file()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("objective=regression", "objective=lambdarank", "objective 'lambdarank'; those that can be read are binary"),
        ("objective=regression", "objective=regression sqrt", "without sqrt"),
        ("is_linear=0", "is_linear=1", "linear models in its leaves"),
        ("max_feature_idx=2", "max_feature_idx=1", "feature_names must be the names of 2 columns, got 3"),
        ("num_leaves=5", "num_leaves=4", "leaf_value of tree 0 must have 4 entries, got 5"),
        ("left_child=", "left_child=0 ", "left_child of tree 0 must have 4 entries"),
        ("end of trees", "the end", "lacks its beginning or `end of trees`"),
        ("num_cat=", "num_cat=1\nnum_cat=", "says twice what 'num_cat' is"),
    ],
)
def test_what_cannot_be_expressed_is_refused_in_a_sentence(old: str, new: str, sentence: str) -> None:
    """The file says what it is, and the error what is not known here."""
    assert old in FILE
    with pytest.raises(ModelFileError, match=sentence):
        import_lightgbm(FILE.replace(old, new, 1).encode())


def test_nodes_that_never_end_are_refused() -> None:
    """A root that is its own child, also where splits are made three."""
    line = next(line for line in FILE.splitlines() if line.startswith("left_child="))
    with pytest.raises(ModelFileError, match="own ancestors|two nodes"):
        import_lightgbm(FILE.replace(line, "left_child=0 0 0 0", 1).encode())


def test_a_tree_that_would_grow_beyond_bounds_is_refused() -> None:
    """A chain of splits that each need copies doubles at every step: it is refused, not built."""
    n = 40
    inner = {
        "split_feature": "0", "split_gain": "1", "threshold": "5", "decision_type": str(1 << 2),
        "internal_value": "0", "internal_weight": "1", "internal_count": "1",
    }  # fmt: skip
    lines = [f"{name}={' '.join([value] * n)}" for name, value in inner.items()]
    lines += [f"left_child={' '.join(str(k + 1) for k in range(n - 1))} -1"]
    lines += [f"right_child={' '.join(str(-2 - k) for k in range(n))}"]
    lines += [f"leaf_{what}={' '.join(['1'] * (n + 1))}" for what in ("value", "weight", "count")]
    head = (
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=0\nobjective=regression\n"
        f"feature_names=a\nfeature_infos=[0:1]\n\nTree=0\nnum_leaves={n + 1}\nnum_cat=0\n"
    )
    with pytest.raises(ModelFileError, match="more than 131072 nodes"):
        import_lightgbm((head + "\n".join(lines) + "\nis_linear=0\n\nend of trees\n").encode())


@as_often(200)
@given(data=st.data())
def test_any_damage_is_a_model_or_refused(data: st.DataObject) -> None:
    """Whatever is done to the file, the outcome is a model that predicts, or a ModelFileError."""
    content = data.draw(damaged(FILE.encode(), "text"))
    try:
        model = import_lightgbm(content)
    except ModelFileError:
        return
    assert model.raw_scores(np.zeros((3, len(model.features)))).shape == (3, model.n_outputs)


@as_often(200)
@given(line=st.integers(0, 60), value=st.sampled_from(["nan", "-1", "1e308", "9" * 30, "0", "", "1 1 1 1", "x", "inf"]))
def test_any_value_in_any_line_is_a_model_or_refused(line: int, value: str) -> None:
    """Values that no line waits for, in each of them."""
    lines = FILE.splitlines()
    at = line % len(lines)
    lines[at] = f"{lines[at].partition('=')[0]}={value}"
    try:
        model = import_lightgbm("\n".join(lines).encode())
    except ModelFileError:
        return
    assert model.raw_scores(np.zeros((3, len(model.features)))).shape == (3, model.n_outputs)
