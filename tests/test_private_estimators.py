"""The private estimators: scikit-learn's rules, a statement that is true, a budget that is asked first."""

from __future__ import annotations

import ast
import json
import math
import re
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score

from hedgerow import (
    DPBoostClassifier,
    DPBoostRegressor,
    PrivateBoostingClassifier,
    PrivateBoostingRegressor,
    Schema,
)
from hedgerow.errors import BudgetExceeded, ExportRefused, InvalidInput, InvalidParameter, ModelFileError
from hedgerow.estimators.plain import BoostedTreesClassifier, load_model
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.protocols.bad_rows import MISFITS_FACT
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.protocols.central.gaussian.training import GaussianSettings
from hedgerow.statement import PrivacyStatement

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "private_estimators.md"

COLUMNS = {
    "bounds": {"a": (-3.0, 3.0), "b": (0, 9)},
    "levels": {"c": ["x", "y", "z"]},
    "integers": ["b"],
    "may_be_missing": ["a"],
}
SORTED = Schema.from_public(**COLUMNS, classes=["no", "yes"])
MEASURED = Schema.from_public(**COLUMNS, label_bounds=(-5.0, 5.0))
CLASSIFIERS = (PrivateBoostingClassifier, DPBoostClassifier)
REGRESSORS = (PrivateBoostingRegressor, DPBoostRegressor)
ALL = (*CLASSIFIERS, *REGRESSORS)


def rows(n=600, seed=0):
    """A table, a real label and a class that depend on all columns; some gaps."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=n).clip(-3, 3), rng.integers(0, 10, n), rng.integers(0, 3, n)
    target = (a + 0.3 * (b - 4.5) + (c == 1) + 0.2 * rng.normal(size=n)).clip(-5, 5)
    a[::17] = np.nan
    table = pa.table({"a": a, "b": b, "c": np.array(["x", "y", "z"])[c]})
    return table, target, np.where(target > 0, "yes", "no")


def fitted(kind, epsilon=2.0, **params):
    """An estimator trained on the rows above."""
    X, target, label = rows()
    if kind in CLASSIFIERS:
        return kind(epsilon=epsilon, schema=SORTED, **params).fit(X, label)
    return kind(epsilon=epsilon, schema=MEASURED, **params).fit(X, target)


@pytest.mark.parametrize("kind", ALL)
def test_the_statement_keeps_to_what_was_asked(kind):
    """Epsilon is at most the one asked for, delta too, and words and JSON say the same."""
    statement = fitted(kind).privacy_statement()
    assert 0.9 * 2.0 < statement.epsilon <= 2.0
    assert statement.delta == (1e-6 if kind in (PrivateBoostingClassifier, PrivateBoostingRegressor) else 0.0)
    assert statement.is_private
    assert "NOT PRIVATE" not in str(statement)
    assert "adding one row" in str(statement)
    assert PrivacyStatement.from_dict(json.loads(json.dumps(statement.to_dict()))) == statement


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_probabilities_are_probabilities(kind):
    """Two columns that add up to one, whatever the loss, and the larger one is what is predicted."""
    model = fitted(kind, epsilon=50.0)
    X, _, label = rows(200, seed=1)
    shares = model.predict_proba(X)
    assert shares.min() >= 0.0
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert (model.predict(X) == np.where(model.decision_function(X) > 0, "yes", "no")).all()
    assert roc_auc_score(label == "yes", shares[:, 1]) > 0.75


@pytest.mark.parametrize("kind", REGRESSORS)
def test_predictions_stay_within_the_bounds(kind):
    """Noise may not carry a prediction beyond what labels can be."""
    model = fitted(kind, epsilon=0.05)
    X, _, _ = rows(300, seed=2)
    assert model.predict(X).min() >= -5.0
    assert model.predict(X).max() <= 5.0


@pytest.mark.parametrize("kind", ALL)
def test_without_noise_the_seed_decides(kind):
    """epsilon=inf: the same seed gives the same model, bit for bit, and the statement says that nothing holds."""
    one, two = (fitted(kind, epsilon=math.inf, random_state=3) for _ in range(2))
    assert one.ensemble_.to_dict()["trees"] == two.ensemble_.to_dict()["trees"]
    assert str(one.privacy_statement()).startswith("NOT PRIVATE")


@pytest.mark.parametrize("kind", ALL)
def test_noise_cannot_be_seeded(kind):
    """With noise two fits differ, whatever the seed."""
    one, two = (fitted(kind, random_state=3) for _ in range(2))
    assert one.ensemble_.to_dict()["trees"] != two.ensemble_.to_dict()["trees"]


@pytest.mark.parametrize("kind", ALL)
def test_bounds_from_data_are_stamped(kind):
    """The convenient way works, and gives up the guarantee aloud; a schema beside it is refused."""
    X, target, label = rows()
    y = label if kind in CLASSIFIERS else target
    model = kind(bounds="from_data").fit(X, y)
    assert str(model.privacy_statement()).startswith("NOT PRIVATE: bounds='from_data'")
    assert not model.privacy_statement().is_private
    with pytest.raises(InvalidParameter, match="leave schema out"):
        kind(bounds="from_data", schema=SORTED).fit(X, y)


@pytest.mark.parametrize("kind", ALL)
def test_without_a_schema_the_error_shows_how(kind):
    """The call to fill in is part of the message, and no value of any row."""
    X, target, label = rows()
    with pytest.raises(InvalidParameter, match="needs the public facts") as caught:
        kind(epsilon=1.0).fit(X, label if kind in CLASSIFIERS else target)
    assert '"b": (LOWEST, HIGHEST)' in str(caught.value)
    with pytest.raises(InvalidParameter, match=r"schema must be a hedgerow\.Schema, got dict"):
        kind(epsilon=1.0, schema={}).fit(X, label)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, "1"])
def test_an_epsilon_that_is_none(kind, epsilon):
    """Zero, negative, not a number, text: refused by name before the rows are looked at."""
    schema = SORTED if kind in CLASSIFIERS else MEASURED
    with pytest.raises(InvalidParameter, match="epsilon"):
        kind(epsilon=epsilon, schema=schema).fit(Untouchable(), Untouchable())


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan, 2.0])
def test_a_delta_that_is_none(delta):
    """It lies between 0 and 1."""
    with pytest.raises(InvalidParameter, match="delta"):
        PrivateBoostingClassifier(delta=delta, schema=SORTED).fit(Untouchable(), Untouchable())


class Untouchable:
    """Rows that nobody may look at: any attempt to read them fails the test."""

    def __getattr__(self, name):
        raise AssertionError(f"the rows were looked at: {name}")


@pytest.mark.parametrize("kind", ALL)
def test_tables_that_do_not_fit_the_schema(kind):
    """A column that is not there is named; where rows are public, so is one with gaps that may have none."""
    X, target, label = rows()
    schema, y = (SORTED, label) if kind in CLASSIFIERS else (MEASURED, target)
    with pytest.raises(InvalidInput, match="'b'"):
        kind(schema=schema).fit(X.drop_columns(["b"]), y)
    gaps = X.set_column(1, "b", pa.array([None, *X.column("b").to_pylist()[1:]]))
    with pytest.raises(InvalidInput, match="'b'"):
        kind(schema=schema, on_bad_rows="raise").fit(gaps, y)


@pytest.mark.parametrize("kind", ALL)
def test_the_schema_must_be_one_for_the_task(kind):
    """Classes for a classifier, bounds of the label for a regressor."""
    X, _, _ = rows()
    wanted = "classes" if kind in CLASSIFIERS else "label_bounds"
    with pytest.raises(InvalidParameter, match=wanted):
        kind(schema=MEASURED if kind in CLASSIFIERS else SORTED).fit(X, np.zeros(600))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_class_that_is_not_listed(kind):
    """It is no new class; where rows are public it is an error."""
    X, _, label = rows()
    label = label.copy()
    label[0] = "perhaps"
    assert kind(schema=SORTED).fit(X, label).classes_.tolist() == list(SORTED.classes)
    with pytest.raises(InvalidInput, match="classes"):
        kind(schema=SORTED, on_bad_rows="raise").fit(X, label)


@pytest.mark.parametrize("kind", ALL)
def test_values_outside_the_bounds_count_as_the_bounds(kind):
    """Without noise, clipping by us or beforehand gives the same trees; how many were clipped is told with noise."""
    X, target, label = rows()
    y = label if kind in CLASSIFIERS else target
    schema = SORTED if kind in CLASSIFIERS else MEASURED
    wild = X.set_column(1, "b", pa.array(np.where(np.arange(600) < 50, 1000, X.column("b").to_numpy())))
    tame = X.set_column(1, "b", pa.array(np.where(np.arange(600) < 50, 9, X.column("b").to_numpy())))
    trees = [kind(epsilon=math.inf, schema=schema, random_state=0).fit(T, y).ensemble_.to_dict()["trees"]
             for T in (wild, tame)]  # fmt: skip
    assert trees[0] == trees[1]
    facts = kind(epsilon=50.0, schema=schema).fit(wild, y).privacy_statement().facts
    assert abs(facts[MISFITS_FACT] - 50) < 40


def test_three_classes():
    """Both kinds of private classifiers take them."""
    X, target, _ = rows(2000)
    y = np.digitize(target, [-1.0, 1.0])
    schema = Schema.from_public(**COLUMNS, classes=[0, 1, 2])
    for model in (PrivateBoostingClassifier(epsilon=8.0, schema=schema), DPBoostClassifier(epsilon=50, schema=schema)):
        assert model.fit(X, y).predict_proba(X).shape == (2000, 3)
        assert model.score(X, y) > 0.6


@pytest.mark.parametrize("kind", ALL)
def test_a_model_file_keeps_the_statement(kind, tmp_path):
    """Saved and loaded, it predicts the same and states the same, as the same kind of estimator."""
    model = fitted(kind)
    X, _, _ = rows(50, seed=4)
    model.save_model(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert type(again) is kind
    assert (again.predict(X) == model.predict(X)).all()
    assert again.privacy_statement() == model.privacy_statement()
    assert again.schema_ == model.schema_


def test_a_file_without_a_statement_is_not_private(tmp_path):
    """A plain model is no private one, and a private one with its statement torn out is refused."""
    X, _, label = rows()
    BoostedTreesClassifier(max_iter=3).fit(X, label).save_model(tmp_path / "plain.json")
    with pytest.raises(ModelFileError, match="no privacy statement"):
        PrivateBoostingClassifier().load_model(tmp_path / "plain.json")
    fitted(PrivateBoostingClassifier).save_model(tmp_path / "torn.json")
    content = json.loads((tmp_path / "torn.json").read_text())
    content["meta"]["privacy"].pop("event")
    (tmp_path / "torn.json").write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match="no privacy statement"):
        load_model(tmp_path / "torn.json")


def test_nothing_exact_is_in_the_model_file(tmp_path):
    """The number of rows, which is private under adding and removing, is nowhere in it."""
    X, target, label = rows(1237)
    for kind in ALL:
        schema, y = (SORTED, label) if kind in CLASSIFIERS else (MEASURED, target)
        model = kind(schema=schema).fit(X, y)
        model.save_model(tmp_path / "model.json")
        assert not re.search(r"(?<![\d.])1237(?![\d.])", (tmp_path / "model.json").read_text())


def test_the_budget_is_asked_before_the_rows_are_read(tmp_path):
    """What fits is charged; what does not raises BudgetExceeded without a look at the rows."""
    file = BudgetFile(tmp_path / "people.budget")
    account = file.open("people", epsilon=3.0, delta=1e-5)
    X, _, label = rows()
    DPBoostClassifier(epsilon=2.0, schema=SORTED, budget=account).fit(X, label)
    assert account.spent().epsilon == pytest.approx(2.0)
    for kind in CLASSIFIERS:
        with pytest.raises(BudgetExceeded):
            kind(epsilon=2.0, schema=SORTED, budget=file.dataset("people")).fit(Untouchable(), Untouchable())
    assert account.spent().epsilon == pytest.approx(2.0)
    PrivateBoostingClassifier(epsilon=0.5, schema=SORTED, budget=account).fit(X, label)
    assert 2.0 < account.spent().epsilon <= 2.5 + 1e-9


def test_three_fits_fit_three_times_the_budget(tmp_path):
    """Each takes its own epsilon and its own delta, and nothing is left."""
    account = BudgetFile(tmp_path / "b").open("people", epsilon=3.0, delta=2e-6)
    X, _, label = rows(200)
    for kind in (PrivateBoostingClassifier, DPBoostClassifier, PrivateBoostingClassifier):
        kind(epsilon=1.0, schema=SORTED, budget=account).fit(X, label)
    assert account.spent() == pytest.approx((3.0, 2e-6), rel=1e-6)
    assert [entry.delta for entry in account.entries()] == [1e-6, 0.0, 1e-6]


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_table_with_other_columns_costs_nothing(kind, tmp_path):
    """A typo in a column's name, a type that is no number: found without a look at a row, before any charge."""
    account = BudgetFile(tmp_path / "b").open("people", epsilon=3.0, delta=1e-5)
    X, _, label = rows(100)
    dates = X.set_column(1, "b", pa.array([date(2024, 1, 1)] * 100))
    for table in (X.rename_columns(["a", "bb", "c"]), X.drop_columns(["a"]), dates):
        with pytest.raises(InvalidInput):
            kind(schema=SORTED, budget=account).fit(table, label)
    with pytest.raises(InvalidParameter):
        kind(schema=SORTED, budget=account, n_jobs=0).fit(X, label)
    assert account.entries() == ()


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_what_may_depend_on_rows_stays_charged(kind, tmp_path):
    """As many labels as there are rows would otherwise tell how many rows there are, for nothing."""
    account = BudgetFile(tmp_path / "b").open("people", epsilon=3.0, delta=1e-5)
    X, _, label = rows(100)
    with pytest.raises(InvalidInput, match="not equally many") as problem:
        kind(schema=SORTED, budget=account).fit(X, label[1:])
    assert "100" not in str(problem.value)
    assert account.spent().epsilon == pytest.approx(1.0)


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("problem", [InvalidInput, InvalidParameter, ValueError, KeyboardInterrupt])
def test_an_error_after_noise_was_drawn_stays_charged(kind, problem, tmp_path, monkeypatch):
    """Whatever its name: something may have been released."""
    account = BudgetFile(tmp_path / "b").open("people", epsilon=3.0, delta=1e-5)
    X, _, label = rows(100)

    def appended(*_args, **_options):
        raise problem("too late")

    monkeypatch.setattr("hedgerow.engine.ensemble.Ensemble.append", appended)
    with pytest.raises(problem, match="too late"):
        kind(epsilon=1.0, schema=SORTED, budget=account).fit(X, label)
    assert account.spent().epsilon == pytest.approx(1.0)
    assert [entry.state for entry in account.entries()] == ["kept"]


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_another_error_before_noise_stays_charged(kind, tmp_path, monkeypatch):
    """Nothing is given back."""
    account = BudgetFile(tmp_path / "b").open("people", epsilon=3.0, delta=1e-5)
    X, _, label = rows(100)
    monkeypatch.setattr(kind, "_check_names", lambda *_args, **_options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        kind(epsilon=1.0, schema=SORTED, budget=account).fit(X, label)
    assert account.spent().epsilon == pytest.approx(1.0)


def test_a_fit_that_is_not_private_is_not_charged_but_refused(tmp_path):
    """A budget is for guarantees: bounds from the data and no noise have none."""
    account = BudgetFile(tmp_path / "b").open("people", epsilon=3.0, delta=1e-5)
    for model in (
        PrivateBoostingClassifier(bounds="from_data", budget=account),
        DPBoostClassifier(epsilon=math.inf, schema=SORTED, budget=account),
        DPBoostClassifier(schema=SORTED, on_bad_rows="raise", budget=account),
    ):
        with pytest.raises((BudgetExceeded, InvalidParameter), match=r"guarantee|private"):
            model.fit(Untouchable(), Untouchable())
    assert account.spent().epsilon == 0.0


def test_a_budget_that_is_none():
    """A number is not the budget of a dataset."""
    with pytest.raises(InvalidParameter, match="budget must be"):
        DPBoostClassifier(schema=SORTED, budget=3.0).fit(Untouchable(), Untouchable())


@pytest.mark.filterwarnings("ignore:.*cross-validated without a budget")
@pytest.mark.parametrize("kind", ALL)
def test_scikit_learn_can_handle_them(kind):
    """clone, get_params, set_params and cross-validation work; other libraries' names are understood."""
    X, target, label = rows()
    model = kind(epsilon=4.0, schema=SORTED if kind in CLASSIFIERS else MEASURED, random_state=0)
    assert clone(model).get_params() == model.get_params()
    y = label if kind in CLASSIFIERS else target
    frame = X.to_pandas()
    assert len(cross_val_score(model, frame, y, cv=2)) == 2
    assert kind(n_estimators=7).max_iter == 7
    with pytest.raises(InvalidParameter, match="did you mean epsilon"):
        kind(epsilonn=1.0)


def test_a_fit_that_fails_leaves_no_model():
    """The last model is not mistaken for this fit's."""
    model = fitted(DPBoostClassifier)
    with pytest.raises(InvalidInput):
        model.fit(pa.table({"a": [1.0]}), ["no"])
    assert not hasattr(model, "ensemble_")


def test_importances_come_from_what_is_released():
    """The column that matters has the largest share, without another look at the rows."""
    X, _, label = rows(3000)
    model = PrivateBoostingClassifier(epsilon=8.0, schema=SORTED).fit(X, label)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert model.feature_importances_.argmax() in (0, 1)


def test_verbose_says_how_far_it_is(capsys):
    """Progress goes to stderr, without a number computed from the rows."""
    fitted(DPBoostClassifier, verbose=10, max_iter=20)
    assert "[10/20 trees] ETA" in capsys.readouterr().err


def test_scores_of_minus_one_and_one_are_not_exported_as_probabilities(tmp_path):
    """XGBoost has no objective for them; the logistic loss can be exported."""
    with pytest.raises(ExportRefused, match="squared"):
        fitted(DPBoostClassifier).export_xgboost(tmp_path / "x.json")
    fitted(DPBoostClassifier, loss="logistic").export_xgboost(tmp_path / "x.json")


def test_defaults_are_those_of_the_settings_and_of_the_reference():
    """One default each: in the signature, in the protocol's settings and in the table of the documentation."""
    found = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    rows_of = dict(reversed(found))  # the tables of estimators come first
    for kind in ALL:
        for name, default in kind().get_params().items():
            if name in ("max_iter", "max_depth", "learning_rate", "l2_regularization"):
                continue  # in the tables of both families
            if name == "loss" and issubclass(kind, DPBoostRegressor):
                continue  # told in the classifier's row
            assert ast.literal_eval(rows_of[name]) == default, name
    settings, model = DPBoostSettings(epsilon=1.0), DPBoostClassifier()
    assert (settings.n_trees, settings.l2) == (model.max_iter, model.l2_regularization)
    for name in ("max_depth", "learning_rate", "trees_per_ensemble", "loss", "assignment", "binning", "max_bins",
                 "filtering", "selection", "protocol"):  # fmt: skip
        assert getattr(settings, name) == getattr(model, name), name
    assert GaussianSettings(epsilon=1.0, delta=1e-6).policy == PrivateBoostingClassifier().policy


def test_a_private_model_of_a_federation_is_loaded_as_what_it_is(tmp_path):
    """Its file has an account of another kind, and is read by the plain estimator."""
    model = fitted(PrivateBoostingClassifier)
    ensemble = model.ensemble_
    ensemble.meta["estimator"], ensemble.meta["privacy"] = "BoostedTreesClassifier", {"epsilon": 1.0}
    ensemble.save(tmp_path / "model.json")
    assert type(load_model(tmp_path / "model.json")) is BoostedTreesClassifier
