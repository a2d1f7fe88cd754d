"""What users of a boosting library expect, and which protocol offers it: one table, from what the protocols declare.

    offered("vertical.homomorphic", "sample_weight")      None: yes; else one sentence that says why not

A protocol's spec lists what it lacks (`Protocol.lacks`), with the reason; what is not listed works, and a test trains
with it. A reason is mathematics or privacy. One that begins with "not yet" is neither: it is work that is left.
docs/reference/features.md is made from this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.runtime.protocol import find, names

FEATURES: Mapping[str, str] = {
    "early_stopping": "validation rows, early stopping, best iteration, learning curve",
    "sample_weight": "weights of rows",
    "class_weight": "`class_weight`, `scale_pos_weight`",
    "classes": "more than two classes",
    "squared": "regression, squared loss",
    "poisson": "regression, Poisson loss",
    "quantile": "regression, absolute and quantile loss",
    "levels": "categories with levels, also at feature holders; unseen levels",
    "many_levels": "more than 255 levels of a category",
    "dates": "booleans and dates",
    "subsample": "`subsample`: a draw of rows for each tree",
    "colsample_bytree": "`colsample_bytree`: a draw of columns for each tree",
    "colsample_bylevel": "`colsample_bylevel`: a draw of columns for each level",
    "max_features": "`max_features` (`colsample_bynode`): a draw of columns for each node",
    "monotonic_cst": "monotone constraints",
    "interaction_cst": "interaction constraints",
    "max_leaf_nodes": "`max_leaf_nodes` (`max_leaves`)",
    "min_child_weight": "`min_child_weight`",
    "min_samples_leaf": "`min_samples_leaf`",
    "warm_start": "continuing a training with more trees",
    "sparse": "sparse tables (scipy)",
    "cross_validation": "cross-validation and search of parameters",
}
"""Name -> what it is."""

PLAIN, GAUSSIAN, DPBOOST = "plain", "central.gaussian", "central.dpboost"

NOISY_COUNTS = (
    "gradients of counts have no bound but the largest count that the schema allows: noise made for that drowns those "
    "of usual counts, and clipping them shifts the mean"
)
PAID_QUESTIONS = (
    "what a node may ask must not depend on its rows unless that is paid for, and how many of them would be on either "
    "side does"
)
NODES_SHARE = (
    "a row is in one node of a level, so all its nodes cost what one does; to choose which nodes are split would be "
    "one more paid choice for each, and save nothing"
)
NO_HESSIAN = "its hessian is 0, and steps are noisy sums of gradients divided by noisy sums of hessians"
ALL_AT_ONCE = (
    "the budget is shared out over all releases before the first one; more trees need a budget of their own, and both "
    "together buy a better model in one training"
)
"""Reasons that several private trainings have in common."""

_DRAWN_ALREADY = "each tree asks about a few columns only, drawn at random by what was released before"

_ON_ONE_TABLE: Mapping[str, Mapping[str, str]] = {
    PLAIN: {},
    GAUSSIAN: {
        "early_stopping": "the number of trees follows from noisy counts, and each has its share of the budget; looks "
        "at rows would take from all of them, and to stop would leave what is paid for unused",
        "poisson": NOISY_COUNTS,
        "quantile": NO_HESSIAN,
        "colsample_bytree": _DRAWN_ALREADY,
        "colsample_bylevel": _DRAWN_ALREADY,
        "max_features": _DRAWN_ALREADY,
        "monotonic_cst": "not yet: its tables and leaves could be made monotone after the noise, at no cost",
        "interaction_cst": "not yet: columns could be drawn from one group for each tree",
        "max_leaf_nodes": "all leaves of a tree are released together, since a row is in one: fewer would save nothing",
        "min_child_weight": "how many rows are in a leaf is known with noise only, and leaves shrink by that noise",
        "min_samples_leaf": "how many rows are in a leaf is known with noise only, and leaves shrink by that noise",
        "warm_start": ALL_AT_ONCE,
    },
    DPBOOST: {
        "poisson": NOISY_COUNTS,
        "subsample": "every tree sees a secret random part of the rows of its own, which is what the budget counts on; "
        "rows left out besides would make noise matter more, and save nothing",
        "max_leaf_nodes": NODES_SHARE,
        "min_child_weight": PAID_QUESTIONS,
        "min_samples_leaf": PAID_QUESTIONS,
    },
}
"""What training on one table lacks: the estimators', which are not protocols between parties."""


_NO_PARAMETER = frozenset(
    {
        "sample_weight",
        "classes",
        "squared",
        "poisson",
        "quantile",
        "levels",
        "many_levels",
        "dates",
        "sparse",
        "warm_start",
    }
)
"""Features that rows and labels ask for, or the value of another parameter."""

_OFF: Mapping[str, Any] = {
    "min_child_weight": 0.0,
    "min_samples_leaf": 1,
    "early_stopping": "auto",
    "scale_pos_weight": 1.0,
    **dict.fromkeys(("subsample", "colsample_bytree", "colsample_bylevel", "max_features"), 1.0),
}
"""Parameter of trees -> the value with which it asks for nothing, beside None and False."""


def everywhere() -> tuple[str, ...]:
    """The columns of the table: what trains on one table, then all protocols between parties."""
    return (*_ON_ONE_TABLE, *names())


def lacking(name: str) -> Mapping[str, str]:
    """What a protocol lacks, and why."""
    return _ON_ONE_TABLE[name] if name in _ON_ONE_TABLE else find(name).lacks


def offered(name: str, feature: str) -> str | None:
    """None if a protocol offers a feature; else why it does not."""
    if feature not in FEATURES:
        raise InvalidParameter(f"there is no feature {feature!r} in the table; there are {', '.join(FEATURES)}")
    return lacking(name).get(feature)


def feature_of(parameter: str, value: Any) -> str | None:
    """The feature that a parameter of trees, set to this value, asks for; None if it is no feature of the table."""
    if value is None or value is False or (parameter in _OFF and value == _OFF[parameter]):
        return None
    if parameter == "loss":
        return {"squared_error": "squared", "poisson": "poisson"}.get(value, "quantile")
    parameter = "class_weight" if parameter == "scale_pos_weight" else parameter
    return parameter if parameter in FEATURES and parameter not in _NO_PARAMETER else None


def check_parameter(name: str, parameter: str, value: Any) -> None:
    """InvalidParameter, with the reason and a way out, if a protocol does not offer what this parameter asks for."""
    feature = feature_of(parameter, value)
    if feature is not None:
        check(name, feature, f"{parameter}={value!r}")


def check(name: str, feature: str, what: str) -> None:
    """An error with the reason and a way out, if a protocol lacks a feature; `what` asks for it."""
    reason = offered(name, feature)
    if reason is not None:
        others = [other for other in names() if offered(other, feature) is None]
        able = f"; protocols that offer it: {', '.join(others)}" if others else ""
        kind = (
            InvalidInput if feature in ("levels", "classes") else InvalidParameter
        )  # what rows are, and what is asked
        raise kind(f"{what}: {name} does not offer {FEATURES[feature]}: {reason}{able}")


def page() -> Iterator[str]:
    """The lines of docs/reference/features.md."""
    columns = everywhere()
    yield "# What each protocol offers"
    yield ""
    yield "Made from what the protocols declare, and held by tests that train with every feature. A number stands for"
    yield "the reason, below the table, why a protocol does not offer a feature. `plain` is `BoostedTreesClassifier`"
    yield "and `BoostedTreesRegressor`, `central.gaussian` is `PrivateBoosting...`, `central.dpboost` is `DPBoost...`."
    yield ""
    yield f"| | {' | '.join(column.split('.')[-1] for column in columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    reasons: list[str] = []
    for feature, words in FEATURES.items():
        cells = []
        for column in columns:
            reason = offered(column, feature)
            if reason is None:
                cells.append("yes")
                continue
            if reason not in reasons:
                reasons.append(reason)
            cells.append(f"{'not yet' if reason.startswith('not yet') else 'no'} ({reasons.index(reason) + 1})")
        yield f"| {words} | {' | '.join(cells)} |"
    yield ""
    for number, reason in enumerate(reasons, 1):
        yield f"{number}. {reason[0].upper()}{reason[1:]}."
