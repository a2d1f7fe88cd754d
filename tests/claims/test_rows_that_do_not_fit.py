"""Nothing about a protected row is told by an error, and nothing before it is paid for, whatever the row holds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow import (
    DPBoostClassifier,
    DPBoostRegressor,
    PrivateBoostingClassifier,
    PrivateBoostingRegressor,
    Schema,
)
from hedgerow.errors import HedgerowError, InvalidInput
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.protocols.bad_rows import MISFITS_FACT, fit_labels
from hedgerow.protocols.central.bins import cells_of, grid_of
from hedgerow.protocols.central.gaussian.requests import SumRequest, record_sensitivity_squared
from hedgerow.protocols.central.gaussian.rows import PrivateRows

KINDS = {
    "gaussian": (PrivateBoostingClassifier, {}),
    "random": (PrivateBoostingClassifier, {"policy": "random", "max_iter": 2}),
    "cyclic": (PrivateBoostingClassifier, {"policy": "cyclic", "max_iter": 2}),
    "exponential": (PrivateBoostingClassifier, {"policy": "exponential", "max_iter": 2}),
    "histogram": (PrivateBoostingClassifier, {"policy": "histogram", "max_iter": 2}),
    "dpboost": (DPBoostClassifier, {"max_iter": 4, "max_depth": 2}),
    "dpboost with private bins": (DPBoostClassifier, {"max_iter": 4, "max_depth": 2, "binning": "private"}),
    "dpboost with subsets as in the paper": (DPBoostClassifier, {"max_iter": 4, "max_depth": 2, "assignment": "paper"}),
    "sequential": (DPBoostClassifier, {"max_iter": 2, "max_depth": 2, "protocol": "central.sequential"}),
    "parallel": (DPBoostClassifier, {"max_iter": 2, "max_depth": 2, "protocol": "central.parallel"}),
    "logistic": (DPBoostClassifier, {"max_iter": 2, "max_depth": 2, "loss": "logistic"}),
    "gaussian regression": (PrivateBoostingRegressor, {}),
    "dpboost regression": (DPBoostRegressor, {"max_iter": 4, "max_depth": 2}),
}
COLUMNS = {
    "bounds": {"age": (0, 120), "share": (0.0, 1.0)},
    "levels": {"place": ["town", "country"]},
    "integers": ["age"],
    "may_be_missing": ["share"],
}
SORTED = Schema.from_public(**COLUMNS, classes=["no", "yes"])
MEASURED = Schema.from_public(**COLUMNS, label_bounds=(0.0, 10.0))


def model(kind, epsilon=1.0, **params):
    """One of the estimators, with its schema."""
    owner, own = KINDS[kind]
    schema = MEASURED if "regression" in kind else SORTED
    return owner(**{"epsilon": epsilon, "schema": schema, "random_state": 0} | own | params)


def people(kind, n=40):
    """Rows that fit the schema, as Python objects, the label last."""
    rng = np.random.default_rng(1)
    labels = rng.uniform(0, 10, n) if "regression" in kind else rng.choice(["no", "yes"], n)
    cells = [rng.integers(0, 121, n), rng.uniform(size=n), rng.choice(["town", "country"], n), labels]
    return [list(row) for row in zip(*(column.tolist() for column in cells), strict=True)]


def table(rows):
    """Rows as a data frame of objects, and their labels."""
    frame = pd.DataFrame([row[:3] for row in rows], columns=["age", "share", "place"], dtype=object)
    labels = np.empty(len(rows), object)
    labels[:] = [row[3] for row in rows]
    return frame, labels


def test_decoy_schemas_find_nothing_for_nothing(tmp_path):
    """Fits that were bound to fail told the exact support of a column, by the names in their errors, for epsilon 0.

    126 decoys, one for each level that might occur: the schema lists all others, and for a second column a level that
    nobody has. Now each fit trains and is charged, so the budget ends the attack.
    """
    universe = [f"{number:03}" for number in range(126)]
    rng = np.random.default_rng(0)
    occurs = rng.choice(universe, 40, replace=False)
    X = pd.DataFrame({"icd": rng.choice(occurs, 200), "sex": rng.choice(["f", "m"], 200)})
    y = rng.integers(0, 2, 200)
    account = BudgetFile(tmp_path / "b").open("patients", epsilon=5.0, delta=1e-4)
    told = {}
    for level in universe:
        others = [other for other in universe if other != level]
        decoy = Schema.from_public(levels={"icd": others, "sex": ["x"]}, classes=[0, 1])
        attempt = DPBoostClassifier(epsilon=1.0, schema=decoy, max_iter=1, max_depth=1, budget=account)
        try:
            attempt.fit(X, y)
        except HedgerowError as problem:
            told[level] = type(problem).__name__, "'icd'" in str(problem)
        else:
            told[level] = "trained"
    assert {level for level, said in told.items() if said == ("InvalidInput", True)} == set()
    assert list(told.values()) == ["trained"] * 5 + [("BudgetExceeded", False)] * 121
    assert account.spent().epsilon == pytest.approx(5.0)


def test_what_raises_on_rows_is_not_for_budgets_and_says_so(tmp_path):
    """on_bad_rows="raise" is refused with a budget before a row is read; without one, the statement is stamped."""
    account = BudgetFile(tmp_path / "b").open("patients", epsilon=5.0, delta=1e-4)
    rows = people("dpboost")
    odd = [*rows, ["?", 0.5, "town", "yes"]]
    for own in (rows, odd):
        with pytest.raises(HedgerowError, match=r"budget .*on_bad_rows='raise'"):
            model("dpboost", on_bad_rows="raise", budget=account).fit(*table(own))
    assert account.entries() == ()
    with pytest.raises(InvalidInput):
        model("dpboost", on_bad_rows="raise").fit(*table(odd))
    for kind in ("dpboost", "gaussian"):
        statement = model(kind, on_bad_rows="raise").fit(*table(rows)).privacy_statement()
        assert str(statement).startswith("NOT PRIVATE: on_bad_rows='raise'")
        assert statement.to_dict()["stamp"] == "NOT PRIVATE"


CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.integers(), max_size=1),
    st.sampled_from(["town", "yes", "no", 30, "30", 0.5, math.inf, 10**400]),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(rows=st.lists(st.lists(CELLS, min_size=4, max_size=4), max_size=5), n_clean=st.integers(0, 8))
def test_training_is_total(kind, rows, n_clean):
    """Whatever rows there are, also none, and labels of one class only, there is a model and no error."""
    trained = model(kind).fit(*table(people(kind)[:n_clean] + rows))
    assert np.isfinite(trained.predict_proba(table(people(kind))[0]) if "regression" not in kind else 0.0).all()


DIRTY = {
    "an age that is none": (0, "unknown", 60),
    "no age": (0, None, 60),
    "an age beyond all": (0, 10**400, 120),
    "a share that is none": (1, "?", None),
    "a list for a share": (1, [1], None),
    "a place that is not listed": (2, "moon", "town"),
    "no place": (2, math.nan, "town"),
}


def trees(kind, rows):
    """The model of rows, without noise."""
    found = model(kind, epsilon=math.inf).fit(*table(rows))
    return (
        found.ensemble_.to_dict()["trees"],
        found.ensemble_.base_scores.tolist(),
        found.statement_.facts[MISFITS_FACT],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_does_not_fit_is_a_row_with_the_default(kind):
    """Bit for bit, without noise; and it is counted."""
    clean = people(kind)
    for place, dirty, default in DIRTY.values():
        first = trees(kind, [row if n else [*row[:place], dirty, *row[place + 1 :]] for n, row in enumerate(clean)])
        second = trees(kind, [row if n else [*row[:place], default, *row[place + 1 :]] for n, row in enumerate(clean)])
        assert first[:2] == second[:2]
        assert (first[2], second[2]) == (1, 0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "paper" not in kind])
@pytest.mark.parametrize("label", [None, math.nan, "perhaps", [1]], ids=["none", "nan", "unlisted", "list"])
def test_a_row_with_an_unknown_label_is_a_row_that_is_not_there(kind, label):
    """Bit for bit, without noise, however many there are; of the counts only that of misfits moves."""
    clean = people(kind)
    first, second = trees(kind, clean), trees(kind, [*clean, *([30, 0.5, "town", label] for _ in range(3))])
    assert first[:2] == second[:2]
    assert (first[2], second[2]) == (0, 3)


def test_a_row_that_does_not_count_keeps_its_place_where_sizes_are_fixed():
    """With subsets of sizes that follow from the number of rows, such a row moves no other into another subset.

    Its features, too, must not matter: only that it is one of the rows.
    """
    kind, clean = "dpboost with subsets as in the paper", people("dpboost")
    found = [trees(kind, [*clean[:-1], [*features, None]]) for features in ([1, 0.1, "town"], [99, 0.9, "country"])]
    assert found[0] == found[1]


@settings(max_examples=40, deadline=None)
@given(row=st.lists(CELLS, min_size=4, max_size=4))
@pytest.mark.parametrize("schema", [SORTED, MEASURED], ids=["classes", "numbers"])
def test_no_row_moves_a_sum_farther_than_stated(schema, row):
    """Whatever a row holds, sums move by no more than the sensitivity; with an unknown label they do not move."""
    clean = people("regression" if schema is MEASURED else "dpboost", 5)
    answers, counted = [], []
    for rows in (clean, [*clean, row]):
        read = PrivateRows.read(*table(rows), schema)
        kinds = ("histograms", "squares") if schema is MEASURED else ("histograms",)
        n_cells = 2 * sum(cells_of(schema, grid_of(schema)))
        allowed = [record_sensitivity_squared(kind, read.loss, 3, 0) for kind in kinds]
        sizes = [n_cells, 1][: len(kinds)]
        requests = [SumRequest(k, kind, sizes[k], allowed[k], 0.0) for k, kind in enumerate(kinds)]
        answers.append([read.answer(request) for request in requests])
        counted.append(read.n_misfits)
    is_known = fit_labels([row[3]], schema).counts[0] if not isinstance(row[3], list) else False
    for before, after, most in zip(*answers, allowed, strict=True):
        moved = int(((after - before) ** 2).sum())
        assert moved <= (most if is_known else 0)
    assert counted[1] - counted[0] in (0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_way_out(kind, capsys, recwarn):
    """Neither a warning nor a line of progress depends on whether rows fit."""
    clean = people(kind)
    dirty = [*clean, ["?", 10**400, "moon", None], [None, math.inf, None, math.nan]]
    seen = []
    for rows in (clean, dirty):
        fitted = model(kind, epsilon=1.0, verbose=10**6).fit(*table(rows))
        attributes = (fitted.n_features_in_, fitted.constant_features_, fitted.evals_result_, fitted.best_iteration_)
        seen.append((attributes, capsys.readouterr().out, len(recwarn)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("kind", ["gaussian", "dpboost"])
def test_a_fit_that_fails_on_the_way_stays_charged(kind, tmp_path):
    """Rows that are no table at all, or labels for fewer rows: an error without a number, and paid for."""
    account = BudgetFile(tmp_path / "b").open("patients", epsilon=5.0, delta=1e-4)
    X, y = table(people(kind))
    for rows, labels in [([[1, 0.5, "town"], [1]], ["no", "yes"]), (X, y[1:])]:
        with pytest.raises(InvalidInput, match="equally") as problem:
            model(kind, budget=account).fit(rows, labels)
        assert not any(character.isdigit() for character in str(problem.value))
    assert account.spent().epsilon == pytest.approx(2.0)
