"""Federations whose columns are split: fitting, the model in parts, predictions and explanations by all parties."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hedgerow import Federation
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.table import read_table
from hedgerow.errors import ExportRefused, InvalidInput, InvalidParameter, ModelFileError
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.common.parts import Target
from hedgerow.protocols.vertical.common.readable import export_part
from hedgerow.transport.emulate import Link
from twins.random_parts import random_shared

RNG = np.random.default_rng(5)
N = 400
EVERYBODY = pd.DataFrame(
    {
        "income": RNG.normal(3000, 800, N).round(),
        "debt": np.where(RNG.random(N) < 0.1, np.nan, RNG.exponential(500, N)),
        "basket": RNG.lognormal(3, 1, N),
        "region": pd.Categorical(RNG.choice(["north", "east", "south"], N)),
        "calls": RNG.poisson(4, N).astype(np.float32),
    }
)
REPAID = np.where(
    EVERYBODY["income"] / 800
    - EVERYBODY["debt"].fillna(0) / 400
    + 2 * (EVERYBODY["region"] == "east")
    + EVERYBODY["calls"] / 3
    + RNG.normal(size=N)
    > 4.5,
    "yes",
    "no",
)
HOLDERS = {"bank": ["income", "debt"], "shop": ["basket", "region"], "telco": ["calls"]}
EXACT = {"epsilon": math.inf, "edges": "quantile", "n_estimators": 8, "max_depth": 3, "learning_rate": 0.3}


def by_party(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Everybody's columns of some rows."""
    return {party: table[columns] for party, columns in HOLDERS.items()}


@pytest.fixture(scope="module")
def run() -> Run:
    """A model without noise, trained in memory."""
    return Federation.vertical(by_party(EVERYBODY), labels=("bank", REPAID)).fit("vertical.bucket_rr", **EXACT)


def pooled(run: Run, labels=REPAID, weight=None):
    """What the plain engine makes of all columns in one table, with the same bins."""
    parts = run.model.parts
    features = (*parts["bank"].features, *parts["shop"].features, *parts["telco"].features)
    table = read_table(EVERYBODY, like=features)
    mapper = BinMapper(features)
    classes, codes = np.unique(labels, return_inverse=True)
    params = run.job.for_labels(len(classes), (0.0, 1.0))
    return train(params, mapper, mapper.transform(table), codes.astype(float), weight).ensemble, table


def test_scores_are_those_of_the_pooled_model(run):
    """Bit for bit, for the rows of training and in another order of rows."""
    ensemble, table = pooled(run)
    assert np.array_equal(run.model.decision_function(by_party(EVERYBODY)), ensemble.raw_scores(table)[:, 0])
    backwards = by_party(EVERYBODY.iloc[::-1])
    assert np.array_equal(run.model.decision_function(backwards), ensemble.raw_scores(table)[::-1, 0])


def test_predictions_are_what_scikit_learn_users_expect(run):
    """Classes as they were given, probabilities that add up, accuracy above chance."""
    shares = run.model.predict_proba(by_party(EVERYBODY))
    assert run.model.classes_.tolist() == ["no", "yes"]
    assert shares.shape == (N, 2)
    assert np.allclose(shares.sum(axis=1), 1)
    predicted = run.model.predict(by_party(EVERYBODY))
    assert np.array_equal(predicted, np.where(shares[:, 1] > 0.5, "yes", "no"))
    assert run.model.score(by_party(EVERYBODY), REPAID) == np.mean(predicted == REPAID) > 0.8
    assert run.model.n_iter_ == 8
    assert "bank asks shop: " in repr(run.model)


def test_processes_give_the_same_scores(run):
    """Training and scoring over mutual TLS equal those in memory."""
    fed = Federation.vertical(by_party(EVERYBODY), labels=("bank", REPAID))
    apart = fed.fit("vertical.bucket_rr", transport="grpc", **EXACT)
    scored = apart.model.scoring(by_party(EVERYBODY), transport="grpc")
    assert np.array_equal(scored.raw[:, 0], run.model.decision_function(by_party(EVERYBODY)))
    assert set(scored.traffic) == set(HOLDERS)
    assert scored.ledgers["shop"].lines("learned", "telco") == []


def test_regression_with_two_parties():
    """Numbers as labels; R^2 as the score, no probabilities."""
    target = EVERYBODY["income"].to_numpy() / 100 + 10 * EVERYBODY["calls"].to_numpy()
    data = {"a": EVERYBODY[["income"]], "b": EVERYBODY[["calls", "basket"]]}
    fitted = Federation.vertical(data, labels=("a", target), task="regression").fit("vertical.bucket_rr", **EXACT)
    assert fitted.model.score(data, target) > 0.9
    with pytest.raises(AttributeError, match="no probabilities"):
        fitted.model.predict_proba(data)
    with pytest.raises(AttributeError, match="no classes"):
        _ = fitted.model.classes_


def test_randomised_answers(run):
    """With predict_epsilon scores differ from the plain ones, the ledger has the event, the statement the cost."""
    plain = run.model.scoring(by_party(EVERYBODY))
    noisy = run.model.scoring(by_party(EVERYBODY), predict_epsilon=1.0)
    assert not np.array_equal(plain.raw, noisy.raw)
    assert plain.ledgers["shop"].events() == []
    assert len(noisy.ledgers["shop"].events()) == 1
    assert noisy.statement().guarantee[0].startswith("One value of one column: epsilon = 1, towards bank")
    assert "which way" in str(plain.statement())


def test_one_round_trip_however_many_trees(run):
    """Feature holders send one message of answers for all rows and trees, and receive one."""
    scored = run.model.scoring(by_party(EVERYBODY))
    counts = scored.traffic["shop"]["counts"]
    assert sum(entry["messages_sent"] for entry in [scored.traffic["shop"]["total"]]) == 2, counts
    slow = run.model.scoring(by_party(EVERYBODY), link=Link(round_trip=0.05))
    assert 0.07 < slow.seconds < 0.6


def test_explanations_add_up_and_stay_with_their_party(run):
    """Contributions and the expected value make the raw score; importances are those of the pooled model."""
    few = by_party(EVERYBODY.iloc[:30])
    parts = run.model.contributions(few)
    total = sum(part.values.sum(axis=1)[:, 0] for part in parts.values()) + parts["bank"].expected[0]
    assert np.allclose(total, run.model.decision_function(few), atol=1e-5)
    assert {party: part.columns for party, part in parts.items()} == {k: tuple(v) for k, v in HOLDERS.items()}
    ensemble, _ = pooled(run)
    found = run.model.importances()
    together = [value for party in HOLDERS for value in found[party].values()]
    assert together == pytest.approx(ensemble.importances().tolist())
    assert sum(run.model.importances("count")["shop"].values()) > 0


def test_files_are_one_per_party(run, tmp_path):
    """A party's folder has its own thresholds and no other's; all together are the model."""
    run.save(tmp_path / "run")
    files = sorted(
        path.relative_to(tmp_path / "run" / "model").as_posix() for path in (tmp_path / "run").rglob("part.json")
    )
    assert files == [f"{party}/part.json" for party in HOLDERS]
    bank = (tmp_path / "run" / "model" / "bank" / "part.json").read_text()
    assert "basket" not in bank
    assert "region" not in bank
    shop = json.loads((tmp_path / "run" / "model" / "shop" / "part.json").read_text())
    assert {split["column"] for split in shop["splits"]} <= set(HOLDERS["shop"])
    again = Run.load(tmp_path / "run")
    assert np.array_equal(
        again.model.decision_function(by_party(EVERYBODY)), run.model.decision_function(by_party(EVERYBODY))
    )
    assert str(again.statement()) == str(run.statement())
    (tmp_path / "run" / "model" / "parties.json").unlink()
    with pytest.raises(ModelFileError, match="holds no model in parts"):
        VerticalModel.load(tmp_path / "run" / "model")


def test_a_whole_model_is_refused(run, tmp_path):
    """Formats for one reader would disclose thresholds and trees: the error says whose."""
    for export in (run.model.export_xgboost, run.model.export_onnx, run.model.export_treelite, run.model.save_model):
        with pytest.raises(ExportRefused, match=r"would show bank the thresholds of shop, telco"):
            export(tmp_path / "model.json")
    assert not (tmp_path / "model.json").exists()


def test_parts_of_two_models_do_not_mix(run):
    """Another run's part, a part under another name, no label holder: clear errors that name the party."""
    other = Federation.vertical(by_party(EVERYBODY), labels=("bank", REPAID)).fit("vertical.bucket_rr", **EXACT)
    with pytest.raises(InvalidInput, match=r"shop: its part is that of shop in run .*, of another model"):
        VerticalModel({**run.model.parts, "shop": other.model.parts["shop"]})
    with pytest.raises(InvalidInput, match="one label holder's part, got 0"):
        VerticalModel({"shop": run.model.parts["shop"]})
    with pytest.raises(InvalidInput, match="telco: its part of the model is not there"):
        VerticalModel({party: run.model.parts[party] for party in ("bank", "shop")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: {**rows, "shop": rows["shop"][:50]}, r"shop: has 50 rows, but bank has 400"),
        (lambda rows: {party: rows[party] for party in ("bank", "shop")}, r"telco: its table of the rows is not there"),
        (lambda rows: {**rows, "post": rows["shop"]}, r"'post' is not a party of this model"),
        (lambda rows: {**rows, "shop": rows["shop"][["basket"]]}, r"shop: X.*region"),
        (lambda rows: rows["bank"], r"rows are given by party"),
    ],
)
def test_rows_that_cannot_be_scored(run, change, message):
    """The error names the party and what is wrong."""
    with pytest.raises(InvalidInput, match=message):
        run.model.predict(change(by_party(EVERYBODY)))


# --- closed scoring --------------------------------------------------------------------------------------------------


def test_closed_scoring_gives_the_same_scores(run):
    """Without answers: near the open ones, whose 32-bit sums are rounded; predictions are the same."""
    rows = by_party(EVERYBODY)
    plain, closed = run.model.scoring(rows), run.model.scoring(rows, closed=True)
    assert np.abs(plain.raw - closed.raw).max() < 1e-5
    assert np.array_equal(run.model.predict(rows, closed=True), run.model.predict(rows))
    assert run.model.score(rows, REPAID, closed=True) == run.model.score(rows, REPAID)
    assert set(closed.traffic) == {*HOLDERS, "dealer"}
    assert closed.rounds == 3
    assert closed.answered == {}
    assert "bank learned the scores, and about which way rows go only what" in str(closed.statement())
    assert "which way it goes" in str(plain.statement())
    with pytest.raises(InvalidParameter, match=r"predict_epsilon must be None in a closed scoring.*got 1\.0"):
        run.model.predict(rows, closed=True, predict_epsilon=1.0)
    with pytest.raises(InvalidParameter, match="dealer must be a party of its own"):
        run.model.predict(rows, closed=True, dealer="shop")


def test_models_whose_leaves_are_shared(tmp_path):
    """They are scored on shares, saved and loaded as parts, and neither explained nor written as one file."""
    rng = np.random.default_rng(6)
    made = random_shared(rng, tuple(HOLDERS), n_trees=4, depth=3)
    rows = made.rows(rng, 40)
    target = Target("squared", tuple(made.pooled.base_scores.tolist()), 0.5)
    VerticalModel({**made.parts, "bank": replace(made.parts["bank"], target=target)}).save(tmp_path / "model")
    model = VerticalModel.load(tmp_path / "model")
    assert np.abs(model.decision_function(rows) - made.exact_scores(rows)[:, 0]).max() < 1e-11
    assert np.array_equal(model.predict(rows), model.decision_function(rows))
    assert (model.n_iter_, model.label_holder, model.meta) == (4, "bank", {"n_rows": 7})
    assert repr(model) == "VerticalModel(4 iterations, leaves shared among bank, shop, telco)"
    assert model.scoring(rows).job.NAME == "vertical.closed_scoring"
    for explain in (model.importances, lambda: model.contributions(rows)):
        with pytest.raises(InvalidInput, match="cannot be explained: its leaf values are shared among bank, shop, tel"):
            explain()
    with pytest.raises(InvalidParameter, match="predict_epsilon must be None"):
        model.predict(rows, predict_epsilon=1.0)
    for export in (model.export_xgboost, model.export_onnx, model.export_treelite, model.save_model):
        with pytest.raises(
            ExportRefused, match="leaf values are shared among bank, shop, telco, and nobody knows them"
        ):
            export(tmp_path / "model.json")


def test_classes_of_a_model_whose_leaves_are_shared():
    """Classes and probabilities are the label holder's to know."""
    rng = np.random.default_rng(7)
    made = random_shared(rng, tuple(HOLDERS), n_trees=2, depth=3)
    target = Target("logistic", (0.1,), 0.5, ("no", "yes"))
    bank = replace(made.parts["bank"], target=target)
    model = VerticalModel({**made.parts, "bank": bank})
    rows = made.rows(rng, 30)
    assert model.classes_.tolist() == ["no", "yes"]
    shares = model.predict_proba(rows)
    assert np.array_equal(model.predict(rows), np.where(shares[:, 1] > 0.5, "yes", "no"))
    expected = made.exact_scores(rows)[:, 0] - made.pooled.base_scores[0] + 0.1
    assert np.allclose(shares[:, 1], 1 / (1 + np.exp(-expected)))


def test_parts_of_two_kinds_do_not_make_a_model(run):
    """Nor does one whose holders are not all there."""
    made = random_shared(np.random.default_rng(8), tuple(HOLDERS), n_trees=2, run_id=run.model.parts["bank"].run_id)
    with pytest.raises(InvalidInput, match="shop: its part is of another kind than that of bank"):
        VerticalModel({**run.model.parts, "shop": made.parts["shop"]})
    with pytest.raises(InvalidInput, match="telco: its part of the model is not there"):
        VerticalModel({party: made.parts[party] for party in ("bank", "shop")})
    with pytest.raises(InvalidInput, match="one label holder's part, got 0"):
        VerticalModel({"shop": made.parts["shop"]})


# --- ids -------------------------------------------------------------------------------------------------------------


def with_ids() -> tuple[dict[str, pd.DataFrame], np.ndarray]:
    """Tables of overlapping people in orders of their own; and the bank's labels."""
    tables = {}
    for k, (party, columns) in enumerate(HOLDERS.items()):
        rows = np.random.default_rng(k).permutation(np.arange(20 * k, N - 10 * k))
        tables[party] = EVERYBODY.iloc[rows][columns].assign(customer=[f"c{row:04d}" for row in rows])
    return tables, REPAID[[int(c[1:]) for c in tables["bank"]["customer"]]]


def test_rows_are_found_by_their_ids():
    """Training on tables in any order equals training on the common rows, in the order that was found."""
    tables, labels = with_ids()
    fed = Federation.vertical(tables, labels=("bank", labels), id="customer")
    found = fed.fit("vertical.bucket_rr", **EXACT)
    alignment = fed.alignment
    assert alignment.n_common == N - 40 - 20
    rows = alignment.rows["bank"]
    people = [int(c[1:]) for c in tables["bank"]["customer"].to_numpy()[rows]]
    assert [int(c[1:]) for c in tables["shop"]["customer"].to_numpy()[alignment.rows["shop"]]] == people
    plain = Federation.vertical(by_party(EVERYBODY.iloc[people]), labels=("bank", REPAID[people]))
    same = plain.fit("vertical.bucket_rr", **EXACT)
    everybody = by_party(EVERYBODY)
    assert np.array_equal(found.model.decision_function(everybody), same.model.decision_function(everybody))
    assert found.alignment is alignment is fed.align()
    assert "340 ids are common to all" in str(alignment.statement())


def test_a_run_keeps_its_alignment(tmp_path):
    """Saved beside the model, and read back."""
    tables, labels = with_ids()
    found = Federation.vertical(tables, labels=("bank", labels), id="customer").fit("vertical.bucket_rr", **EXACT)
    found.save(tmp_path / "run")
    again = Run.load(tmp_path / "run")
    assert again.alignment.n_common == 340
    assert np.array_equal(again.alignment.rows["telco"], found.alignment.rows["telco"])


def test_ids_that_cannot_be_used():
    """Twice the same, missing, no such column, nobody in common: the party is named, and no id is shown."""
    tables, labels = with_ids()

    def refused(message, change, **how):
        with pytest.raises((InvalidInput, InvalidParameter), match=message) as error:
            Federation.vertical({**tables, **change}, labels=("bank", labels), id="customer", **how).align()
        assert "c0" not in str(error.value)

    twice = tables["shop"].assign(customer=lambda t: t["customer"].where(np.arange(len(t)) > 3, "c0100"))
    refused(r"shop: .*customer", {"shop": twice})
    refused(r"telco", {"telco": tables["telco"].drop(columns="customer")})
    refused(r"shop: .*missing", {"shop": tables["shop"].assign(customer=None)})
    refused(r"fewer", {"shop": tables["shop"].assign(customer=[f"x{k}" for k in range(len(tables["shop"]))])})
    refused(r"shop: brings no column", {"shop": tables["shop"][["customer"]]})


# --- what cannot be trained ------------------------------------------------------------------------------------------


def test_a_party_without_columns_is_named():
    """Before anything moves."""
    with pytest.raises(InvalidInput, match="shop: brings no column"):
        Federation.vertical({**by_party(EVERYBODY), "shop": EVERYBODY[[]]}, labels=("bank", REPAID))


def test_an_empty_column_is_named():
    """A column of missing values only, at a feature holder and at the label holder, where rows may raise errors."""
    for party in ("shop", "bank"):
        tables = by_party(EVERYBODY)
        tables[party] = tables[party].assign(nothing=np.nan)
        with pytest.raises(InvalidInput, match=rf"{party}: column 'nothing'"):
            Federation.vertical(tables, labels=("bank", REPAID)).fit("vertical.bucket_rr", on_bad_rows="raise", **EXACT)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"buckets": 1}, "buckets"),
        ({"buckets": 257}, "buckets"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"monotonic_cst": {"region": 1}}, "monotonic_cst"),
        ({"warm_start": True}, "warm_start"),
    ],
)
def test_parameters_out_of_range(params, message):
    """The error names the parameter."""
    fed = Federation.vertical(by_party(EVERYBODY), labels=("bank", REPAID))
    with pytest.raises(InvalidParameter, match=message):
        fed.fit("vertical.bucket_rr", **{**EXACT, **params})


def test_services_do_not_train():
    """Scoring and the like are not protocols for fit, and are not among those that the error lists."""
    fed = Federation.vertical(by_party(EVERYBODY), labels=("bank", REPAID))
    with pytest.raises(InvalidParameter, match=r"vertical.scoring trains nothing; there are .*vertical.bucket_rr"):
        fed.fit("vertical.scoring")


def test_categorical_features_by_party():
    """A column of numbers is taken for levels where its party says so."""
    tables = by_party(EVERYBODY)
    fed = Federation.vertical(tables, labels=("bank", REPAID), categorical_features={"telco": ["calls"]})
    fitted = fed.fit("vertical.bucket_rr", **EXACT)
    assert fitted.model.parts["telco"].features[0].levels is not None
    with pytest.raises(InvalidParameter, match="'post', which is not one of"):
        Federation.vertical(tables, labels=("bank", REPAID), categorical_features={"post": []})


def test_aligning_needs_ids():
    """Without a column of ids there is nothing to align by."""
    with pytest.raises(InvalidParameter, match="aligned by a column of ids"):
        Federation.vertical(by_party(EVERYBODY), labels=("bank", REPAID)).align()
    with pytest.raises(InvalidParameter, match="no id was given"):
        Federation.vertical(by_party(EVERYBODY), labels=("bank", REPAID), id_rule={})


# --- the other protocol ----------------------------------------------------------------------------------------------


def test_noised_gradients_through_the_federation():
    """Without noise it scores as the pooled engine does; with noise its statement has the budget; both explain."""
    tables = by_party(EVERYBODY)
    fed = Federation.vertical(tables, labels=("bank", REPAID))
    trees = {"n_estimators": 6, "max_depth": 3, "learning_rate": 0.3}
    plain = fed.fit("vertical.noised_gradients", epsilon=math.inf, max_bins=16, **trees)
    ensemble, table = pooled(plain)
    assert np.array_equal(plain.model.decision_function(tables), ensemble.raw_scores(table)[:, 0])
    assert plain.meta["stamp"] == "NOT PRIVATE"
    noisy = fed.fit("vertical.noised_gradients", epsilon=8.0, delta=1e-5, **trees)
    assert noisy.statement().guarantee[0].startswith("One label: epsilon = 8 and delta = 1e-5, towards the feature")
    assert noisy.model.score(tables, REPAID) > 0.6
    parts = noisy.model.contributions(tables)
    total = sum(part.values.sum(axis=1)[:, 0] for part in parts.values()) + parts["bank"].expected[0]
    assert np.allclose(total, noisy.model.decision_function(tables), atol=1e-4)
    with pytest.raises(ExportRefused, match="thresholds of"):
        noisy.model.export_xgboost("model.json")
    with pytest.raises(InvalidParameter, match="epsilon and delta"):
        fed.fit("vertical.noised_gradients", **trees)


def test_homomorphic_through_the_federation():
    """It scores as the pooled engine does, in memory and over gRPC alike, bit for bit; it explains, and hides edges."""
    tables = by_party(EVERYBODY)
    fed = Federation.vertical(tables, labels=("bank", REPAID))
    how = {"n_estimators": 3, "max_depth": 3, "learning_rate": 0.3, "max_bins": 16}
    here = fed.fit("vertical.homomorphic", **how)
    ensemble, table = pooled(here)
    assert np.array_equal(here.model.decision_function(tables), ensemble.raw_scores(table)[:, 0])
    shares = here.model.predict_proba(tables)
    assert np.allclose(shares.sum(axis=1), 1)
    assert here.model.score(tables, REPAID) > 0.7
    parts = here.model.contributions(tables)
    total = sum(part.values.sum(axis=1)[:, 0] for part in parts.values()) + parts["bank"].expected[0]
    assert np.allclose(total, here.model.decision_function(tables), atol=1e-4)
    with pytest.raises(ExportRefused, match="thresholds of"):
        here.model.export_xgboost("model.json")
    apart = fed.fit("vertical.homomorphic", transport="grpc", n_jobs=2, **how)
    assert np.array_equal(apart.model.predict_proba(tables), shares)
    assert apart.meters["bank"].total().bytes_sent == here.meters["bank"].total().bytes_sent
    for name, part in here.model.parts.items():
        theirs, ours = apart.model.parts[name].to_dict(), part.to_dict()
        what = "model" if name == "bank" else "splits"
        assert theirs[what] == ours[what]


RATED = np.where(RNG.random(N) < 0.3, "later", REPAID)
WEIGHT = RNG.integers(0, 3, N) * 0.5
FEW = {"n_estimators": 2, "max_depth": 3, "learning_rate": 0.3, "max_bins": 16}


def test_several_classes_and_weights_through_the_federation(tmp_path):
    """Everything that is done with a model is done with one of three classes, trained with weights of rows."""
    tables = by_party(EVERYBODY)
    fed = Federation.vertical(tables, labels=("bank", RATED), sample_weight=WEIGHT)
    run = fed.fit("vertical.homomorphic", **FEW)
    ensemble, table = pooled(run, RATED, WEIGHT)
    raw = ensemble.raw_scores(table)
    assert np.array_equal(run.model.decision_function(tables), raw)
    shares = run.model.predict_proba(tables)
    assert shares.shape == (N, 3)
    assert np.allclose(shares.sum(axis=1), 1)
    assert run.model.classes_.tolist() == ["later", "no", "yes"]
    assert run.model.n_iter_ == 2
    assert np.array_equal(run.model.predict(tables), run.model.classes_[shares.argmax(axis=1)])
    assert np.allclose(run.model.scoring(tables, closed=True).raw, raw, atol=1e-4)
    assert run.model.scoring(tables, predict_epsilon=2.0).raw.shape == raw.shape
    parts = run.model.contributions(tables)
    assert parts["shop"].values.shape == (N, 2, 3)
    total = sum(part.values.sum(axis=1) for part in parts.values()) + parts["bank"].expected
    assert np.allclose(total, raw, atol=1e-4)
    assert sum(sum(columns.values()) for columns in run.model.importances().values()) > 0
    run.save(tmp_path)
    loaded = Run.load(tmp_path)
    assert np.array_equal(loaded.model.predict_proba(tables), shares)
    assert loaded.statement() == run.statement()
    assert "how many classes the labels have" in run.statement().guarantee[1]
    assert "how many classes the labels have" in run.ledgers["shop"].to_text()
    assert run.model.meta["weighted"]
    assert "weighted" not in run.model.parts["shop"].meta
    apart = fed.fit("vertical.homomorphic", transport="grpc", **FEW)
    assert np.array_equal(apart.model.decision_function(tables), raw)


def test_weights_follow_their_rows_through_the_matching():
    """The label holder's rows are in another order at the others, and some are nobody else's."""
    tables = {name: table.assign(id=np.arange(N)) for name, table in by_party(EVERYBODY).items()}
    how = {"labels": ("bank", RATED), "sample_weight": WEIGHT}
    tables["shop"] = tables["shop"].iloc[::-1]
    tables["telco"] = tables["telco"].iloc[50:]
    matched = Federation.vertical(tables, **how, id="id").fit("vertical.homomorphic", **FEW)
    there = {name: table.iloc[50:] for name, table in by_party(EVERYBODY).items()}
    alike = Federation.vertical(there, labels=("bank", RATED[50:]), sample_weight=pd.Series(WEIGHT[50:]))
    expected = alike.fit("vertical.homomorphic", **FEW)
    rows = by_party(EVERYBODY)
    assert np.array_equal(matched.model.decision_function(rows), expected.model.decision_function(rows))


def test_weights_that_nobody_takes_are_refused():
    """By name of the protocol, before anything is run, with a way out; or by row, where they are none."""
    tables = by_party(EVERYBODY)
    fed = Federation.vertical(tables, labels=("bank", REPAID), sample_weight=WEIGHT)
    said = r"bank: sample_weight is given: vertical\.mp_fedxgb does not offer weights of rows"
    with pytest.raises(InvalidParameter, match=said):
        fed.fit("vertical.mp_fedxgb", accept_known_leaks=True, **FEW)
    with pytest.raises(InvalidParameter, match=r"protocols that offer it: .*vertical\.homomorphic"):
        fed.plan("vertical.private_histograms", epsilon=math.inf)
    for wrong, says in (
        (WEIGHT[1:], "bank: sample_weight"),
        (-WEIGHT, "bank: sample_weight.*at least 0"),
        (np.where(WEIGHT > 0, np.nan, 1.0), "bank: sample_weight"),
        (0 * WEIGHT, "all weights in bank: sample_weight are zero"),
    ):
        with pytest.raises(InvalidInput, match=says):
            Federation.vertical(tables, labels=("bank", REPAID), sample_weight=wrong)


NUMBERS = {"bank": ["income", "debt"], "shop": ["basket"], "telco": ["calls"]}
SHARED = {"n_estimators": 3, "max_depth": 3, "learning_rate": 0.3, "max_bins": 16}


def test_secret_shares_through_the_federation():
    """The trees of the pooled engine in memory and over mutual TLS; only masked words and winners on the wire."""
    tables = {party: EVERYBODY[columns] for party, columns in NUMBERS.items()}
    fed = Federation.vertical(tables, labels=("bank", REPAID))
    runs = [fed.fit("vertical.secret_shared", transport=transport, **SHARED) for transport in ("memory", "grpc")]
    scores = [fitted.model.decision_function(tables) for fitted in runs]
    assert np.array_equal(*scores)
    parts = runs[0].model.parts
    features = (*parts["bank"].features, *parts["shop"].features, *parts["telco"].features)
    mapper, table = (
        BinMapper(features),
        read_table(EVERYBODY[[name for names in NUMBERS.values() for name in names]], like=features),
    )
    params = Scales.of(runs[0].job, N).boosting(runs[0].job.for_labels(2, (0.0, 1.0)))
    twin = train(params, mapper, mapper.transform(table), (REPAID == "yes").astype(float)).ensemble
    assert np.array_equal(scores[0], twin.raw_scores(table)[:, 0])
    assert runs[0].ledgers["dealer"].lines("learned", "shop")[0].message == "vertical.on_shares.seed"
    assert "Labels, gradients, sums, gains and values of columns were opened to nobody" in str(runs[0].statement())
    assert "dealer" not in runs[0].model.parties
    assert runs[0].rounds["training"] <= 26 * runs[0].meta["levels"]


def test_secret_shares_refuse_what_they_cannot_do():
    """A monotone column, a dealer that is a party: the error names the parameter."""
    fed = Federation.vertical(by_party(EVERYBODY), labels=("bank", REPAID))
    with pytest.raises(InvalidParameter, match="monotonic_cst"):
        fed.fit("vertical.secret_shared", monotonic_cst={"income": 1}, **SHARED)
    with pytest.raises(InvalidParameter, match="dealer must be a party of its own"):
        fed.fit("vertical.secret_shared", dealer="shop", **SHARED)


# --- explanations and parts for other tools --------------------------------------------------------------------------


def test_interactions_are_told_to_owners(run):
    """Each party has its own pairs; with what is elsewhere they are its contributions."""
    rows = by_party(EVERYBODY[:50])
    found, alone = run.model.interactions(rows), run.model.contributions(rows)
    for party, columns in HOLDERS.items():
        assert found[party].columns == tuple(columns)
        assert found[party].values.shape == (50, len(columns), len(columns), 1)
        summed = found[party].values.sum(axis=2) + found[party].elsewhere
        np.testing.assert_allclose(summed, alone[party].values, atol=1e-12)
    assert set(found["bank"].others) == {"shop", "telco"}


def test_permutation_importance_is_that_of_the_pooled_model(run):
    """Each owner shuffles its own column: the score falls as it does for one table with the column shuffled."""
    ensemble, table = pooled(run)
    model, rng = run.model, np.random.default_rng(3)
    found = model.permutation_importance(by_party(EVERYBODY), REPAID, n_repeats=2, random_state=3)
    assert {party: list(columns) for party, columns in found.items()} == HOLDERS
    best = model.score(by_party(EVERYBODY), REPAID)
    names = [name for columns in HOLDERS.values() for name in columns]
    asked = {j for tree in ensemble.trees for j in tree.feature.tolist()}
    for party, columns in HOLDERS.items():
        for name in columns:
            place = names.index(name)
            for k in range(2):
                if place not in asked:
                    assert found[party][name][k] == 0
                    continue
                shuffled = table.with_values(place, rng.permutation(table.columns[place].values))
                said = np.where(ensemble.raw_scores(shuffled)[:, 0] > 0, "yes", "no")
                assert found[party][name][k] == pytest.approx(best - np.mean(said == REPAID))
    assert found["bank"]["income"].mean() > 0.02
    some = model.permutation_importance(by_party(EVERYBODY), REPAID, columns={"telco": ["calls"]}, n_repeats=1)
    assert list(some) == ["telco"]
    with pytest.raises(InvalidInput, match="shop has no column 'income' in this model; there are basket, region"):
        model.permutation_importance(by_party(EVERYBODY), REPAID, columns={"shop": ["income"]})


def test_partial_dependence_is_that_of_the_pooled_model(run):
    """Levels, numbers and missing values that the owner puts into all rows: means of the pooled model's predictions."""
    ensemble, table = pooled(run)
    for party, column, values in (
        ("shop", "region", None),
        ("telco", "calls", [1.0, 6.0, None]),
        ("bank", "debt", None),
    ):
        found = run.model.partial_dependence(by_party(EVERYBODY), party, column, values=values, grid_resolution=4)
        place = [name for columns in HOLDERS.values() for name in columns].index(column)
        own = table.columns[place]
        for value, mean in zip(found.values, found.means, strict=True):
            given = value if own.levels is None else own.levels.index(value)
            same = np.full(N, np.nan if given is None else given, own.values.dtype)
            wanted = ensemble.predictions(ensemble.raw_scores(table.with_values(place, same))).mean(axis=0)
            np.testing.assert_allclose(mean, wanted, rtol=1e-12)
    assert len(found.values) == 4
    with pytest.raises(InvalidInput, match="no level 'west'"):
        run.model.partial_dependence(by_party(EVERYBODY), "shop", "region", values=["west"])


def test_parts_leave_one_by_one_for_other_tools(run, tmp_path):
    """A feature holder's conditions, run in a database, are its answers; the label holder's trees lead to scores."""
    duckdb = pytest.importorskip("duckdb")
    answers = {}
    for party in ("shop", "telco"):
        run.model.export(party, tmp_path / f"{party}.json")
        told = json.loads((tmp_path / f"{party}.json").read_text())
        assert told["role"] == "feature_holder"
        frame = EVERYBODY[HOLDERS[party]].astype({"region": str} if party == "shop" else {})
        connection = duckdb.connect()
        connection.register("own", frame)
        conditions = ", ".join(f"({question['left_if']}) AS h{question['handle']}" for question in told["questions"])
        query = f"SELECT {conditions} FROM own"  # noqa: S608 - our own conditions are what is tried
        answers[party] = connection.sql(query).df().to_numpy(bool)
    run.model.export("bank", tmp_path / "bank.json")
    text = (tmp_path / "bank.json").read_text()
    told = json.loads(text)
    assert "basket" not in text
    assert "region" not in text
    rows = EVERYBODY.to_dict("records")
    raw = np.full(N, told["target"]["base_scores"][0])
    for tree in told["trees"]:
        for i, row in enumerate(rows):
            node = tree["nodes"][0]
            while "value" not in node:
                if "party" in node:
                    left = answers[node["party"]][i, node["handle"]]
                else:
                    value = row[node["column"]]
                    left = (
                        node["missing"] == "left"
                        if math.isnan(value)
                        else node["below"] is None or value < node["below"]
                    )
                node = tree["nodes"][node["left"] if left else node["right"]]
            raw[i] += node["value"]
    np.testing.assert_allclose(raw, run.model.decision_function(by_party(EVERYBODY)), atol=1e-5)
    with pytest.raises(InvalidParameter, match="party must be one of bank, shop, telco, got 'nobody'"):
        run.model.export("nobody", tmp_path / "x.json")


def test_a_part_with_shared_leaves_is_told_without_its_words(tmp_path):
    """Own splits, shapes of trees, and no word of any leaf."""
    name, part = next(iter(random_shared(np.random.default_rng(1)).parts.items()))
    export_part(part, tmp_path / "part.json")
    told = json.loads((tmp_path / "part.json").read_text())
    assert told["party"] == name
    assert "leaves" not in json.dumps(told["trees"])
    assert len(told["trees"]) == len(part.trees)
    for tree, mine in zip(told["trees"], part.trees, strict=True):
        assert [node.get("column") is not None for node in tree["nodes"]] == (mine.column >= 0).tolist()
