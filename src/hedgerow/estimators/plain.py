"""Gradient-boosted trees with scikit-learn's rules: fit, predict, clone, grid search, pipelines.

`BoostedTreesClassifier` and `BoostedTreesRegressor` train the plain engine on one machine, on data in one table.
Nothing is protected here: the model may remember its rows. Parameters carry the names of scikit-learn's
HistGradientBoosting; `inputs.py` lists the XGBoost and LightGBM spellings that are taken as well.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted, validate_data

from hedgerow.engine import importing
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.boosting import EvalSet, TrainingResult, train
from hedgerow.engine.contributions import contributions
from hedgerow.engine.dtypes import Bytes, Floats
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.export_lightgbm import export_lightgbm
from hedgerow.engine.export_onnx import export_onnx
from hedgerow.engine.export_pmml import export_pmml
from hedgerow.engine.export_treelite import export_treelite
from hedgerow.engine.export_xgboost import export_xgboost
from hedgerow.engine.interactions import interactions
from hedgerow.engine.level_groups import ManyLevels
from hedgerow.engine.losses import BoostingParams, MissingUnseen
from hedgerow.engine.rows_ray.cluster import RayBackend, chosen_backend, dataset_as_blocks
from hedgerow.engine.scratch import Room
from hedgerow.engine.sparse import SparseCodes
from hedgerow.engine.table import Table, read_table
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType, ModelFileError
from hedgerow.estimators import inputs, streamed
from hedgerow.estimators.streamed import BlockRows
from hedgerow.runtime.progress import ProgressLines

if TYPE_CHECKING:
    from hedgerow.estimators.parameters import ClassifierParameters, RegressorParameters
    from hedgerow.protocols.services.explain.roles import Contributions
    from hedgerow.report.page import Page

Path = str | PathLike[str]

FEW_ROWS = 4096
"""Below this starting threads takes longer than predicting."""

HOW_IT_RAN = {"n_jobs", "verbose", "warm_start", "callbacks", "backend"}
"""Parameters that do not belong into a model file."""

CLASSIFIER_LOSSES = ("logistic", "softmax", "squared")
"""The squared loss on labels -1 and 1 is how DPBoost classifies (`private.py`)."""

PRIVATE_ESTIMATORS = (
    "DPBoostClassifier",
    "DPBoostRegressor",
    "PrivateBoostingClassifier",
    "PrivateBoostingRegressor",
)
REGRESSOR_LOSSES = tuple(inputs.LOSSES.values())


@dataclass(frozen=True)
class _Rows:
    """What there is to learn from, or to check against: columns, labels as numbers, weights."""

    table: Table
    labels: Floats
    weight: Floats | None

    @property
    def room(self) -> Room:
        return np.empty

    def bins(self, max_bins: int, n_threads: int) -> BinMapper:
        return BinMapper.fit(self.table, max_bins, self.weight, n_threads)

    def codes(self, mapper: BinMapper, n_threads: int) -> Bytes | SparseCodes:
        return mapper.sparse_codes(self.table) if self.table.is_sparse else mapper.transform(self.table, n_threads)

    def take(self, rows: npt.NDArray[Any]) -> _Rows:
        weight = None if self.weight is None else self.weight[rows]
        return _Rows(self.table.taken(rows), self.labels[rows], weight)


_AnyRows = _Rows | BlockRows
_Watched = tuple[str, _AnyRows | tuple[Any, Any, Any]]
"""A name, and rows that were set apart or (X, y, weight) as somebody gave them."""


@inputs.takes_parameters()
class BoostedTrees(BaseEstimator):
    """What the classifier and the regressor share: reading tables, validation rows, training, the model file."""

    learning_rate: float = 0.1
    max_iter: int = 100
    max_leaf_nodes: int | None = None
    max_depth: int | None = 6
    min_samples_leaf: int = 1
    min_rows_per_sum: int = 1
    min_child_weight: float = 1.0
    l2_regularization: float = 1.0
    min_split_gain: float = 0.0
    max_features: float = 1.0
    colsample_bytree: float = 1.0
    colsample_bylevel: float = 1.0
    subsample: float = 1.0
    max_bins: int = 256
    categorical_features: Any = "from_dtype"
    many_levels: ManyLevels = "frequent"
    monotonic_cst: Any = None
    interaction_cst: Any = None
    warm_start: bool = False
    early_stopping: bool | Literal["auto"] = "auto"
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    tol: float = 1e-7
    eval_metric: Any = None
    base_score: float | None = None
    gradient_bits: int | None = None
    missing_unseen: MissingUnseen = "heavier"
    one_hot_levels: Any = None
    n_jobs: int | None = None
    verbose: int = 0
    random_state: Any = None
    callbacks: Sequence[Any] | None = None
    backend: Any = None

    ensemble_: Ensemble
    n_iter_: int
    best_iteration_: int | None
    evals_result_: dict[str, dict[str, list[float]]]
    constant_features_: tuple[str, ...]
    do_early_stopping_: bool
    n_features_in_: int
    _losses: tuple[str, ...]
    _seed: int

    # --- fit ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
    ) -> Self:
        """Train on the table `X` and the labels `y`.

        `X`: numpy array, pandas or polars data frame, arrow table or sparse matrix; NaN and None are missing values,
        and what a sparse matrix does not store is 0. Rows of weight 0 are left out. `X_val, y_val` (or
        `eval_set=[(X, y), ...]` as in XGBoost, of which the last one counts) are rows to watch while training; with
        early_stopping="auto" training stops when they no longer improve.

        Tables may also be in Parquet files, and larger than memory: `X` is then the path of a file or folder, or
        `Blocks`, and labels and weights are names of columns (docs/scale.md). With `backend="ray"` they may be spread
        over a Ray cluster. The model is the same.
        """
        inputs.check_values(self.get_params(deep=False))
        rows = self._read_training_rows(X, y, sample_weight)
        rows, watched = self._choose_watched(rows, _watch_list(eval_set, X_val, y_val, sample_weight_val))
        rows = self._weighted_by_class(rows)
        backend = chosen_backend(self.backend, self.n_jobs)
        if backend is not None:
            return self._keep(self._train_on_ray(backend, rows, watched))
        mapper, codes = self._bin(rows)
        result = self._train(mapper, codes, rows, [self._eval_set(mapper, *named) for named in watched])
        return self._keep(result)

    def _read_training_rows(self, X: Any, y: Any, sample_weight: Any) -> _AnyRows:
        """Check everything that comes in, forget an earlier fit unless this one continues it, drop rows of weight 0."""
        earlier = self._earlier()
        if earlier is None and hasattr(self, "ensemble_"):
            del self.ensemble_  # a fit that fails half-way must not leave old trees with new classes or columns
        like = None if earlier is None else earlier.mapper.features
        read = self._learn_labels if earlier is None else self._known_labels("y")
        rows, counted = self._labelled(X, y, sample_weight, read, like=like, reset=earlier is None)
        if earlier is None:
            self._seed = inputs.seed_from(self.random_state)
        if counted.size < 2:
            raise InvalidInput(f"X has n_samples = {counted.size} row to learn from, but at least 2 are needed")
        return rows if counted.size == rows.labels.size else rows.take(counted)

    def _labelled(
        self, X: Any, y: Any, weight: Any, read: streamed.ReadLabels, *, like: Any, reset: bool, of: str = ""
    ) -> tuple[_AnyRows, npt.NDArray[Any]]:
        """Rows as somebody gave them, in memory or in files, and which of them count; `of` names them in errors."""
        X = dataset_as_blocks(X, y)
        blocks, y, weight = streamed.opened(X, y, weight)
        self._check_names(X if blocks is None else blocks.empty(), reset=reset)
        how: dict[str, Any] = {"categorical_features": self.categorical_features, "many_levels": self.many_levels}
        table = blocks or read_table(X, **how, like=like, where=f"X{of}")
        weight = inputs.read_weights(streamed.read_column(blocks, weight), table.n_rows, f"sample_weight{of}")
        counted = np.arange(table.n_rows) if weight is None else np.flatnonzero(weight)
        labels = streamed.read_labels(blocks, y, counted, table.n_rows, read)
        if isinstance(table, Table):
            return _Rows(table, labels, weight), counted
        return BlockRows(table, labels, weight, **how), counted

    def _known_labels(self, where: str) -> streamed.ReadLabels:
        """Labels as an earlier fit read them."""
        return lambda y, _counted, n_rows: self._labels_like_training(y, n_rows, where)

    def _check_names(self, X: Any, *, reset: bool) -> None:
        """scikit-learn's rules for `n_features_in_` and `feature_names_in_`; `read_table` refuses what is no table."""
        try:
            n_dimensions = np.ndim(X) if isinstance(X, (list, tuple)) else getattr(X, "ndim", 2)
        except ValueError:  # numpy would tell how many rows there are
            raise InvalidInput("X is not a table: its rows are not equally long") from None
        if n_dimensions == 2:
            _in_our_words(validate_data, self, X, reset=reset, skip_check_array=True)

    def _earlier(self) -> Ensemble | None:
        """The model to continue from, if this is a warm start."""
        earlier = getattr(self, "ensemble_", None) if self.warm_start else None
        if earlier is not None and earlier.n_iterations > self.max_iter:
            raise InvalidParameter(
                f"max_iter={self.max_iter} must be larger than or equal to n_iter_={earlier.n_iterations} "
                "when warm_start=True"
            )
        return earlier

    def _choose_watched(self, rows: _AnyRows, given: list[_Watched]) -> tuple[_AnyRows, list[_Watched]]:
        """Decide about early stopping, and set rows apart for it where it was asked for and none were given.

        "auto" never sets rows apart by itself: a draw of rows would make the model depend on their order.
        """
        self.do_early_stopping_ = bool(given) if self.early_stopping == "auto" else bool(self.early_stopping)
        if given or not self.do_early_stopping_:
            return rows, given
        by_class = isinstance(self, ClassifierMixin)
        learn, check = split_rows(rows.labels, self.validation_fraction, self._seed, by_class=by_class)
        return rows.take(learn), [("valid", rows.take(check))]

    def _weighted_by_class(self, rows: _AnyRows) -> _AnyRows:
        """Rows to learn from with the weights of their classes, where there are some; those of weight 0 are left out.

        Rows to watch count as they were given.
        """
        return rows

    def _bin(self, rows: _AnyRows) -> tuple[BinMapper, Bytes | SparseCodes]:
        """Cut the columns into bins (an earlier model's, when continuing it); the codes are one row per column."""
        n_threads = resolve_n_jobs(self.n_jobs)
        earlier = self._earlier()
        mapper = earlier.mapper if earlier else rows.bins(self.max_bins, n_threads)
        codes = rows.codes(mapper, n_threads)
        if isinstance(codes, SparseCodes):
            constant = codes.are_constant().tolist()
        else:
            constant = [column.min() == column.max() for column in codes]
        named = zip(mapper.features, constant, strict=True)
        self._keep_constant([feature.name for feature, alike in named if alike], len(codes))
        return mapper, codes

    def _keep_constant(self, names: list[str], n_columns: int) -> None:
        """Columns in which all rows are alike; there must be others."""
        if len(names) == n_columns:
            raise InvalidInput(f"all {len(names)} columns of X are constant, so there is nothing to split on")
        self.constant_features_ = tuple(names)

    def _eval_set(self, mapper: BinMapper, name: str, data: _AnyRows | tuple[Any, Any, Any]) -> EvalSet:
        """Rows to watch, read as the model reads them."""
        if isinstance(data, tuple):
            read = self._known_labels(f"y of {name}")
            data, _ = self._labelled(*data, read, like=mapper.features, reset=False, of=f" of {name}")
        return EvalSet(name, data.codes(mapper, resolve_n_jobs(self.n_jobs)), data.labels, data.weight)

    def _train(
        self, mapper: BinMapper, codes: Bytes | SparseCodes, rows: _AnyRows, eval_sets: list[EvalSet]
    ) -> TrainingResult:
        earlier = self._earlier()
        if earlier is not None and earlier.n_iterations == self.max_iter:
            return TrainingResult(earlier, self.evals_result_, self.best_iteration_)
        callbacks = self._all_callbacks()
        if self.verbose:
            eval_sets = [EvalSet("train", codes, rows.labels, rows.weight), *eval_sets]
        return train(
            self._engine_params(mapper),
            mapper,
            codes,
            rows.labels,
            rows.weight,
            eval_sets=eval_sets,
            eval_metric=self.eval_metric,
            callbacks=callbacks,
            init=earlier,
            room=rows.room,
        )

    def _train_on_ray(self, backend: RayBackend, rows: _AnyRows, watched: list[_Watched]) -> TrainingResult:
        """The same on a cluster; rows to watch are scored here, and `verbose` shows no others."""
        from hedgerow.estimators.on_ray import placed

        if self._loss_params()["loss"] in ("absolute", "quantile"):
            raise InvalidParameter(
                f"loss={self.get_params()['loss']!r} does not go with backend={self.backend!r}: a leaf's value is a "
                "quantile over all its rows, and they are on many machines; use 'squared_error', or train here"
            )
        earlier = self._earlier()
        if earlier is not None and earlier.n_iterations == self.max_iter:
            return TrainingResult(earlier, self.evals_result_, self.best_iteration_)
        classes = getattr(self, "classes_", None) if isinstance(self, ClassifierMixin) else None
        with placed(backend, rows, classes) as there:
            mapper = earlier.mapper if earlier else there.bins(self.max_bins, resolve_n_jobs(self.n_jobs))
            result, constant = there.train(
                self._engine_params(mapper),
                mapper,
                earlier,
                eval_sets=[self._eval_set(mapper, *named) for named in watched],
                eval_metric=self.eval_metric,
                callbacks=self._all_callbacks(),
            )
        self._keep_constant(constant, len(mapper.features))
        return result

    def _all_callbacks(self) -> list[Any]:
        lines = [ProgressLines(self.max_iter, every=int(self.verbose))] if self.verbose else []
        return [*(self.callbacks or ()), *lines]

    def _engine_params(self, mapper: BinMapper) -> BoostingParams:
        earlier = self._earlier()
        return inputs.engine_params(
            self.get_params(deep=False),
            [(feature.name, feature.is_categorical) for feature in mapper.features],
            n_iterations=self.max_iter - (earlier.n_iterations if earlier else 0),
            seed=self._seed,
            n_threads=resolve_n_jobs(self.n_jobs),
            early_stopping_rounds=self.n_iter_no_change if self.do_early_stopping_ else None,
            **self._loss_params(),
        )

    def _keep(self, result: TrainingResult) -> Self:
        """Store the model and what was seen on the way."""
        ensemble = result.ensemble
        ensemble.classes = self._class_list()
        ensemble.meta |= {
            "estimator": type(self).__name__,
            "has_feature_names": hasattr(self, "feature_names_in_"),
            "params": {  # as far as JSON can hold them
                name: value
                for name, value in self.get_params(deep=False).items()
                if name not in HOW_IT_RAN and (value is None or isinstance(value, (bool, int, float, str)))
            },
        }
        drawn = min(self.subsample, self.colsample_bytree, self.colsample_bylevel, self.max_features) < 1
        if drawn or self.do_early_stopping_:
            ensemble.meta["seed"] = self._seed  # kept where something was drawn, to go on with the same draws
        self.ensemble_ = ensemble
        self.n_iter_ = self.ensemble_.n_iterations
        self.best_iteration_ = result.best_iteration
        self.evals_result_ = result.evals_log
        return self

    # --- predict -------------------------------------------------------------------------------------------------

    def _raw(self, X: Any) -> Floats:
        """Raw scores, [rows, outputs]."""
        blocks, _, _ = streamed.opened(X)
        if blocks is not None:
            return np.concatenate([self._raw(batch) for batch in self._batches(blocks)])
        rows, n_threads = self._read_like_training(X)
        return self.ensemble_.raw_scores(rows, n_threads)

    def _batches(self, blocks: Blocks) -> Iterator[Any]:
        """Rows to predict, some at a time."""
        check_is_fitted(self, "ensemble_")
        return (batch for _, batch in blocks.batches(streamed.names_like(self, blocks)))

    def _read_like_training(self, X: Any) -> tuple[Table | npt.NDArray[Any], int]:
        """Rows to predict with the model's columns, and how many threads that is worth."""
        check_is_fitted(self, "ensemble_")
        self._check_names(X, reset=False)
        features = self.ensemble_.features
        is_matrix = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float32, np.float64) and len(X) > 0
        if is_matrix and not any(feature.is_categorical or feature.rule for feature in features):
            rows, n_rows = X, len(X)  # as it is: a single row is predicted twice as fast
        else:
            rows = read_table(X, like=features)
            n_rows = rows.n_rows
        return rows, 1 if n_rows < FEW_ROWS else resolve_n_jobs(self.n_jobs)

    def _staged_raw(self, X: Any) -> Iterator[Floats]:
        """Raw scores after each iteration, each equal to those of a model stopped there."""
        leaves = self.apply(X)
        base = self.ensemble_.base_scores
        n_outputs = base.shape[0]
        scores = np.zeros((leaves.shape[0], n_outputs), np.float32)
        for number, tree in enumerate(self.ensemble_.trees):
            scores[:, number % n_outputs] += tree.value[leaves[:, number]]
            if (number + 1) % n_outputs == 0:
                yield scores + base

    def apply(self, X: Any) -> npt.NDArray[np.int32]:
        """The leaf that each row ends in, [rows, trees]; tree t belongs to output t % n_outputs."""
        blocks, _, _ = streamed.opened(X)
        if blocks is not None:
            return np.concatenate([self.apply(batch) for batch in self._batches(blocks)])
        rows, n_threads = self._read_like_training(X)
        return self.ensemble_.apply(rows, n_threads)

    def write_predictions(self, X: Any, path: Path, *, proba: bool = False, keep: Sequence[str] = ()) -> None:
        """Predict rows of Parquet files, some at a time, into a Parquet file: `prediction`, and columns to `keep`.

        `proba` adds `probability_<class>` for each class. The file is there once it is complete.
        """
        blocks, _, _ = streamed.opened(X)
        if blocks is None:
            raise InvalidType(f"write_predictions reads Parquet files, not a {type(X).__name__}; use predict for it")
        check_is_fitted(self, "ensemble_")
        streamed.write_predictions(self, blocks, pathlib.Path(path), proba=proba, keep=keep)

    @property
    def feature_importances_(self) -> Floats:
        """Each column's share of the total gain of all splits; sums to 1 (all 0 if no tree ever split)."""
        gains = self.importances("gain")
        total = gains.sum()
        return gains / total if total > 0 else gains

    def importances(self, kind: Literal["gain", "count"] = "gain") -> Floats:
        """Per column: the summed loss reduction of its splits ("gain"), or how many there are ("count")."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.importances(kind)

    def contributions(self, X: Any) -> Contributions:
        """What each column adds to the raw scores of each row (TreeSHAP): `columns`, `values`, `expected`.

        `values` is [rows, columns, outputs]; over all columns, and with `expected` [outputs], it adds up to the raw
        score: log odds for two classes, else the scores of `decision_function`, or what `predict` gives (for Poisson
        its logarithm).
        """
        from hedgerow.protocols.services.explain.roles import Contributions

        check_is_fitted(self, "ensemble_")
        blocks, _, _ = streamed.opened(X)
        batches = [X] if blocks is None else self._batches(blocks)
        found = np.concatenate([self._explained(contributions, batch) for batch in batches])
        names = tuple(feature.name for feature in self.ensemble_.features)
        return Contributions("", names, found[:, :-1], found[0, -1])

    def interaction_contributions(self, X: Any) -> Floats:
        """What each pair of columns adds to the raw scores only together (SHAP interaction values).

        [rows, columns + 1, columns + 1], and for more than two classes an axis of outputs behind; symmetric. A row of
        the matrix adds up to the column's contribution; on the diagonal is what a column adds by itself, and in the
        last corner what is expected.
        """
        check_is_fitted(self, "ensemble_")
        found = self._explained(interactions, X)
        return found[..., 0] if self.ensemble_.n_outputs == 1 else found

    def _explained(self, explain: Callable[..., Floats], X: Any) -> Floats:
        """Contributions, or interactions, of rows in memory."""
        self._check_names(X, reset=False)
        table = read_table(X, like=self.ensemble_.features)
        n_threads = 1 if table.n_rows < FEW_ROWS else resolve_n_jobs(self.n_jobs)
        narrow, column_of_feature = self.ensemble_.narrowed()
        return explain(narrow, self.ensemble_.codes(table, n_threads), column_of_feature, n_threads)

    # --- for people --------------------------------------------------------------------------------------------------

    def report(self, path: Path | None = None, X: Any = None, y: Any = None) -> Page:
        """The model as a page for people who sign; with `path` it is written there, as one HTML file.

        Rows `X` add contributions of columns, and labels `y` how good the model is on them.
        """
        from hedgerow.report.of_model import told_of_model
        from hedgerow.report.sections import page

        check_is_fitted(self, "ensemble_")
        return page(told_of_model(self, X, y), path)

    def _html_repr(self) -> str:
        """In notebooks: parameters as scikit-learn shows them, and of a fitted model its report."""
        drawn: str = super()._html_repr()
        return drawn + (self.report().fragment if hasattr(self, "ensemble_") else "")

    # --- files -----------------------------------------------------------------------------------------------------

    def save_model(self, path: Path) -> None:
        """Write the model as a JSON file (docs/reference/model_file.md)."""
        check_is_fitted(self, "ensemble_")
        self.ensemble_.save(path)

    def load_model(self, path: Path) -> Self:
        """Take over the model in a file written by `save_model`, or by XGBoost or LightGBM; parameters stay."""
        return self.adopt(importing.load_ensemble(path), path)

    def export_xgboost(self, path: Path) -> None:
        """Write a file that `xgboost.Booster.load_model` reads and that predicts the same."""
        check_is_fitted(self, "ensemble_")
        export_xgboost(self.ensemble_, path)

    def export_onnx(self, path: Path) -> None:
        """Write an ONNX file that predicts the same, in onnxruntime or elsewhere."""
        check_is_fitted(self, "ensemble_")
        export_onnx(self.ensemble_, path)

    def export_treelite(self, path: Path) -> None:
        """Write a file that `treelite.Model.deserialize` reads and that predicts the same."""
        check_is_fitted(self, "ensemble_")
        export_treelite(self.ensemble_, path)

    def export_lightgbm(self, path: Path) -> None:
        """Write a file that `lightgbm.Booster(model_file=path)` reads and that predicts the same."""
        check_is_fitted(self, "ensemble_")
        export_lightgbm(self.ensemble_, path)

    def export_pmml(self, path: Path) -> None:
        """Write PMML 4.4 that predicts the same in the engines that read it."""
        check_is_fitted(self, "ensemble_")
        export_pmml(self.ensemble_, path)

    def adopt(self, ensemble: Ensemble, path: Path) -> Self:
        """Become the estimator of a trained ensemble; `path` is where it came from, for the error message."""
        if ensemble.loss not in self._losses:
            raise ModelFileError(f"{path}: a model with {ensemble.loss} loss is not a model of a {type(self).__name__}")
        self.ensemble_ = ensemble
        names = [feature.name for feature in ensemble.mapper.features]
        self.n_features_in_ = len(names)
        if ensemble.meta.get("has_feature_names", names != [f"x{j}" for j in range(len(names))]):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_iter_ = ensemble.n_iterations
        self.best_iteration_ = None
        self.evals_result_ = {}
        self.constant_features_ = ()
        seed = ensemble.meta.get("seed")
        self._seed = seed if isinstance(seed, int) and 0 <= seed < 2**32 else 0
        return self

    def set_params(self, **params: Any) -> Self:
        """scikit-learn's `set_params`, which also takes the other libraries' spellings."""
        super().set_params(**inputs.translate(params, self._get_param_names(), type(self).__name__))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        return tags


@inputs.takes_parameters(of=BoostedTrees)
class BoostedTreesClassifier(ClassifierMixin, BoostedTrees):
    """Gradient-boosted trees for two or more classes.

    Two classes are trained with the logistic loss, one tree per iteration; more with softmax, one tree per iteration
    and class. Labels may be strings, booleans or whole numbers. The parameters are explained in
    docs/reference/estimators.md. The same data gives the same model, bit for bit, for any number of threads and any
    order of the rows, unless early_stopping=True or subsample < 1 draw some of them.

    >>> from hedgerow import BoostedTreesClassifier
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]] * 10, ["no", "no", "yes", "yes"] * 10
    >>> model = BoostedTreesClassifier(max_iter=5).fit(X, y)
    >>> model.predict([[1.5], [3.5]]).tolist()
    ['no', 'yes']
    """

    _losses = CLASSIFIER_LOSSES
    class_weight: Any = None
    scale_pos_weight: float | None = None
    classes_: npt.NDArray[Any]

    if TYPE_CHECKING:

        def __init__(self, **params: Unpack[ClassifierParameters]) -> None: ...

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of each row."""
        return self._winners(self._raw(X))

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class, [rows, classes], in the order of `classes_`."""
        raw = self._raw(X)
        return self.ensemble_.predictions(raw)

    def decision_function(self, X: Any) -> Floats:
        """Raw scores: log odds of `classes_[1]` [rows] for two classes, else [rows, classes]."""
        return _plain_scores(self._raw(X))

    def staged_predict(self, X: Any) -> Iterator[npt.NDArray[Any]]:
        """`predict` after each iteration."""
        return map(self._winners, self._staged_raw(X))

    def staged_predict_proba(self, X: Any) -> Iterator[Floats]:
        """`predict_proba` after each iteration."""
        return (self.ensemble_.predictions(raw) for raw in self._staged_raw(X))

    def staged_decision_function(self, X: Any) -> Iterator[Floats]:
        """`decision_function` after each iteration."""
        return map(_plain_scores, self._staged_raw(X))

    def _winners(self, raw: Floats) -> npt.NDArray[Any]:
        """Equal odds of two classes go to the first, as argmax of the probabilities does."""
        winners: npt.NDArray[np.intp] = (raw[:, 0] > 0).astype(np.intp) if raw.shape[1] == 1 else raw.argmax(axis=1)
        return self.classes_[winners]

    def _learn_labels(self, y: Any, counted: npt.NDArray[Any], n_rows: int) -> Floats:
        """Labels as positions in `classes_`, which are learned here from the rows that count."""
        values = inputs.read_classes(y, n_rows)
        classes, labels = inputs.encode_classes(values[counted])
        if classes.size < 2:
            raise InvalidInput(
                f"y has only one class, {classes.tolist()[0]!r}; a classifier needs rows of at least 2 classes"
            )
        inputs.warn_of_numbers(classes, labels)
        self.classes_ = classes
        full = np.zeros(n_rows)  # rows of weight 0 keep a 0 that nobody reads
        full[counted] = labels
        return full

    def _weighted_by_class(self, rows: _AnyRows) -> _AnyRows:
        weight = inputs.class_weights(
            rows.labels, self.classes_.tolist(), self.class_weight, self.scale_pos_weight, rows.weight
        )
        if weight is None or weight is rows.weight:
            return rows
        if isinstance(rows, BlockRows) and self.backend is not None:
            raise InvalidParameter(
                f"class_weight and scale_pos_weight are for rows on this machine; with backend={self.backend!r} and "
                "files put the weights into a column and give its name: fit(X, y, sample_weight=...)"
            )
        weighted = replace(rows, weight=weight)
        counted = np.flatnonzero(weight)
        return weighted if counted.size == rows.labels.size else weighted.take(counted)

    def _labels_like_training(self, y: Any, n_rows: int, where: str) -> Floats:
        return inputs.encode_like(inputs.read_classes(y, n_rows, where), self.classes_, where)

    def _loss_params(self) -> dict[str, Any]:
        n_classes = self.classes_.size
        if n_classes > 2 and self.monotonic_cst is not None:
            raise InvalidParameter(f"monotonic_cst needs two classes or a regressor, but y has {n_classes} classes")
        return {"loss": "logistic" if n_classes == 2 else "softmax", "n_classes": int(n_classes)}

    def _class_list(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def adopt(self, ensemble: Ensemble, path: Path) -> Self:
        """Become the estimator of a trained ensemble; classes without names are 0, 1, ..."""
        if ensemble.loss == "squared" and ensemble.classes is None:
            raise ModelFileError(f"{path}: a model with squared loss is not a model of a {type(self).__name__}")
        super().adopt(ensemble, path)
        n_classes = max(2, ensemble.n_outputs)
        classes = ensemble.classes if ensemble.classes is not None else range(n_classes)
        if len(classes) != n_classes:
            raise ModelFileError(f"{path}: the model distinguishes {n_classes} classes, but names {len(classes)}")
        self.classes_ = inputs.exact_array(list(classes))
        return self


@inputs.takes_parameters(of=BoostedTrees)
class BoostedTreesRegressor(RegressorMixin, BoostedTrees):
    """Gradient-boosted trees for numbers: squared error, Poisson deviance for counts, absolute error, or a quantile.

    `label_range=(low, high)` declares publicly what values labels can take, for jobs in which the data may not be
    looked at to find out; without it the smallest and largest label of the training rows are used. The other
    parameters are the classifier's, explained in docs/reference/estimators.md.

    >>> from hedgerow import BoostedTreesRegressor
    >>> model = BoostedTreesRegressor(max_iter=50, learning_rate=0.5).fit([[1.0], [2.0], [3.0], [4.0]], [1, 2, 3, 4])
    >>> model.predict([[1.0], [4.0]]).round().tolist()
    [1.0, 4.0]
    """

    _losses = REGRESSOR_LOSSES
    loss: Literal["squared_error", "poisson", "absolute_error", "quantile"] = "squared_error"
    quantile: float = 0.5
    label_range: tuple[float, float] | None = None

    if TYPE_CHECKING:

        def __init__(self, **params: Unpack[RegressorParameters]) -> None: ...

    def predict(self, X: Any) -> Floats:
        """The expected label of each row."""
        raw = self._raw(X)
        return self.ensemble_.predictions(raw)

    def staged_predict(self, X: Any) -> Iterator[Floats]:
        """`predict` after each iteration."""
        return (self.ensemble_.predictions(raw) for raw in self._staged_raw(X))

    def _learn_labels(self, y: Any, counted: npt.NDArray[Any], n_rows: int) -> Floats:
        labels = inputs.read_targets(y, n_rows)
        if self.loss == "poisson" and (labels[counted] < 0).any():
            row = int(counted[np.argmax(labels[counted] < 0)])
            raise InvalidInput(f"loss='poisson' needs labels of at least 0, but y is {labels[row]:g} in row {row}")
        if self.loss == "poisson" and not labels[counted].any():
            raise InvalidInput("loss='poisson' needs a label above 0, but y is 0 in every row")
        return labels

    def _labels_like_training(self, y: Any, n_rows: int, where: str) -> Floats:
        return inputs.read_targets(y, n_rows, where)

    def _loss_params(self) -> dict[str, Any]:
        return {"loss": inputs.LOSSES[self.loss], "label_range": self.label_range}

    def _class_list(self) -> None:
        return None


def split_rows(labels: Floats, share: float, seed: int, *, by_class: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows to learn from and rows to watch; of every class its share, and a class's only row to learn from."""
    rows, classes = np.arange(labels.size), None
    alone = np.zeros(labels.size, np.bool_)
    if by_class:
        classes = labels.astype(np.intp)
        alone = np.bincount(classes)[classes] == 1
    learn, check = _in_our_words(
        train_test_split,
        rows[~alone],
        test_size=share,
        stratify=None if classes is None else classes[~alone],
        random_state=seed,
    )
    return np.sort(np.concatenate([learn, rows[alone]])), np.sort(check)


def load_model(path: Path) -> BoostedTreesClassifier | BoostedTreesRegressor:
    """The estimator that a model file was saved from, ready to predict; a private one with its privacy statement.

    Files of XGBoost (JSON, UBJSON) and LightGBM (text) become plain estimators (docs/reference/elsewhere.md).
    """
    ensemble = importing.load_ensemble(path)
    kind: type[BoostedTreesClassifier | BoostedTreesRegressor]
    if ensemble.meta.get("estimator") in PRIVATE_ESTIMATORS:
        from hedgerow.estimators import private

        kind = getattr(private, ensemble.meta["estimator"])
    elif ensemble.classes is None and ensemble.loss in REGRESSOR_LOSSES:
        kind = BoostedTreesRegressor
    else:
        kind = BoostedTreesClassifier
    return kind().adopt(ensemble, path)


def _plain_scores(raw: Floats) -> Floats:
    return raw[:, 0] if raw.shape[1] == 1 else raw


def _watch_list(eval_set: Any, X_val: Any, y_val: Any, sample_weight_val: Any) -> list[_Watched]:
    """Validation data in either spelling as (name, (X, y, weight)); entries of `eval_set` have XGBoost's names."""
    if X_val is None and (y_val is not None or sample_weight_val is not None):
        raise InvalidParameter("y_val and sample_weight_val need X_val")
    if X_val is not None:
        if eval_set is not None:
            raise InvalidParameter("give either X_val and y_val or eval_set, not both")
        if y_val is None:
            raise InvalidParameter("X_val needs y_val")
        return [("valid", (X_val, y_val, sample_weight_val))]
    pairs = [eval_set] if isinstance(eval_set, tuple) else list(eval_set or ())
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) not in (2, 3):
            raise InvalidParameter(
                f"eval_set must be a list of (X, y) or (X, y, sample_weight), got {type(pair).__name__} as an entry"
            )
    return [
        (f"validation_{number}", (pair[0], pair[1], pair[2] if len(pair) == 3 else None))
        for number, pair in enumerate(pairs)
    ]


def _in_our_words(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call scikit-learn, and let what it finds wrong be one of our errors, with its own sentence."""
    try:
        return function(*args, **kwargs)
    except ValueError as problem:
        raise InvalidInput(str(problem)) from problem
    except TypeError as problem:
        raise InvalidType(str(problem)) from problem
