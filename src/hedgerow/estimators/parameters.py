"""The parameters of the estimators' constructors, as type checkers and editors see them.

    def __init__(self, **params: Unpack[ClassifierParameters]) -> None: ...

What the classes take, and their defaults, is in their bodies (`inputs.takes_parameters`); here the same names stand
once more with their types, together with the spellings of XGBoost and LightGBM, which are not attributes. So
`max_dept=3` is marked while it is typed, and `n_estimators=100` is not. A test holds both lists together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from hedgerow.engine.level_groups import ManyLevels
from hedgerow.engine.losses import MissingUnseen
from hedgerow.privacy.budget_file import Dataset
from hedgerow.protocols.bad_rows import OnBadRows
from hedgerow.schema import Schema


class HowToRun(TypedDict, total=False):
    """What all estimators take."""

    n_jobs: int | None
    nthread: int | None
    num_threads: int | None
    verbose: int
    random_state: Any
    seed: Any
    backend: Any


class Trees(TypedDict, total=False):
    """What all estimators of trees take, some private ones aside."""

    learning_rate: float
    eta: float
    max_iter: int
    n_estimators: int
    num_boost_round: int
    num_iterations: int
    max_depth: int | None
    l2_regularization: float
    reg_lambda: float
    lambda_: float
    lambda_l2: float


class PlainParameters(HowToRun, Trees, total=False):
    """Of both plain estimators."""

    max_leaf_nodes: int | None
    max_leaves: int | None
    num_leaves: int | None
    min_samples_leaf: int
    min_data_in_leaf: int
    min_child_samples: int
    min_rows_per_sum: int
    min_child_weight: float
    min_sum_hessian_in_leaf: float
    min_split_gain: float
    gamma: float
    min_split_loss: float
    min_gain_to_split: float
    max_features: float
    colsample_bynode: float
    feature_fraction_bynode: float
    colsample_bytree: float
    feature_fraction: float
    colsample_bylevel: float
    subsample: float
    bagging_fraction: float
    max_bins: int
    max_bin: int
    categorical_features: Any
    categorical_feature: Any
    monotonic_cst: Any
    monotone_constraints: Any
    interaction_cst: Any
    interaction_constraints: Any
    warm_start: bool
    early_stopping: bool | Literal["auto"]
    validation_fraction: float
    n_iter_no_change: int
    early_stopping_rounds: int | None
    early_stopping_round: int | None
    tol: float
    eval_metric: Any
    base_score: float | None
    gradient_bits: int | None
    missing_unseen: MissingUnseen
    one_hot_levels: Any
    many_levels: ManyLevels
    callbacks: Sequence[Any] | None


class ClassifierParameters(PlainParameters, total=False):
    """Of `BoostedTreesClassifier`."""

    class_weight: Mapping[Any, float] | Literal["balanced"] | None
    scale_pos_weight: float | None
    objective: str


class RegressorParameters(PlainParameters, total=False):
    """Of `BoostedTreesRegressor`."""

    loss: Literal["squared_error", "poisson", "absolute_error", "quantile"]
    objective: str
    quantile: float
    quantile_alpha: float
    alpha: float
    label_range: tuple[float, float] | None


class PrivateParameters(HowToRun, total=False):
    """Of all private estimators."""

    epsilon: float
    schema: Schema | None
    bounds: Literal["public", "from_data"]
    on_bad_rows: OnBadRows
    max_weight: float | None
    budget: Dataset | None


class DPBoostParameters(PrivateParameters, Trees, total=False):
    """Of both DPBoost estimators."""

    protocol: str
    trees_per_ensemble: int
    assignment: str
    binning: str
    max_bins: int
    max_bin: int
    selection: str
    filtering: bool | None
    monotonic_cst: Any
    monotone_constraints: Any
    interaction_cst: Any
    interaction_constraints: Any
    colsample_bytree: float
    feature_fraction: float
    colsample_bylevel: float
    max_features: float
    colsample_bynode: float
    feature_fraction_bynode: float
    early_stopping: bool
    validation_fraction: float
    warm_start: bool


class DPBoostClassifierParameters(DPBoostParameters, total=False):
    """Of `DPBoostClassifier`."""

    loss: str
    objective: str
    class_weight: Mapping[Any, float] | None
    scale_pos_weight: float | None


class DPBoostRegressorParameters(DPBoostParameters, total=False):
    """Of `DPBoostRegressor`."""

    loss: Literal["squared_error", "absolute_error", "quantile"]
    objective: str
    quantile: float
    quantile_alpha: float
    alpha: float


class GaussianParameters(PrivateParameters, total=False):
    """Of `PrivateBoostingClassifier` and `PrivateBoostingRegressor`; None leaves the choice to the policy."""

    delta: float
    policy: str
    max_iter: int | None
    n_estimators: int | None
    num_boost_round: int | None
    num_iterations: int | None
    max_depth: int | None
    learning_rate: float | None
    eta: float | None
    l2_regularization: float | None
    reg_lambda: float | None
    lambda_: float | None
    lambda_l2: float | None
    subsample: float
    bagging_fraction: float


class GaussianClassifierParameters(GaussianParameters, total=False):
    """Of `PrivateBoostingClassifier`."""

    class_weight: Mapping[Any, float] | None
    scale_pos_weight: float | None
