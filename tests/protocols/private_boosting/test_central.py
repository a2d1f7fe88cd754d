"""central.gaussian from table to statement: settings, plan, reserve, rows outside the bounds, words."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Gaussian, NonPrivate
from hedgerow.privacy.mechanisms import discrete_gaussian
from hedgerow.protocols.bad_rows import MISFITS_FACT
from hedgerow.protocols.central.gaussian.central import fit_gaussian, planned_event
from hedgerow.protocols.central.gaussian.recipe import Recipe
from hedgerow.protocols.central.gaussian.rows import PrivateRows
from hedgerow.protocols.central.gaussian.training import GaussianSettings
from hedgerow.schema import Schema
from hedgerow.statement import PrivacyStatement

EVERY_LOSS = pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])


@EVERY_LOSS
def test_from_table_to_statement(tables, loss):
    """A model, its event within the plan and the budget, and a statement that lists every stage with its share."""
    schema, make = tables[loss]
    settings = GaussianSettings(2.0, 1e-6, seed=3)
    fit = fit_gaussian(*make(800), schema, settings, SecureRandom.from_seed(bytes(32)))
    accountant, planned = GaussianDP(), planned_event(settings)
    assert isinstance(planned, Gaussian)
    assert 0.999 * accountant.cost(planned) < accountant.cost(fit.event) <= accountant.cost(planned)
    accountant.compose(planned)
    assert accountant.epsilon(1e-6) <= 2.0
    statement = fit.statement
    assert (statement.protocol, statement.delta, statement.event) == ("central.gaussian", 1e-6, fit.event)
    assert 1.999 < statement.epsilon <= 2.0
    names = [stage.name for stage in statement.stages]
    spread = ["spread of the label"] if loss == "squared" else []
    assert names == ["number of misfits", "histograms", *spread, "tables", "trees", "mean"]
    assert sum(stage.share for stage in statement.stages) == pytest.approx(1.0)
    assert sum(stage.releases for stage in statement.stages) == sum(times for _, times in fit.event.leaves())
    assert [stage.releases for stage in statement.stages[-2:]] == [fit.model.meta["n_trees"], 1]
    assert PrivacyStatement.from_dict(statement.to_dict()) == statement
    assert fit.model.n_outputs == (4 if loss == "softmax" else 1)


def test_without_noise_it_says_so(tables):
    """The twin without noise is the same algorithm; the statement begins with NOT PRIVATE."""
    schema, make = tables["logistic"]
    settings = GaussianSettings(math.inf, 1e-6)
    fit = fit_gaussian(*make(300), schema, settings, np.random.default_rng(0))
    again = fit_gaussian(*make(300), schema, settings, np.random.default_rng(1))
    assert fit.model.to_dict() == again.model.to_dict()
    assert str(fit.statement).startswith("NOT PRIVATE: epsilon is infinite")
    assert isinstance(planned_event(settings), NonPrivate)


def test_progress_is_told(tables):
    """After each release, from the second on, when it is known how many there will be: its number, and how many."""
    schema, make = tables["logistic"]
    told = []
    fit_gaussian(*make(200), schema, GaussianSettings(1.0, 1e-6), np.random.default_rng(0),
                 on_progress=lambda *progress: told.append(progress))  # fmt: skip
    assert told == [(number, 152) for number in range(2, 1 + 1 + 50 + 100 + 1)]


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon must be a number above 0"),
        ({"delta": 0.0}, "delta must be at least"),
        ({"policy": "best"}, "policy must be one of smooth_then_trees, random"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"clipped_count_share": 0.6}, "clipped_count_share must be between 0 and 0.5"),
        ({"n_trees": 5}, "smooth_then_trees sets n_trees by its own rule"),
        ({"l2": 5.0}, "smooth_then_trees sets l2 by its own rule"),
        ({"subsample": 0.5}, "smooth_then_trees sets subsample by its own rule"),
        ({"policy": "random", "max_depth": 0}, "max_depth must be a whole number"),
        ({"policy": "histogram", "subsample": 0.5}, "subsample is for the policies random and cyclic"),
    ],
)
def test_impossible_settings_are_refused(wishes, sentence):
    """By name and value, before anything is read; a wish that would be ignored is refused too."""
    with pytest.raises(InvalidParameter, match=sentence):
        GaussianSettings(**({"epsilon": 1.0, "delta": 1e-6} | wishes))


# --- the reserve ---------------------------------------------------------------------------------------------------


@EVERY_LOSS
def test_a_reserve_is_for_the_number_of_misfits(tables, loss):
    """Asked for before all else, at exactly that share; an answer with less noise than that ends the training."""
    schema, make = tables[loss]
    asked = []

    def training(scale):
        rows = PrivateRows.read(*make(200), schema, multiclass=True)
        rows.n_misfits = 10**6
        recipe = Recipe(schema, epsilon=1.0, delta=1e-6, multiclass=True, reserve=0.1)

        def release(request):
            asked.append(request)
            return discrete_gaussian(
                rows.answer(request), sensitivity=request.sensitivity, sigma=scale * request.sigma,
                random=np.random.default_rng(1),
            )  # fmt: skip

        recipe.run(release)
        return recipe

    recipe, whole = training(1.0), mu_for(1.0, 1e-6) ** 2
    first = asked[0]
    assert (first.number, first.kind, {request.kind for request in asked[1:]} & {"misfits"}) == (0, "misfits", set())
    assert (first.sensitivity / first.sigma) ** 2 == pytest.approx(0.1 * whole, rel=1e-6)
    assert recipe.budget.accountant.total == pytest.approx(whole, rel=1e-6)
    assert recipe.n_misfits == pytest.approx(10**6, abs=6 * first.sigma / 2**12)
    asked.clear()
    with pytest.raises(ProtocolError, match="request 0 was answered with"):
        training(0.99)
    assert len(asked) == 1
    with pytest.raises(InvalidParameter, match="reserve must be at least 0 and below 1, got 1"):
        Recipe(schema, epsilon=1.0, delta=1e-6, multiclass=True, reserve=1.0)


# --- rows outside the bounds ---------------------------------------------------------------------------------------

BOUNDED = Schema.from_public(bounds={"a": (0, 1), "b": (-5.0, 5.0)}, may_be_missing=["b"], label_bounds=(0, 10))


@pytest.mark.parametrize("kind", ["frame", "columns", "array32", "array64"])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_rows_outside_the_bounds_are_counted(kind, n_threads):
    """A row counts once, whichever of its values or its label is outside; bounds, gaps and levels are inside."""
    a = np.array([0.0, 1.0, 1.5, -0.1, 0.5, 0.5, 0.5, 2.0])
    b = np.array([5.0, -5.0, 0.0, 0.0, np.nan, 5.5, np.inf, 9.0])
    y = np.array([0.0, 10.0, 5.0, 5.0, 11.0, 5.0, 5.0, 12.0])
    table = {
        "frame": lambda: pd.DataFrame({"a": a, "b": b}),
        "columns": lambda: pd.DataFrame({"a": a.astype(np.float32), "b": b}),
        "array32": lambda: np.column_stack([a, b]).astype(np.float32),
        "array64": lambda: np.column_stack([a, b]),
    }[kind]()
    assert PrivateRows.read(table, y, BOUNDED, n_threads=n_threads).n_misfits == 6
    assert PrivateRows.read(table, np.clip(y, 0, 10), BOUNDED, n_threads=n_threads).n_misfits == 5


def test_the_number_of_misfits_is_told_with_noise():
    """Near the truth, not always the truth; not at all for a share of 0, and then it is not paid for either."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (500, 2))
    X[:200, 0] = 1.5
    found = []
    for noise in range(8):
        settings = GaussianSettings(8.0, 1e-5, policy="random", n_trees=1, clipped_count_share=0.1)
        fit = fit_gaussian(X, rng.uniform(0, 10, 500), BOUNDED, settings, np.random.default_rng(noise))
        found.append(fit.statement.facts[MISFITS_FACT])
    assert np.abs(np.array(found) - 200).max() < 12
    assert len(set(found)) > 2
    settings = GaussianSettings(8.0, 1e-5, policy="random", n_trees=1, clipped_count_share=0.0)
    fit = fit_gaussian(X, rng.uniform(0, 10, 500), BOUNDED, settings, np.random.default_rng(0))
    assert MISFITS_FACT not in fit.statement.facts
    assert [stage.name for stage in fit.statement.stages] == ["start", "spread of the label", "trees"]


def test_predictions_of_regression_have_public_bounds(tables):
    """The model carries them; scores may lie outside, so whoever predicts clips."""
    schema, make = tables["squared"]
    frame, labels = make(500)
    fit = fit_gaussian(frame, labels, schema, GaussianSettings(0.05, 1e-6), np.random.default_rng(2))
    assert fit.model.meta["prediction_bounds"] == list(schema.label_bounds)
    assert np.isfinite(fit.model.raw_scores(read_table(frame, like=fit.model.features))).all()
