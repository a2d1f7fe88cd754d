"""The estimators' parameters: other libraries' spellings translated, unknown names refused with a hint, values checked.

Our names are those of scikit-learn's HistGradientBoosting. XGBoost's and LightGBM's spellings are accepted in the
constructor and in `set_params`; `get_params`, `repr` and the fitted model know only our names. Values are looked at in
`fit`, never in the constructor, as scikit-learn wants it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from hedgerow.engine.boosting import BoostingParams
from hedgerow.errors import InvalidParameter
from hedgerow.runtime.options import Option


class UnknownParameter(InvalidParameter, TypeError):
    """A keyword nobody knows: a TypeError as in any Python call, a ValueError as in scikit-learn's `set_params`."""


ALIASES: dict[str, str] = {
    # XGBoost
    "n_estimators": "max_iter",
    "num_boost_round": "max_iter",
    "eta": "learning_rate",
    "reg_lambda": "l2_regularization",
    "lambda_": "l2_regularization",
    "gamma": "min_split_gain",
    "min_split_loss": "min_split_gain",
    "max_bin": "max_bins",
    "max_leaves": "max_leaf_nodes",
    "colsample_bynode": "max_features",
    "monotone_constraints": "monotonic_cst",
    "nthread": "n_jobs",
    "seed": "random_state",
    "early_stopping_rounds": "n_iter_no_change",
    "objective": "loss",
    # LightGBM
    "num_iterations": "max_iter",
    "num_leaves": "max_leaf_nodes",
    "lambda_l2": "l2_regularization",
    "min_gain_to_split": "min_split_gain",
    "min_data_in_leaf": "min_samples_leaf",
    "min_child_samples": "min_samples_leaf",
    "min_sum_hessian_in_leaf": "min_child_weight",
    "feature_fraction": "colsample_bytree",
    "feature_fraction_bynode": "max_features",
    "bagging_fraction": "subsample",
    "num_threads": "n_jobs",
    "categorical_feature": "categorical_features",
    "early_stopping_round": "n_iter_no_change",
}
"""Another library's spelling -> ours."""

UNSUPPORTED: dict[str, str] = {
    "reg_alpha": "there is no L1 penalty on leaf values; use l2_regularization (reg_lambda) or min_split_gain (gamma)",
    "alpha": "there is no L1 penalty on leaf values; use l2_regularization (reg_lambda) or min_split_gain (gamma)",
    "lambda_l1": "there is no L1 penalty on leaf values; use l2_regularization (lambda_l2) or min_split_gain",
    "tree_method": "trees are always grown from histograms, as with tree_method='hist'; leave it out",
    "device": "training runs on the CPU, as with device='cpu'; leave it out and choose threads with n_jobs",
    "gpu_id": "training runs on the CPU; leave it out and choose threads with n_jobs",
    "predictor": "there is one predictor, on the CPU; leave it out",
    "booster": "the booster is always gradient-boosted trees, as with booster='gbtree'; leave it out",
    "boosting_type": "the booster is always gradient-boosted trees, as with boosting_type='gbdt'; leave it out",
    "grow_policy": "trees grow level by level, as with grow_policy='depthwise'; see max_depth and max_leaf_nodes",
    "colsample_bylevel": "columns are drawn per tree (colsample_bytree) or per node (max_features), not per level",
    "max_delta_step": "leaf values are not clipped; use a smaller learning_rate or a larger min_child_weight",
    "scale_pos_weight": "give the rows weights instead: fit(X, y, sample_weight=...)",
    "class_weight": "give the rows weights instead: fit(X, y, sample_weight=...)",
    "is_unbalance": "give the rows weights instead: fit(X, y, sample_weight=...)",
    "interaction_constraints": "interaction constraints are not available",
    "interaction_cst": "interaction constraints are not available",
    "num_parallel_tree": "one tree is grown per iteration and output; leave it out",
    "sampling_method": "rows are drawn uniformly with subsample; leave it out",
    "bagging_freq": "rows are drawn anew for each tree with subsample (bagging_fraction); leave it out",
    "subsample_freq": "rows are drawn anew for each tree with subsample; leave it out",
    "enable_categorical": "categories are taken from the columns' dtypes; see categorical_features",
    "max_cat_to_onehot": "categories are always split into two sets of levels; leave it out",
    "max_cat_threshold": "categories are always split into two sets of levels; leave it out",
    "missing": "NaN and None are the missing values; replace other markers before fit",
    "num_class": "the number of classes is taken from y; leave it out",
    "validate_parameters": "parameters are always validated; leave it out",
    "verbosity": "use verbose=0 for silence, verbose=1 for progress lines",
    "silent": "use verbose=0 for silence, verbose=1 for progress lines",
    "importance_type": "call importances('gain') or importances('count') after fit",
    "scoring": "name a metric with eval_metric; early stopping then follows it",
    "refresh_leaf": "trees are never revisited; leave it out",
    "process_type": "trees are never revisited; leave it out",
    "multi_strategy": "one tree is grown per iteration and class; leave it out",
}
"""Names from elsewhere that have no counterpart here -> what to do instead."""

_ROUNDS_NAMES = {"early_stopping_rounds", "early_stopping_round"}
"""Giving one of these also switches early stopping on (None: off), unless `early_stopping` is given by itself."""

_OBJECTIVES = {
    "reg:squarederror": "squared_error",
    "regression": "squared_error",
    "squared_error": "squared_error",
    "count:poisson": "poisson",
    "poisson": "poisson",
}
_CLASSIFIER_OBJECTIVES = {"binary:logistic", "multi:softprob", "multi:softmax", "binary", "multiclass", "log_loss"}


def accepts_aliases(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor that names only our parameters take the other spellings too.

    `inspect.signature` still shows our names alone, which is what scikit-learn's `clone` and `get_params` go by.
    """

    @functools.wraps(init)
    def init_with_aliases(self: Any, *args: Any, **given: Any) -> None:
        if args:
            raise UnknownParameter(
                f"{type(self).__name__} takes its parameters by name only, got {args[0]!r} without a name"
            )
        init(self, **translate(given, inspect.signature(init).parameters, type(self).__name__))

    return init_with_aliases


def defaults_of(estimator: Any) -> dict[str, Any]:
    """The parameters of an estimator's class, and what they are unless somebody says otherwise."""
    parameters = inspect.signature(estimator.__init__).parameters.values()
    return {each.name: each.default for each in parameters if each.name != "self"}


def own_names(estimator: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters for an estimator's class in any spelling, under our names; raises for one that it does not have."""
    return translate(given, defaults_of(estimator), estimator.__name__)


def translate(given: Mapping[str, Any], valid: Iterable[str], owner: str) -> dict[str, Any]:
    """The same parameters under our names; raises for unknown ones and for one parameter given twice."""
    valid = [name for name in valid if name != "self"]
    translated: dict[str, Any] = {}
    spelling: dict[str, str] = {}
    for name, value in given.items():
        for target, converted in _ours(name, value, valid, owner).items():
            if target in translated:
                raise InvalidParameter(
                    f"{target} is given twice, as {spelling[target]}={translated[target]!r} "
                    f"and as {name}={value!r}; keep one"
                )
            translated[target] = converted
            spelling[target] = name
    for name in _ROUNDS_NAMES & given.keys():
        translated.setdefault("early_stopping", given[name] is not None)
    return translated


def _ours(name: str, value: Any, valid: list[str], owner: str) -> dict[str, Any]:
    """One parameter under another library's name -> under ours, its value in our convention."""
    if name in valid:
        return {name: value}
    if name == "objective":
        return _loss_of_objective(value, valid, owner)
    if name in _ROUNDS_NAMES and value is None:
        return {}  # XGBoost's "no early stopping"
    if name == "max_leaves" and _is_whole(value) and value == 0:
        return {"max_leaf_nodes": None}  # XGBoost's "no limit"
    if name == "monotone_constraints" and isinstance(value, str):
        return {"monotonic_cst": _monotone_from_text(value)}
    if ALIASES.get(name) in valid:
        return {ALIASES[name]: value}
    raise UnknownParameter(_unknown(name, valid, owner))


def _loss_of_objective(value: Any, valid: list[str], owner: str) -> dict[str, Any]:
    if "loss" not in valid and value in _CLASSIFIER_OBJECTIVES:
        return {}
    if "loss" in valid and value in _OBJECTIVES:
        return {"loss": _OBJECTIVES[value]}
    known = sorted(_OBJECTIVES if "loss" in valid else _CLASSIFIER_OBJECTIVES)
    raise InvalidParameter(f"{owner} has no objective {value!r}; it knows {', '.join(known)}")


def _monotone_from_text(value: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in value.strip("() ").split(",") if part.strip())
    except ValueError:
        raise InvalidParameter(f"monotone_constraints must look like '(1,0,-1)', got {value!r}") from None


def _unknown(name: str, valid: list[str], owner: str) -> str:
    if name in UNSUPPORTED:
        return f"{owner} has no parameter {name}: {UNSUPPORTED[name]}"
    near = nearest(name, [*valid, *(alias for alias, ours in ALIASES.items() if ours in valid)])
    hint = f"; did you mean {near}?" if near else f"; it has {', '.join(sorted(valid))}"
    return f"{owner} has no parameter {name}{hint}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, if any does."""
    matches = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number(value: Any) -> TypeGuard[float]:
    return _is_whole(value) or isinstance(value, (float, np.floating))


_NO_LIMIT = "a whole number of at least {}, or None for no limit"
_RANGES = {
    "learning_rate": Option(help="of each tree", kind=float, above=0),
    "max_iter": Option(help="trees of each output", kind=int, at_least=1),
    "max_leaf_nodes": Option(help="of a tree", kind=int, at_least=2, or_none=True, words=_NO_LIMIT.format(2)),
    "max_depth": Option(help="of a tree", kind=int, at_least=1, or_none=True, words=_NO_LIMIT.format(1)),
    "min_samples_leaf": Option(help="rows of a leaf", kind=int, at_least=1),
    "min_child_weight": Option(help="hessians of a child", kind=float, at_least=0),
    "l2_regularization": Option(help="penalty on leaf values", kind=float, at_least=0),
    "min_split_gain": Option(help="of a split", kind=float, at_least=0),
    "max_features": Option(help="columns that a node looks at", kind=float, above=0, at_most=1),
    "colsample_bytree": Option(help="columns that a tree looks at", kind=float, above=0, at_most=1),
    "subsample": Option(help="rows that a tree looks at", kind=float, above=0, at_most=1),
    "max_bins": Option(
        help="of a column",
        kind=int,
        at_least=2,
        at_most=256,
        words="between 2 and 256 (the bin of missing values included)",
    ),
    "n_iter_no_change": Option(help="iterations without progress", kind=int, at_least=1),
    "tol": Option(help="what counts as progress", kind=float, at_least=0),
    "base_score": Option(
        help="before the first tree", kind=float, or_none=True, words="a number, or None to take it from the labels"
    ),
    "gradient_bits": Option(
        help="of a gradient",
        kind=int,
        at_least=-100,
        at_most=30,
        or_none=True,
        words="a whole number from -100 to 30, or None",
    ),
    "n_jobs": Option(help="threads", kind=int, or_none=True, words="a whole number, or None for all cores"),
    "verbose": Option(help="lines", kind=int, at_least=0, words="False, True or a whole number of at least 0"),
}


def check_values(params: Mapping[str, Any]) -> None:
    """Raise for the first parameter outside its range, in a sentence with its name and value."""
    for name, allowed in _RANGES.items():
        if name in params and not (name == "verbose" and isinstance(params[name], bool)):
            replace(allowed, name=name).checked("", params[name])
    _check_validation(params["early_stopping"], params["validation_fraction"])
    if params.get("loss", "squared_error") not in {"squared_error", "poisson"}:
        raise InvalidParameter(f"loss must be 'squared_error' or 'poisson', got {params['loss']!r}")
    span = params.get("label_range")
    if span is not None and not (isinstance(span, (tuple, list)) and len(span) == 2 and all(map(_is_number, span))):
        raise InvalidParameter(f"label_range must be a pair of numbers (low, high) or None, got {span!r}")
    metric = params["eval_metric"]
    if not (metric is None or isinstance(metric, str) or callable(metric)):
        raise InvalidParameter(f"eval_metric must be one name or a function of labels and predictions, got {metric!r}")
    for callback in params["callbacks"] or ():
        if not callable(getattr(callback, "after_iteration", None)):
            raise InvalidParameter(
                f"callbacks must be objects with a method after_iteration(model, epoch, evals_log), got {callback!r}"
            )


def _check_validation(early_stopping: Any, fraction: Any) -> None:
    if not (isinstance(early_stopping, bool) or (isinstance(early_stopping, str) and early_stopping == "auto")):
        raise InvalidParameter(f"early_stopping must be True, False or 'auto', got {early_stopping!r}")
    if not (_is_whole(fraction) and fraction >= 1) and not (_is_number(fraction) and 0 < fraction < 1):
        raise InvalidParameter(
            f"validation_fraction must be between 0 and 1, or a whole number of rows, got {fraction!r}"
        )


def engine_params(params: Mapping[str, Any], columns: Sequence[tuple[str, bool]], **more: Any) -> BoostingParams:
    """Parameters of trees under the engine's names, for columns given as (name, whether it is categorical)."""
    return BoostingParams(
        learning_rate=float(params["learning_rate"]),
        max_depth=params["max_depth"],
        max_leaves=params["max_leaf_nodes"],
        l2=float(params["l2_regularization"]),
        min_gain=float(params["min_split_gain"]),
        min_child_weight=float(params["min_child_weight"]),
        min_samples_leaf=params["min_samples_leaf"],
        subsample=float(params["subsample"]),
        colsample_bytree=float(params["colsample_bytree"]),
        colsample_bynode=float(params["max_features"]),
        monotone=_monotone(params["monotonic_cst"], columns),
        base_score=params["base_score"],
        gradient_bits=params["gradient_bits"],
        missing_unseen=params["missing_unseen"],
        tol=float(params["tol"]),
        **more,
    )


def _monotone(wish: Any, columns: Sequence[tuple[str, bool]]) -> tuple[int, ...] | None:
    """One of -1, 0, 1 per column, from a list or from a dict by column name."""
    if wish is None:
        return None
    names = [name for name, _ in columns]
    if isinstance(wish, dict):
        unknown = [name for name in wish if name not in names]
        if unknown:
            near = nearest(str(unknown[0]), names)
            hint = f"; did you mean {near!r}?" if near else ""
            raise InvalidParameter(f"monotonic_cst names {unknown[0]!r}, which is not a column of X{hint}")
        wish = [wish.get(name, 0) for name in names]
    signs = list(wish)
    if len(signs) != len(names):
        raise InvalidParameter(f"monotonic_cst has {len(signs)} entries, but X has {len(names)} columns")
    for (name, is_categorical), sign in zip(columns, signs, strict=True):
        if sign not in (-1, 0, 1):
            raise InvalidParameter(f"monotonic_cst must be -1, 0 or 1 for each column, got {sign!r} for {name!r}")
        if sign != 0 and is_categorical:
            raise InvalidParameter(f"monotonic_cst: column {name!r} is categorical, and its levels have no order")
    return tuple(int(sign) for sign in signs) if any(signs) else None


def seed_from(random_state: Any) -> int:
    """scikit-learn's `random_state` as a seed: a number is one, a generator gives one, None draws a fresh one.

    `check_random_state(None)` would use numpy's process-wide generator, which any other code can move.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if _is_whole(random_state) and 0 <= random_state < 2**32:
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**32, dtype=np.uint64))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    raise InvalidParameter(
        f"random_state must be None, a whole number from 0 to 2**32 - 1 or a numpy generator, got {random_state!r}"
    )
