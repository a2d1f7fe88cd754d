"""`hedgerow predict` and `hedgerow export`: what a model file is good for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from hedgerow import Federation
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor, load_model
from twins.naive_pmml import NaivePmml


@pytest.fixture
def model(run: Any, people: Path) -> Path:
    """A small classifier of answers."""
    args = ("train", "--data", people / "train.parquet", "--label", "answer", "--set", "max_iter=5", "--quiet")
    run(*args, "--drop", "id", "--drop", "weight", "--drop", "amount", "--out", people / "m.json")
    return people / "m.json"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_predictions_are_those_of_the_library(kind: str, run: Any, people: Path, model: Path) -> None:
    """Columns are found by name among others, ids are copied, probabilities have their class in the name."""
    out = people / f"scored.{kind}"
    told = run("predict", model, people / f"test.{kind}", "--out", out, "--proba", "--keep", "id", "--json").json
    scored = pq.read_table(out) if kind == "parquet" else pc.read_csv(out)
    assert told["columns"] == scored.column_names == ["id", "prediction", "probability_no", "probability_yes"]
    assert told["rows"] == scored.num_rows == 300
    estimator = load_model(model)
    X = pq.read_table(people / "test.parquet").select(["town", "age", "income"])
    assert scored.column("prediction").to_pylist() == estimator.predict(X).tolist()
    np.testing.assert_allclose(scored.column("probability_yes").to_numpy(), estimator.predict_proba(X)[:, 1])
    assert scored.column("id").to_pylist() == list(range(300))


def test_predictions_may_go_to_stdout(run: Any, people: Path, model: Path) -> None:
    """`--out -` prints CSV, and cannot be combined with --json."""
    lines = run("predict", model, people / "test.csv", "--out", "-").stdout.splitlines()
    assert lines[0] == '"prediction"'
    assert len(lines) == 301
    assert "both want stdout" in run("predict", model, people / "test.csv", "--out", "-", "--json", code=2).stderr


def test_a_dry_run_writes_nothing(run: Any, people: Path, model: Path) -> None:
    """The model and the columns are checked."""
    told = run("predict", model, people / "test.csv", "--out", people / "x.csv", "--dry-run")
    assert "300 rows can be predicted" in told.stderr
    assert not (people / "x.csv").exists()


def test_levels_that_look_like_numbers_stay_text(run: Any, people: Path) -> None:
    """A CSV file's 01 is the level "01" of the model, not the number 1."""
    codes = ["01", "02"] * 50
    table = pa.table({"code": codes, "noise": np.arange(100.0), "y": [code == "01" for code in codes]})
    pq.write_table(table, people / "codes.parquet")
    pc.write_csv(table, people / "codes.csv", pc.WriteOptions(quoting_style="none"))
    run("train", "--data", people / "codes.parquet", "--label", "y", "--out", people / "c.json", "--set", "max_iter=3")
    run("predict", people / "c.json", people / "codes.csv", "--out", people / "p.parquet")
    assert pq.read_table(people / "p.parquet").column("prediction").to_pylist() == table.column("y").to_pylist()


def test_a_model_without_names_goes_by_position(run: Any, people: Path) -> None:
    """Trained on a bare array, it takes a file with as many columns, whatever they are called."""
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = BoostedTreesRegressor(max_iter=3).fit(X, X[:, 0])
    model.save_model(people / "bare.json")
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), people / "ab.parquet")
    run("predict", people / "bare.json", people / "ab.parquet", "--out", people / "p.parquet")
    np.testing.assert_array_equal(pq.read_table(people / "p.parquet").column("prediction").to_numpy(), model.predict(X))
    told = run("predict", people / "bare.json", people / "test.parquet", "--out", people / "p.csv", code=3)
    assert "trained on 2 columns without names, but the file has 7" in told.stderr
    told = run("predict", people / "bare.json", people / "ab.parquet", "--out", people / "p.csv", "--proba", code=2)
    assert "is a regressor, which has no probabilities" in told.stderr


def test_mistakes_have_their_exit_codes(run: Any, people: Path, model: Path) -> None:
    """Data is 3, the model file is 4, usage is 2; each time one line and no output."""
    out = people / "p.csv"
    pq.write_table(pq.read_table(people / "test.parquet").drop_columns(["age"]), people / "less.parquet")
    (people / "broken.json").write_text("{", encoding="utf-8")
    (people / "foreign.json").write_text('{"learner": {}}', encoding="utf-8")
    for args, code, words in [
        ((model, people / "less.parquet"), 3, "no column 'age', which the model needs"),
        ((model, people / "none.csv"), 3, "there is no such file"),
        ((people / "none.json", people / "test.csv"), 4, "none.json: there is no such model file"),
        ((people / "broken.json", people / "test.csv"), 4, "broken.json"),
        ((people / "foreign.json", people / "test.csv"), 4, "foreign.json"),
        ((model, people / "test.csv", "--keep", "idd"), 3, "no column 'idd', which --keep names; did you mean 'id'?"),
    ]:
        told = run("predict", *args, "--out", out, code=code)
        assert words in told.stderr
        assert len(told.stderr.splitlines()) == 1
    assert "must end in" in run("predict", model, people / "test.csv", "--out", people / "p.txt", code=2).stderr
    assert "choose another" in run("predict", model, people / "test.csv", "--out", people / "test.csv", code=2).stderr
    assert not out.exists()


def test_an_exported_model_predicts_the_same(run: Any, people: Path) -> None:
    """XGBoost reads the file; --json tells what was written; --dry-run writes nothing."""
    xgboost = pytest.importorskip("xgboost")
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    model = BoostedTreesClassifier(max_iter=4).fit(X, X[:, 0] > 0)
    model.save_model(people / "m.json")
    out = people / "xgb" / "x.json"
    run("export", people / "m.json", "--format", "xgboost", "--out", out, "--dry-run")
    assert not out.parent.exists()
    told = run("export", people / "m.json", "--format", "xgboost", "--out", out, "--json").json
    assert (told["format"], told["trees"]) == ("xgboost", 4)
    theirs = xgboost.Booster(model_file=str(out)).predict(xgboost.DMatrix(X))
    np.testing.assert_allclose(theirs, model.predict_proba(X)[:, 1], atol=1e-6)


def test_models_of_other_libraries_are_read_and_written(run: Any, people: Path) -> None:
    """A file of XGBoost predicts as it is, and leaves as LightGBM's text and as PMML; both say the same."""
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    data = xgboost.DMatrix(X, X[:, 0] > 0, feature_names=["a", "b", "c"])
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, data, 4)
    booster.save_model(people / "theirs.ubj")
    (people / "rows.csv").write_text("a,b,c\n" + "\n".join(",".join(map(repr, row)) for row in X.tolist()))
    run("predict", people / "theirs.ubj", people / "rows.csv", "--proba", "--out", people / "p.parquet")
    shares = pq.read_table(people / "p.parquet")["probability_1"].to_numpy()
    np.testing.assert_allclose(shares, booster.predict(data), atol=1e-6)
    for fmt in ("lightgbm", "pmml"):
        told = run("export", people / "theirs.ubj", "--format", fmt, "--out", people / f"m.{fmt}", "--json").json
        assert (told["format"], told["trees"]) == (fmt, 4)
    again = lightgbm.Booster(model_file=people / "m.lightgbm").predict(X.astype(np.float64))
    np.testing.assert_allclose(again, shares, atol=1e-6)
    read = NaivePmml((people / "m.pmml").read_bytes())
    found = [read.predict(dict(zip("abc", row, strict=True)))["1"] for row in X[:20].tolist()]
    np.testing.assert_allclose(found, shares[:20], atol=1e-6)


def test_one_part_of_a_saved_run_is_exported(run: Any, people: Path) -> None:
    """--party says whose; a model in parts leaves in no other format, and a party's part from no model file."""
    rng = np.random.default_rng(1)
    data = {"bank": rng.normal(size=(80, 2)), "shop": rng.normal(size=(80, 2))}
    fed = Federation.vertical(data, labels=("bank", data["shop"][:, 0] > 0))
    how: dict[str, Any] = {"epsilon": np.inf, "edges": "quantile", "n_estimators": 2, "max_depth": 2}
    fed.fit("vertical.bucket_rr", **how).save(people / "first")
    out = people / "shop.json"
    told = run("export", people / "first", "--party", "shop", "--format", "json", "--out", out, "--json").json
    assert (told["party"], told["format"]) == ("shop", "json")
    assert json.loads(out.read_text())["questions"][0]["column"] == "x0"
    for args, words in (
        (("first", "--format", "json"), "--party must say whose part"),
        (("first", "--format", "pmml", "--party", "shop"), "--party is for --format json"),
        (("rows.csv", "--format", "json"), "is for a model in parts"),
    ):
        assert words in run("export", people / args[0], *args[1:], "--out", people / "x.json", code=2).stderr


def test_models_for_onnx_and_treelite_predict_the_same(run: Any, people: Path) -> None:
    """Each program reads its file; --json tells the format."""
    onnxruntime, treelite = pytest.importorskip("onnxruntime"), pytest.importorskip("treelite")
    pytest.importorskip("onnx")
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = BoostedTreesClassifier(max_iter=4).fit(X, X[:, 0] > 0)
    model.save_model(people / "m.json")
    for fmt in ("onnx", "treelite"):
        told = run("export", people / "m.json", "--format", fmt, "--out", people / f"m.{fmt}", "--json").json
        assert told["format"] == fmt
    session = onnxruntime.InferenceSession(people / "m.onnx")
    (shares,) = session.run(["probabilities"], {"X": X})
    np.testing.assert_allclose(shares, model.predict_proba(X), atol=1e-6)
    second = treelite.gtil.predict(treelite.Model.deserialize(people / "m.treelite"), X, nthread=1)
    np.testing.assert_allclose(second.ravel(), model.predict_proba(X)[:, 1], atol=1e-6)


def test_export_mistakes_have_their_exit_codes(run: Any, people: Path, model: Path) -> None:
    """An unknown format is usage, a missing model is the model file's code."""
    told = run("export", model, "--format", "catboost", "--out", "x.json", code=2)
    assert "--format must be one of xgboost, lightgbm, onnx, pmml, treelite, json, got 'catboost'" in told.stderr
    run("export", people / "none.json", "--out", people / "x.json", code=4)
    told = run("export", model, "--out", model, "--json", code=2)
    assert "choose another --out" in told.json["error"]["message"]
    assert json.loads(model.read_text())


def test_a_model_that_xgboost_cannot_express_is_refused(run: Any, people: Path) -> None:
    """Exit code 5 with the reason, and no file."""
    table = pa.table({"a<b": np.arange(50.0), "y": (np.arange(50) > 20).tolist()})
    pq.write_table(table, people / "odd.parquet")
    run("train", "--data", people / "odd.parquet", "--label", "y", "--out", people / "odd.json", "--set", "max_iter=2")
    for more in ((), ("--dry-run",)):
        told = run("export", people / "odd.json", "--out", people / "xgb.json", *more, code=5)
        assert "'a<b'" in told.stderr
    assert not (people / "xgb.json").exists()
