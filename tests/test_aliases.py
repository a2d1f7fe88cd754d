"""Other libraries' spellings of the parameters, and what happens to names nobody knows."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hedgerow.errors import HedgerowError, InvalidParameter
from hedgerow.estimators.inputs import ALIASES, UNSUPPORTED
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor

VALUES = {"early_stopping_rounds": 7, "early_stopping_round": 7, "objective": "poisson"}


@pytest.mark.parametrize("alias", sorted(ALIASES.keys() - {"alpha"}))
def test_an_alias_sets_our_parameter_in_the_constructor_and_in_set_params(alias: str) -> None:
    """Each spelling arrives under our name, and only there."""
    value = VALUES.get(alias, 5)
    for model in (BoostedTreesRegressor(**{alias: value}), BoostedTreesRegressor().set_params(**{alias: value})):
        assert model.get_params()[ALIASES[alias]] == value
        assert alias not in model.get_params()
        assert not hasattr(model, alias)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_a_known_but_unsupported_name_says_what_to_do(name: str) -> None:
    """The error names the parameter and is both a TypeError and a ValueError, as callers of either kind expect."""
    kind = BoostedTreesRegressor if name in ("class_weight", "scale_pos_weight") else BoostedTreesClassifier
    with pytest.raises(TypeError, match=name) as caught:
        kind(**{name: 1})
    assert isinstance(caught.value, HedgerowError)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(ValueError, match=name):
        kind().set_params(**{name: 1})


def test_alpha_is_the_quantile_of_that_objective_and_nothing_else() -> None:
    """LightGBM's alpha goes with its objective; XGBoost's, which is an L1 penalty, is refused."""
    model = BoostedTreesRegressor(objective="quantile", alpha=0.9)
    assert (model.loss, model.quantile) == ("quantile", 0.9)
    with pytest.raises(InvalidParameter, match="no parameter alpha without objective='quantile': there is no L1"):
        BoostedTreesRegressor(alpha=0.9)


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        ("reg:absoluteerror", "absolute_error"),
        ("mae", "absolute_error"),
        ("regression_l1", "absolute_error"),
        ("reg:quantileerror", "quantile"),
    ],
)
def test_objectives_of_absolute_and_quantile_loss(objective: str, loss: str) -> None:
    """Both libraries' names are taken."""
    assert BoostedTreesRegressor(objective=objective).loss == loss


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("learning_rat", "learning_rate"),
        ("n_estimator", "n_estimators"),
        ("max_dept", "max_depth"),
        ("Max-Iter", "max_iter"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(wrong: str, right: str) -> None:
    """A slip of the finger is answered with the name that was meant."""
    with pytest.raises(InvalidParameter, match=f"did you mean {right}\\?"):
        BoostedTreesClassifier(**{wrong: 1})


def test_a_name_like_no_other_lists_the_parameters() -> None:
    """Where nothing is near, all names are shown."""
    with pytest.raises(InvalidParameter, match=r"has no parameter zzz; it has backend, base_score, callbacks"):
        BoostedTreesClassifier(zzz=1)


def test_one_parameter_given_twice_is_refused() -> None:
    """Two spellings with two values would make one of them silently lose."""
    with pytest.raises(InvalidParameter, match="max_iter is given twice, as max_iter=100 and as n_estimators=200"):
        BoostedTreesClassifier(max_iter=100, n_estimators=200)
    with pytest.raises(InvalidParameter, match="given twice"):
        BoostedTreesClassifier().set_params(eta=0.5, learning_rate=0.3)


def test_early_stopping_rounds_switches_early_stopping_on() -> None:
    """XGBoost's one parameter is our two; None means off, and a value given by itself wins."""
    params = BoostedTreesClassifier(early_stopping_rounds=7).get_params()
    assert (params["early_stopping"], params["n_iter_no_change"]) == (True, 7)
    assert BoostedTreesClassifier(early_stopping_rounds=None).early_stopping is False
    assert BoostedTreesClassifier(early_stopping_rounds=7, early_stopping="auto").early_stopping == "auto"
    assert BoostedTreesClassifier(early_stopping="auto", early_stopping_rounds=7).early_stopping == "auto"


def test_values_are_translated_where_conventions_differ() -> None:
    """XGBoost's 0 leaves is "no limit", its constraints may be text, its objectives are our losses."""
    assert BoostedTreesClassifier(max_leaves=0).max_leaf_nodes is None
    assert BoostedTreesClassifier(monotone_constraints="(1, 0,-1)").monotonic_cst == (1, 0, -1)
    assert BoostedTreesRegressor(objective="count:poisson").loss == "poisson"
    assert BoostedTreesRegressor(objective="reg:squarederror").loss == "squared_error"
    assert "loss" not in BoostedTreesClassifier(objective="binary:logistic").get_params()
    with pytest.raises(InvalidParameter, match="no objective 'rank:pairwise'"):
        BoostedTreesClassifier(objective="rank:pairwise")
    with pytest.raises(InvalidParameter, match="monotone_constraints must look like"):
        BoostedTreesClassifier(monotone_constraints="(up)")


def test_parameters_are_given_by_name() -> None:
    """A positional value could mean anything."""
    with pytest.raises(TypeError, match="by name only"):
        BoostedTreesClassifier(0.1)


def test_the_signature_shows_our_names_alone() -> None:
    """Tools that read the signature, scikit-learn's clone among them, see neither aliases nor **kwargs."""
    names = set(inspect.signature(BoostedTreesClassifier).parameters)
    assert "max_iter" in names
    assert not names & (set(ALIASES) | {"given", "kwargs"})


def test_clone_keeps_what_an_alias_set() -> None:
    """A clone has the same parameters."""
    model = BoostedTreesClassifier(n_estimators=7, reg_lambda=2.5, callbacks=None)
    assert clone(model).get_params() == model.get_params()


def test_a_grid_may_be_spelled_with_aliases() -> None:
    """GridSearchCV over a pipeline sets parameters by any spelling."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] > 0).astype(int)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), BoostedTreesClassifier(max_depth=2)),
        {"boostedtreesclassifier__n_estimators": [1, 10]},
        cv=2,
    ).fit(X, y)
    assert search.best_params_ == {"boostedtreesclassifier__n_estimators": 10} or search.best_score_ > 0.9
    assert search.predict(X).shape == (120,)
