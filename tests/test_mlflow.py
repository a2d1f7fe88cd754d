"""MLflow with a real tracking store in a folder: models come back and predict the same, and no row is logged."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hedgerow import BoostedTreesClassifier, BoostedTreesRegressor, DPBoostClassifier, Federation, Schema
from hedgerow.errors import InvalidInput, InvalidParameter, ModelFileError
from hedgerow.federation.vertical_model import VerticalModel
from twins.documented import blocks

pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow itself, about its own hints and dependencies

RNG = np.random.default_rng(0)
X = pd.DataFrame({"income": RNG.uniform(size=120), "age": RNG.integers(18, 90, 120).astype(float)})
Y = np.where(X["income"] > 0.5, "yes", "no")
SCHEMA = Schema.from_public(bounds={"income": (0, 1), "age": (18, 90)}, classes=["no", "yes"])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLflow on a new store; what it would tell its makers is switched off."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow
        import mlflow.pyfunc

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    yield mlflow
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def vertical() -> Any:
    """A run of a bank and a shop, and their rows."""
    parts = {"bank": X[["income"]].to_numpy(), "shop": X[["age"]].to_numpy()}
    fed = Federation.vertical(parts, labels=("bank", (X["income"] + X["age"] / 100 > 1).astype(int)))
    edges = {"x0": [30.0, 60.0]}
    run = fed.fit("vertical.bucket_rr", epsilon=4.0, edges=edges, n_estimators=2, max_depth=2)
    return run, parts


def texts_of(folder: Path) -> dict[str, str]:
    """Every file below, by its path."""
    return {
        str(each.relative_to(folder)): each.read_text(errors="replace") for each in folder.rglob("*") if each.is_file()
    }


def test_a_model_comes_back_and_predicts_the_same(store: Any) -> None:
    """Through our loader and through pyfunc; parameters, curves, tags and the report are with the run."""
    import hedgerow.mlflow

    model = BoostedTreesClassifier(max_iter=5, learning_rate=0.3).fit(X, Y, eval_set=[(X, Y)])
    with store.start_run() as run:
        logged = hedgerow.mlflow.log_model(model, "loans", pyfunc_method="predict_proba")
    again = hedgerow.mlflow.load_model(logged.model_uri)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(store.pyfunc.load_model(logged.model_uri).predict(X), model.predict_proba(X))
    kept = store.get_run(run.info.run_id).data
    assert (kept.params["max_iter"], kept.params["learning_rate"]) == ("5", "0.3")
    (curve,) = model.evals_result_["validation_0"].values()
    (name,) = model.evals_result_["validation_0"]
    history = store.tracking.MlflowClient().get_metric_history(run.info.run_id, f"validation_0_{name}")
    assert [point.value for point in sorted(history, key=lambda point: point.step)] == curve
    assert kept.tags["hedgerow.version"]
    report = store.artifacts.load_text(f"runs:/{run.info.run_id}/report.html")
    assert report == model.report().html


def test_a_private_model_keeps_its_statement(store: Any) -> None:
    """As JSON, in words, and in the model that is loaded."""
    import hedgerow.mlflow

    model = DPBoostClassifier(schema=SCHEMA, max_iter=2).fit(X, Y)
    with store.start_run() as run:
        logged = hedgerow.mlflow.log_model(model)
    place = f"runs:/{run.info.run_id}"
    assert json.loads(store.artifacts.load_text(f"{place}/statement.json")) == model.privacy_statement().to_dict()
    assert store.artifacts.load_text(f"{place}/statement.txt") == f"{model.privacy_statement()}\n"
    assert hedgerow.mlflow.load_model(logged.model_uri).privacy_statement() == model.privacy_statement()
    assert store.get_run(run.info.run_id).data.tags["hedgerow.protocol"] == "central.dpboost"


def test_a_run_of_owners_of_rows_is_logged_whole(store: Any) -> None:
    """Everybody has that model; without an active run MLflow begins one."""
    import hedgerow.mlflow

    rows = X.to_numpy(), (Y == "yes").astype(int)
    owners = {name: (rows[0][k::3], rows[1][k::3]) for k, name in enumerate("abc")}
    run = Federation.horizontal(owners).fit("horizontal.secure_sum", n_estimators=2, max_depth=2)
    logged = hedgerow.mlflow.log_model(run, party="a")
    np.testing.assert_array_equal(
        store.pyfunc.load_model(logged.model_uri).predict(rows[0]), run.model.predict(rows[0])
    )
    active = store.active_run().info.run_id
    assert json.loads(store.artifacts.load_text(f"runs:/{active}/statement.json")) == run.statement("a").to_dict()
    tags = store.get_run(active).data.tags
    assert (tags["hedgerow.protocol"], tags["hedgerow.party"]) == ("horizontal.secure_sum", "a")


def test_of_a_model_in_parts_a_party_logs_its_own(store: Any, vertical: Any, tmp_path: Path) -> None:
    """The shop's store has no tree and the bank's no threshold of the shop; together they predict the same."""
    import hedgerow.mlflow

    run, rows = vertical
    loaded, written = {}, {}
    for party in ("bank", "shop"):
        store.set_tracking_uri((tmp_path / party).as_uri())
        with store.start_run():
            logged = hedgerow.mlflow.log_model(run, party=party)
        loaded[party] = hedgerow.mlflow.load_model(logged.model_uri)
        written[party] = texts_of(tmp_path / party)
        with pytest.raises(store.MlflowException, match="flavor"):
            store.pyfunc.load_model(logged.model_uri)
    assert [name for name in written if any('"splits":[{' in text for text in written[name].values())] == ["shop"]
    assert [name for name in written if any('"trees":[' in text for text in written[name].values())] == ["bank"]
    again = VerticalModel(loaded)
    np.testing.assert_array_equal(again.predict_proba(rows), run.model.predict_proba(rows))


@pytest.mark.usefixtures("store")
def test_what_cannot_be_logged_is_told(vertical: Any, tmp_path: Path) -> None:
    """No party, a stranger, all parts at once, something else, a method that is not there, a folder in use."""
    import hedgerow.mlflow

    run, _ = vertical
    plain = BoostedTreesRegressor(max_iter=1).fit(X, X["age"])
    for given, more, error, words in (
        (run, {}, InvalidParameter, "party must say who logs, one of bank, shop"),
        (run, {"party": "dealer"}, InvalidParameter, "no place may hold them all, got 'dealer'"),
        (run.model, {}, InvalidInput, "logged with their run"),
        (object(), {}, InvalidInput, "must be a fitted estimator or a run of Hedgerow, got object"),
        (plain, {"party": "bank"}, InvalidParameter, "leave it out for an estimator"),
        (plain, {"pyfunc_method": "predict_proba"}, InvalidParameter, "has no predict_proba"),
        (plain, {"pyfunc_method": "__init__"}, InvalidParameter, "must be one of predict"),
    ):
        with pytest.raises(error, match=words):
            hedgerow.mlflow.log_model(given, **more)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="is not empty"):
        hedgerow.mlflow.save_model(plain, tmp_path / "used")
    assert not (tmp_path / "store").exists()


def test_nothing_in_the_store_is_a_pickle_or_a_row(store: Any, tmp_path: Path) -> None:
    """Of columns whose values cannot be mistaken for anything else none is found; files are text, JSON and YAML."""
    import hedgerow.mlflow

    odd = pd.DataFrame({"a": 1000.0 + np.arange(60) * 0.123456789, "b": RNG.normal(size=60)})
    model = BoostedTreesRegressor(max_iter=2, max_bins=3).fit(odd, odd["a"])
    with store.start_run():
        hedgerow.mlflow.log_model(model)
    written = texts_of(tmp_path / "store")
    found = {re.sub(r".*\.", ".", Path(name).name) for name in written}
    assert not {".pkl", ".pickle", ".joblib", ".parquet", ".csv"} & found
    for value in odd["a"]:
        assert not any(f"{value:.6f}" in text for text in written.values())


def test_a_saved_folder_is_read_back_and_damage_is_told(store: Any, tmp_path: Path) -> None:
    """Without any run; an MLmodel of others, or a damaged model, is refused in our words."""
    import hedgerow.mlflow

    model = BoostedTreesRegressor(max_iter=2).fit(X, X["age"])
    hedgerow.mlflow.save_model(model, tmp_path / "saved")
    again = hedgerow.mlflow.load_model(str(tmp_path / "saved"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    about = (tmp_path / "saved" / "MLmodel").read_text()
    (tmp_path / "saved" / "MLmodel").write_text(about.replace("kind: model", "kind: ../../elsewhere"))
    with pytest.raises(ModelFileError, match="does not describe a model of Hedgerow"):
        hedgerow.mlflow.load_model(str(tmp_path / "saved"))
    (tmp_path / "saved" / "MLmodel").write_text(about)
    (tmp_path / "saved" / "model.json").write_text("{")
    with pytest.raises(ModelFileError, match="not a complete JSON"):
        store.pyfunc.load_model(str(tmp_path / "saved"))


@pytest.mark.usefixtures("store")
def test_the_examples_of_the_page_run() -> None:
    """Those of elsewhere.md, in the order of the page, with its own assertions."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("treelite")
    shown, names = blocks("reference/elsewhere.md"), {}
    assert [block.language for block in shown] == ["python", "python", "python"]
    for block in shown:
        exec(compile(block.text, "elsewhere.md", "exec"), names)  # noqa: S102 - our own documentation
