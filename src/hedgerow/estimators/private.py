"""Boosted trees whose release is differentially private, with scikit-learn's rules.

    DPBoostClassifier, DPBoostRegressor                    pure epsilon: the DPBoost paper, with its errors mended
    PrivateBoostingClassifier, PrivateBoostingRegressor    (epsilon, delta), the ones we recommend

Nothing may be looked at before it is paid for: columns, bounds, levels and classes come from a public `Schema`. Noise
comes from the operating system's secret randomness and cannot be seeded; `random_state` decides only what is public
anyway. With `epsilon=inf` there is no noise, nothing is private, and the same seed gives the same model.

`budget=` takes the budget of a dataset (`privacy.budget_file`), which every `fit` is charged to before it looks at a
row. No row can make `fit` raise (`protocols.bad_rows`), and what raises nevertheless stays charged. Where a guarantee
was given up, the statement begins with NOT PRIVATE.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.rows_ray.cluster import chosen_backend, dataset_as_blocks, reachable_address
from hedgerow.engine.table import read_table
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType, ModelFileError
from hedgerow.estimators import inputs
from hedgerow.estimators.inputs import takes_parameters
from hedgerow.estimators.plain import BoostedTrees, BoostedTreesClassifier, BoostedTreesRegressor, Path
from hedgerow.estimators.streamed import opened
from hedgerow.privacy.accountants import BasicComposition
from hedgerow.privacy.budget_file import Dataset
from hedgerow.privacy.events import Composed, Event
from hedgerow.protocols.bad_rows import OnBadRows, check_columns, check_on_bad_rows
from hedgerow.protocols.central.bins import public_bins
from hedgerow.protocols.central.dpboost.fit import fit_central
from hedgerow.protocols.central.dpboost.growth import list_candidates
from hedgerow.protocols.central.dpboost.plan import planned_event as planned_dpboost
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.protocols.central.gaussian.central import fit_gaussian, training_of
from hedgerow.protocols.central.gaussian.central import planned_event as planned_gaussian
from hedgerow.protocols.central.gaussian.on_ray import check_policy
from hedgerow.protocols.central.gaussian.training import GaussianSettings
from hedgerow.protocols.central.on_ray import ON_RAY_FROM_FILES, check_files
from hedgerow.protocols.central.released import CentralFit
from hedgerow.protocols.central.weighing import Weighing
from hedgerow.runtime.progress import OnProgress, watcher
from hedgerow.schema import CategoricalColumn, Column, NumericColumn, Schema
from hedgerow.statement import PrivacyStatement
from hedgerow.times import TIME_RULES, TimeRule

if TYPE_CHECKING:
    from hedgerow.estimators.parameters import (
        DPBoostClassifierParameters,
        DPBoostRegressorParameters,
        GaussianClassifierParameters,
        GaussianParameters,
    )

FROM_DATA = "bounds='from_data': bounds and levels were read off the rows themselves, which shows some of their values"

Bounds = Literal["public", "from_data"]
Train = Callable[..., CentralFit]
"""Takes the table, the labels, secret randomness, threads, and what to do with rows that do not fit."""

S = TypeVar("S", DPBoostSettings, GaussianSettings)
_SETTING = {"max_iter": "n_trees", "l2_regularization": "l2", "max_features": "colsample_bynode"}
"""Parameter -> what settings call it, where the names differ."""


class Before(NamedTuple):
    """What a training goes on from."""

    model: Ensemble
    statement: PrivacyStatement
    schema: Schema


def added_up(before: PrivacyStatement, after: PrivacyStatement) -> PrivacyStatement:
    """One statement for two trainings of which the second went on from the first, both pure: their epsilons add up."""
    event = Composed((before.event, after.event))
    accountant = BasicComposition(after.adjacency)
    if after.is_private and before.is_private:
        accountant.compose(event)
    epsilon = accountant.total if after.is_private and before.is_private else math.inf
    given_up = tuple(dict.fromkeys((*before.not_private, *after.not_private)))
    stages = (*before.stages, *after.stages)
    return replace(after, epsilon=epsilon, event=event, stages=stages, not_private=given_up, audit=None)


@takes_parameters()
class PrivateEstimator(BoostedTrees, ABC):
    """What all private estimators share: the schema, the budget, the statement."""

    epsilon: float = 1.0
    schema: Schema | None = None
    bounds: Bounds = "public"
    on_bad_rows: OnBadRows = "map"
    max_weight: float | None = None
    budget: Dataset | None = None
    n_jobs: int | None = None
    backend: Any = None
    verbose: int = 0
    random_state: Any = None

    schema_: Schema
    statement_: PrivacyStatement

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # type: ignore[override]  # no rows to watch
        """Train on the table `X` and the labels `y`, both as the schema describes them.

        `sample_weight` are numbers from 0 to `max_weight`, which is public and must be set; larger ones count as that.
        Numbers outside the public bounds count as the nearest bound, levels that are not listed as missing; a row whose
        label is not a listed class, or missing, does not count (`on_bad_rows`). No row makes this raise: errors are
        about parameters, about names and types of columns, or about a number of labels that is not that of the rows.
        """
        before = self._before()
        for name in ("ensemble_", "statement_"):
            if hasattr(self, name):
                delattr(self, name)  # a fit that fails must not leave the last one's model behind
        self._seed = inputs.seed_from(self.random_state)
        began = datetime.now(UTC).isoformat(timespec="seconds")  # not when it ends: that would tell how long it took
        self._check_guarantee()
        X, y, columns = self._where_rows_are(X, y)
        schema = self._public_schema(X, y)
        weighing = self._weighing(schema, has_weights=sample_weight is not None)
        train, planned = self._plan(schema, weighing, before)
        n_threads = resolve_n_jobs(self.n_jobs)
        if columns is not X:
            check_files(X, y, schema)
            columns = columns.select([column.name for column in schema.columns])
        check_columns(columns, schema)
        _warn_of_folds(self)
        with self._charged(planned) as (random, settle):
            self._check_names(columns, reset=True)
            given = {} if weighing is None else {"weighing": weighing, "sample_weight": sample_weight}
            done = train(X, y, random=random, n_threads=n_threads, on_bad_rows=self.on_bad_rows, **given)
            settle(done.event)
        given_up = (FROM_DATA,) if self.bounds == "from_data" else ()
        statement = replace(done.statement, date=began, not_private=(*done.statement.not_private, *given_up))
        if before is not None:
            statement = added_up(before.statement, statement)
        return self._keep_private(done.model, statement, schema)

    def privacy_statement(self) -> PrivacyStatement:
        """What holds for the released model and what does not: `print` it, or take its `to_dict()`."""
        check_is_fitted(self, "statement_")
        return self.statement_

    def adopt(self, ensemble: Ensemble, path: Path) -> Self:
        """Become the estimator of a trained ensemble, with the statement that its file holds."""
        super().adopt(ensemble, path)
        try:
            self.statement_ = PrivacyStatement.from_dict(ensemble.meta["privacy"])
            self.schema_ = Schema.from_dict(ensemble.meta["schema"])
        except (KeyError, InvalidInput, InvalidParameter) as problem:
            raise ModelFileError(f"{path}: the model has no privacy statement that can be read: {problem}") from None
        return self

    # --- what subclasses know ----------------------------------------------------------------------------------------

    @abstractmethod
    def _plan(self, schema: Schema, weighing: Weighing | None, before: Before | None = None) -> tuple[Train, Event]:
        """The training, and what it will cost at most; all parameters are checked here, without a look at the rows."""

    def _before(self) -> Before | None:
        """What to go on from; None for a training from the start."""
        return None

    def planned_event(self) -> Event:
        """What `fit` will release at most, for an accountant; all parameters are checked, and no row is looked at."""
        self._seed = inputs.seed_from(self.random_state)
        self._check_guarantee()
        if self.bounds != "public":
            raise InvalidParameter(f"{type(self).__name__}: bounds={self.bounds!r} gives the guarantee up: no plan")
        schema = self._public_schema(None, None)
        return self._plan(schema, self._weighing(schema, has_weights=False))[1]

    def _weighing(self, schema: Schema, *, has_weights: bool) -> Weighing | None:
        """What is public about the weights of rows; None where all count alike."""
        of = {
            "class_weight": getattr(self, "class_weight", None),
            "scale_pos_weight": getattr(self, "scale_pos_weight", None),
        }
        found = Weighing.declared(has_weights=has_weights, max_weight=self.max_weight, schema=schema, **of)
        if found is not None and chosen_backend(self.backend, self.n_jobs) is not None:
            raise InvalidParameter(
                "weights of rows are for rows on this machine, and backend='ray' is for rows elsewhere"
            )
        return found

    def _where_rows_are(self, X: Any, y: Any) -> tuple[Any, Any, Any]:
        """The table and its labels, and its columns: on a Ray cluster, files and the name of a column."""
        if (backend := chosen_backend(self.backend, self.n_jobs)) is None:
            return X, y, X
        reachable_address(backend)  # before anything is charged
        X, y, _ = opened(dataset_as_blocks(X, y), y)
        if X is None:
            raise InvalidType(ON_RAY_FROM_FILES)
        if self.bounds == "from_data":
            raise InvalidParameter("bounds='from_data' reads all rows here, and backend='ray' is for rows elsewhere")
        return X, y, X.empty()

    # --- pieces ------------------------------------------------------------------------------------------------------

    def _settings(self, kind: type[S], **more: Any) -> S:
        """Pass the parameters on as the settings of a protocol, which check them; `more` are those that differ."""
        more["seed"] = self._seed
        known = {field.name for field in fields(kind)} - set(more)
        given = {_SETTING.get(name, name): value for name, value in self.get_params(deep=False).items()}
        return kind(**{name: value for name, value in given.items() if name in known}, **more)

    def _check_guarantee(self) -> None:
        """A budget is for trainings that keep a guarantee; one that gives it up must not look at the rows first."""
        if self.bounds not in ("public", "from_data"):
            raise InvalidParameter(f"bounds must be 'public' or 'from_data', got {self.bounds!r}")
        check_on_bad_rows(self.on_bad_rows)
        if self.budget is None:
            return
        if not isinstance(self.budget, Dataset):
            raise InvalidParameter(
                f"budget must be the budget of a dataset, BudgetFile(path).dataset(name), got {self.budget!r}"
            )
        given_up = {
            "bounds='from_data'": self.bounds == "from_data",
            "on_bad_rows='raise'": self.on_bad_rows == "raise",
        }
        for parameter, is_given_up in given_up.items():
            if is_given_up:
                raise InvalidParameter(
                    f"budget is for trainings with a guarantee, and {parameter} gives it up; leave out one of the two"
                )

    def _public_schema(self, X: Any, y: Any) -> Schema:
        is_classifier = isinstance(self, BoostedTreesClassifier)
        if self.bounds == "from_data":
            if self.schema is not None:
                raise InvalidParameter("bounds='from_data' reads the schema off the rows; leave schema out")
            return schema_from_data(X, y, classes=is_classifier)
        if not isinstance(self.schema, Schema):
            raise InvalidParameter(_no_schema(type(self).__name__, X, self.schema))
        if is_classifier and self.schema.classes is None:
            raise InvalidParameter(f"{type(self).__name__}: the schema must list the classes: classes=[...]")
        if not is_classifier and self.schema.label_bounds is None:
            raise InvalidParameter(
                f"{type(self).__name__}: the schema must bound the label: label_bounds=(lowest, highest)"
            )
        return self.schema

    @contextmanager
    def _charged(self, planned: Event) -> Iterator[tuple[SecureRandom, Callable[[Event], None]]]:
        """Charge the planned event before a row is looked at; what was not used is given back when all went well.

        After an error nothing is: whatever is raised from here on may depend on rows, so it is paid for. What depends
        on parameters and on the table's columns alone was found before.
        """
        if self.budget is None:
            seed = hashlib.sha256(f"hedgerow noise-free {self._seed}".encode()).digest()
            # Secret, except where there is no secret to keep.
            random = SecureRandom.from_seed(seed) if math.isinf(self.epsilon) else SecureRandom()
            yield random, lambda _event: None
            return
        with self.budget.reserve(planned, what=type(self).__name__, delta=getattr(self, "delta", 0.0)) as charge:
            yield SecureRandom(), charge.settle  # what is charged has noise, so that its randomness is secret

    def _keep_private(self, model: Ensemble, statement: PrivacyStatement, schema: Schema) -> Self:
        model.meta |= {
            "estimator": type(self).__name__,
            "has_feature_names": hasattr(self, "feature_names_in_"),
            "privacy": statement.to_dict(),
            "schema": schema.to_dict(),
        }
        self.ensemble_, self.statement_, self.schema_ = model, statement, schema
        if schema.classes is not None:
            model.classes = schema.classes
            self.classes_ = inputs.exact_array(schema.classes)
        self.n_iter_ = model.n_iterations
        self.best_iteration_, self.constant_features_ = model.meta.get("best_iteration"), ()
        self.evals_result_ = {"valid": model.meta["learning_curve"]} if "learning_curve" in model.meta else {}
        return self

    def restate(self, statement: PrivacyStatement) -> None:
        """Say of the model what holds for it as the outcome of something larger, such as a search."""
        check_is_fitted(self, "statement_")
        self.statement_ = statement
        self.ensemble_.meta["privacy"] = statement.to_dict()

    def watch(self, on_progress: OnProgress) -> Self:
        """Have this called in `fit` with the number of steps done, and of all."""
        self._on_progress = on_progress
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Pickled without whoever watches. A budget is a reference to its file: every copy is charged there."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_on_progress"}

    def _told(self, what: str) -> OnProgress | None:
        """Progress for whoever watches, and lines for `verbose`."""
        return watcher(int(self.verbose), getattr(self, "_on_progress", None), f" {what}")


@takes_parameters(of=PrivateEstimator)
class _DPBoost(PrivateEstimator):
    """Parameters of the DPBoost family as settings."""

    protocol: str = "central.dpboost"
    max_iter: int = 50
    trees_per_ensemble: int = 50
    max_depth: int = 6
    learning_rate: float = 0.1
    l2_regularization: float = 0.1
    assignment: str = "independent"
    binning: str = "public"
    max_bins: int = 32
    selection: str = "exponential"
    filtering: bool | None = None
    monotonic_cst: Any = None
    interaction_cst: Any = None
    colsample_bytree: float = 1.0
    colsample_bylevel: float = 1.0
    max_features: float = 1.0
    early_stopping: bool = False
    validation_fraction: float = 0.1
    warm_start: bool = False

    def _before(self) -> Before | None:
        if not self.warm_start or not hasattr(self, "ensemble_"):
            return None
        return Before(self.ensemble_, self.statement_, self.schema_)

    def _plan(self, schema: Schema, weighing: Weighing | None, before: Before | None = None) -> tuple[Train, Event]:
        n_trees = self.max_iter if before is None else self.max_iter - before.model.n_iterations
        columns = [(column.name, isinstance(column, CategoricalColumn)) for column in schema.columns]
        settings = self._settings(
            DPBoostSettings,
            n_trees=n_trees,
            loss=self._loss(),
            n_classes=2 if schema.classes is None else len(schema.classes),
            weighted=weighing is not None,
            monotone=inputs.monotone_signs(self.monotonic_cst, columns),
            interaction=inputs.interaction_groups(self.interaction_cst, [name for name, _ in columns]),
        )
        planned = planned_dpboost(settings, schema)
        bins = public_bins(schema, settings.max_bins)
        list_candidates(schema, bins)  # refuses a schema with nothing to split on
        backend, told = chosen_backend(self.backend, self.n_jobs), self._told("trees")
        earlier = None if before is None else before.model
        if before is not None and (before.schema != schema or self.binning != "public" or backend is not None):
            raise InvalidParameter(
                "warm_start goes on with the same schema and public bins, on this machine: leave the schema and "
                "binning='public' as they were, without backend"
            )
        if earlier is not None and earlier.mapper != bins:
            raise InvalidParameter(f"warm_start goes on with the same bins: max_bins={self.max_bins} is another number")
        how: dict[str, Any] = {"on_progress": told, "backend": backend, "earlier": earlier}
        return partial(fit_central, schema=schema, settings=settings, **how), planned

    @abstractmethod
    def _loss(self) -> str:
        """As the settings name it."""


@takes_parameters(of=_DPBoost)
class DPBoostClassifier(_DPBoost, BoostedTreesClassifier):
    """DPBoost for two or more classes: pure epsilon-differential privacy for adding or removing one row.

    Trees are trained on disjoint random parts of the rows, splits chosen by the exponential mechanism, leaf values
    clipped and blurred with Laplace noise (Li et al. 2020, with the corrections in docs/protocols/central_dp.md). More
    than two classes are trained with softmax: every leaf has a value for each of them.
    `protocol` may name one of the paper's baselines: "central.sequential", "central.parallel", or "central.plain",
    which is not private. For better models under (epsilon, delta) use `PrivateBoostingClassifier`.

    >>> from hedgerow import DPBoostClassifier, Schema
    >>> schema = Schema.from_public(bounds={"x0": (0, 120)}, classes=["no", "yes"])
    >>> model = DPBoostClassifier(epsilon=1.0, schema=schema, max_iter=5)
    >>> model.fit([[30.0], [40.0], [50.0]] * 20, ["no", "no", "yes"] * 20).privacy_statement().epsilon <= 1.0
    True
    """

    loss: str = "squared"
    class_weight: Any = None
    scale_pos_weight: float | None = None

    def _loss(self) -> str:
        if self.loss not in ("squared", "logistic"):
            raise InvalidParameter(f"loss must be 'squared' or 'logistic', got {self.loss!r}")
        return self.loss

    if TYPE_CHECKING:

        def __init__(self, **params: Unpack[DPBoostClassifierParameters]) -> None: ...


@takes_parameters(of=_DPBoost)
class DPBoostRegressor(_DPBoost, BoostedTreesRegressor):
    """DPBoost for numbers between public bounds, by squared, absolute or quantile loss; see `DPBoostClassifier`."""

    loss: str = "squared_error"  # type: ignore[assignment]  # other losses than the plain one's
    quantile: float = 0.5

    def _loss(self) -> str:
        known = {"squared_error": "squared", "absolute_error": "quantile", "quantile": "quantile"}
        if self.loss not in known:
            raise InvalidParameter(f"loss must be one of {', '.join(known)}, got {self.loss!r}")
        if self.loss != "quantile" and self.quantile != 0.5:
            raise InvalidParameter(f"quantile={self.quantile!r} is for loss='quantile', not for {self.loss!r}")
        return known[self.loss]

    if TYPE_CHECKING:

        def __init__(self, **params: Unpack[DPBoostRegressorParameters]) -> None: ...


@takes_parameters(of=PrivateEstimator)
class _Gaussian(PrivateEstimator):
    """Parameters of `central.gaussian` as settings; None leaves the choice to the policy."""

    delta: float = 1e-6
    policy: str = "smooth_then_trees"
    max_iter: int | None = None  # type: ignore[assignment]  # a number elsewhere
    max_depth: int | None = None
    learning_rate: float | None = None  # type: ignore[assignment]  # as above
    l2_regularization: float | None = None  # type: ignore[assignment]  # as above
    subsample: float = 1.0

    def _plan(self, schema: Schema, weighing: Weighing | None, before: Before | None = None) -> tuple[Train, Event]:  # noqa: ARG002 - the recipe starts anew
        if weighing is not None and self.policy == "exponential":
            raise InvalidParameter("weights of rows are for policies that release sums, not for policy='exponential'")
        settings = self._settings(GaussianSettings)
        training_of(schema, settings)  # refuses a schema that the policy cannot train on
        if (backend := chosen_backend(self.backend, self.n_jobs)) is not None:
            check_policy(settings)
        told = self._told("releases")
        train = partial(fit_gaussian, schema=schema, settings=settings, on_progress=told, backend=backend)
        return train, planned_gaussian(settings)


@takes_parameters(of=_Gaussian)
class PrivateBoostingClassifier(_Gaussian, BoostedTreesClassifier):
    """(epsilon, delta)-differentially private boosting for two or more classes: the one we recommend.

    Noisy class histograms give bins, ten passes over the columns give one smoothed function each, and random oblivious
    trees add what columns say together; all noise is Gaussian on whole numbers, accounted exactly. There is nothing to
    tune: every constant follows from public or released numbers (docs/protocols/central_gaussian.md). `policy` names
    other ways, for study; the parameters from `max_iter` to `subsample` are theirs.

    >>> from hedgerow import PrivateBoostingClassifier, Schema
    >>> schema = Schema.from_public(bounds={"x0": (0, 120)}, classes=["no", "yes"])
    >>> model = PrivateBoostingClassifier(epsilon=1.0, delta=1e-6, schema=schema)
    >>> model.fit([[30.0], [40.0], [50.0]] * 20, ["no", "no", "yes"] * 20).privacy_statement().epsilon <= 1.0
    True
    """

    class_weight: Any = None
    scale_pos_weight: float | None = None

    if TYPE_CHECKING:

        def __init__(self, **params: Unpack[GaussianClassifierParameters]) -> None: ...


class PrivateBoostingRegressor(_Gaussian, BoostedTreesRegressor):
    """The same for numbers between public bounds; predictions never leave them."""

    if TYPE_CHECKING:

        def __init__(self, **params: Unpack[GaussianParameters]) -> None: ...


_warned: set[str] = set()
"""Kinds of estimators of which somebody was told in this process that every fold spends."""


def _warn_of_folds(estimator: PrivateEstimator) -> None:
    """UserWarning, once for each kind, if scikit-learn cross-validates or searches without a budget that adds it up.

    Every fold and every candidate spends epsilon once more, on rows that others have seen as well. Who called is told
    by the stack, since nothing else tells a fold from a fit by itself, which says nothing.
    """
    kind = type(estimator).__name__
    if estimator.budget is not None or math.isinf(estimator.epsilon) or kind in _warned:
        return
    frame = inspect.currentframe()
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("sklearn.model_selection"):
        frame = frame.f_back
    if frame is None:
        return
    _warned.add(kind)
    warnings.warn(
        f"{kind} is cross-validated without a budget: every fold and every candidate spends "
        f"epsilon={estimator.epsilon:g} of the rows that it sees, and nobody adds it up. Give "
        "budget=BudgetFile(path).dataset(name), which every fit is charged to",
        UserWarning,
        stacklevel=3,
    )


def schema_from_data(X: Any, y: Any, *, classes: bool) -> Schema:
    """What the rows themselves say: convenient for a first try, and never private."""
    table = read_table(X, many_levels="hash")
    columns: list[Column] = []
    for column in table.columns:
        if column.levels is not None:
            hashed: Literal["hash"] | None = "hash" if column.rule == "hash" else None
            columns.append(CategoricalColumn(column.name, tuple(column.levels), may_be_missing=True, rule=hashed))
            continue
        values = np.asarray(column.values, np.float64)
        there = values[np.isfinite(values)]
        if not there.size:
            raise InvalidInput(f"column {column.name!r} has no value that bounds could be read off")
        low, high = float(there.min()), float(there.max())
        whole = bool((there == np.floor(there)).all()) and column.rule is None
        time: TimeRule | None = next((rule for rule in TIME_RULES if rule == column.rule), None)
        columns.append(NumericColumn(column.name, low, high if high > low else low + 1.0, whole, True, time))
    if classes:
        found, _ = inputs.encode_classes(inputs.read_classes(y, table.n_rows))
        return Schema(tuple(columns), classes=tuple(found.tolist()))
    targets = inputs.read_targets(y, table.n_rows)
    low, high = float(targets.min()), float(targets.max())
    return Schema(tuple(columns), label_bounds=(low, high if high > low else low + 1.0))


def _no_schema(owner: str, X: Any, given: Any) -> str:
    if given is not None:
        return f"{owner}: schema must be a hedgerow.Schema, got {type(given).__name__}"
    try:
        outline = Schema.outline(X)
    except InvalidInput:
        outline = 'Schema.from_public(bounds={"x0": (LOWEST, HIGHEST), ...}, classes=[...])'
    return (
        f"{owner} needs the public facts about the table: schema=Schema.from_public(...). Bounds read off the rows "
        "would give some of them away. For this table, with values that anybody may know:\n"
        f"{outline}\n(bounds='from_data' reads them off the rows all the same, and the model is then NOT PRIVATE)"
    )
