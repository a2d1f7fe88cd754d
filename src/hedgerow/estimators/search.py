"""Search of parameters with a private estimator, and a price for the search that was said beforehand.

    search = PrivateSearch(DPBoostClassifier(schema=schema), {"max_depth": [2, 4, 6]}, epsilon=1.0)
    search.fit(X, y).best_params_

scikit-learn's GridSearchCV trains a model for every setting and fold, each of which spends an epsilon of its own, and
reports exact scores on top. Here a random number of trials is made, and the best one is released, alone: the whole
costs `epsilon` and `delta`, selection included, however many settings there are (privacy/selection.py).

One trial: a setting is drawn from the list, with replacement; a model is trained with it on most of the rows, and
scored on the others, with noise. Which rows are for scoring is drawn once, by a secret coin for each row; a row serves
the models or the scores, never both, so that a trial costs it the larger of the two. What is released is one trial: its
setting, its model and its noisy score. How many trials there were, and what came of the others, is not told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.dtypes import Bools, Floats
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.estimators.private import PrivateEstimator
from hedgerow.privacy.accountants import Accountant, BasicComposition, ZeroConcentratedDP
from hedgerow.privacy.budget_file import Dataset
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.privacy.events import Composed, Event, Parallel, Released, Selected, chance_beyond
from hedgerow.privacy.mechanisms import discrete_gaussian, discrete_laplace
from hedgerow.privacy.selection import BestOf, best_of, delta_of_best, epsilon_of_runs, rho_of_runs
from hedgerow.protocols.bad_rows import fit_rows
from hedgerow.schema import Schema
from hedgerow.statement import NOT_COVERED, PARAMETERS_TRIED, PrivacyStatement, Stage

SCORE_UNIT = 2**12
"""A row's score is a whole number from 0 to this."""

SIZE_SHARE = 0.2
"""Of what a score may cost: the number of rows that it is over. The rest is for their sum."""

CLASSIFIER_SCORES = ("accuracy", "neg_brier_score")
REGRESSOR_SCORES = ("neg_mean_squared_error", "neg_mean_absolute_error")

OTHERS_TRIED = "the choice of parameters outside this search, if several were tried on these rows"

NOT_TOLD = (
    "How many trials there were stays secret, and so do all but the best one. Which rows were for scores was drawn in "
    "secret, for each row by itself, and stays secret."
)

HOW_LONG = "how long the search took: it tells something about the number of trials, which the guarantee keeps secret"


class _Trial(NamedTuple):
    """What came of one trial."""

    noisy_sum: int
    noisy_size: int
    params: dict[str, Any]
    model: PrivateEstimator


class PrivateSearch(MetaEstimatorMixin, BaseEstimator):
    """The best of several settings of a private estimator, for an (epsilon, delta) that covers the search.

    `param_grid` is as for GridSearchCV. `n_trials` is the mean number of trials; it is drawn anew in every `fit`, from
    the distribution with `shape` (0: logarithmic, often few and sometimes many; 1: geometric, steadier and dearer).
    Pure estimators (`DPBoost...`) get `epsilon` / (2 + shape) for each trial; for `PrivateBoosting...` it follows from
    Renyi DP. `epsilon` and `delta` of the estimator itself are not used, and a `budget` belongs here.

    After `fit`: `best_estimator_`, `best_params_`, the noisy `best_score_`, and `privacy_statement()`. The model is not
    trained again on all rows, which would cost as much again.

    >>> from hedgerow import DPBoostClassifier, PrivateSearch, Schema
    >>> schema = Schema.from_public(bounds={"x0": (0, 120)}, classes=["no", "yes"])
    >>> search = PrivateSearch(DPBoostClassifier(schema=schema, max_iter=5), {"max_depth": [1, 2]}, epsilon=2.0)
    >>> search.fit([[30.0], [40.0], [50.0]] * 40, ["no", "no", "yes"] * 40).privacy_statement().epsilon <= 2.0
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        n_trials: float = 10.0,
        shape: float = 0.0,
        scoring: str | None = None,
        validation_fraction: float = 0.2,
        budget: Dataset | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.n_trials = n_trials
        self.shape = shape
        self.scoring = scoring
        self.validation_fraction = validation_fraction
        self.budget = budget

    def fit(self, X: Any, y: Any) -> Self:
        """Search on the table `X` and the labels `y`. Nothing is looked at before it is paid for."""
        began = datetime.now(UTC).isoformat(timespec="seconds")
        plan = self._plan()
        with self._charged(plan.event) as random:
            n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
            words = np.frombuffer(random.bytes(8 * n_rows), "<u8")
            apart: Bools = words < np.uint64(int(self.validation_fraction * 2.0**64))
            learn, check = ((rows_of(X, side), rows_of(y, side)) for side in (~apart, apart))
            best: _Trial | None = None
            for _ in range(plan.best.draw(random)):
                trial = plan.run(learn, check, random)
                if best is None or trial.noisy_sum > best.noisy_sum:
                    best = trial
        if best is None:
            raise ProtocolError("a search makes one trial at least")
        statement = self._statement(plan, replace(best.model.privacy_statement(), date=began))
        best.model.restate(statement)
        self.best_estimator_, self.best_params_, self.statement_ = best.model, best.params, statement
        self.best_score_ = plan.score.shown(best.noisy_sum, best.noisy_size)
        self.n_features_in_ = best.model.n_features_in_
        return self

    def privacy_statement(self) -> PrivacyStatement:
        """What holds for all that was released, the search included."""
        check_is_fitted(self, "statement_")
        return self.statement_

    def planned_event(self) -> Event:
        """What `fit` will release, for an accountant; all parameters are checked, and no row is looked at."""
        return self._plan().event

    # --- the best model's verbs --------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """As the best model has it."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))  # type: ignore[untyped-decorator]  # not typed
    def predict_proba(self, X: Any) -> Floats:
        """As the best model has it."""
        check_is_fitted(self, "best_estimator_")
        probabilities: Floats = self.best_estimator_.predict_proba(X)
        return probabilities

    def score(self, X: Any, y: Any) -> float:
        """As the best model has it: exact, so for rows that need no protection."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    @property
    def classes_(self) -> Any:
        """Those of the best model."""
        return self.best_estimator_.classes_

    def __sklearn_tags__(self) -> Any:
        """What kind of estimator it is: that of what is searched."""
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier" if is_classifier(self.estimator) else "regressor"
        return tags

    # --- pieces ------------------------------------------------------------------------------------------------------

    def _plan(self) -> _Plan:
        """All that is public, checked."""
        estimator = self.estimator
        if not isinstance(estimator, PrivateEstimator):
            raise InvalidParameter(
                f"PrivateSearch is for private estimators, got {type(estimator).__name__}; others need no such search: "
                "use GridSearchCV"
            )
        if not (isinstance(self.epsilon, float | int) and 0.0 < self.epsilon < math.inf):
            raise InvalidParameter(f"epsilon must be a finite number above 0, got {self.epsilon!r}")
        if not (isinstance(self.validation_fraction, float) and 0.0 < self.validation_fraction < 1.0):
            raise InvalidParameter(f"validation_fraction must be above 0 and below 1, got {self.validation_fraction!r}")
        if self.budget is not None and not isinstance(self.budget, Dataset):
            raise InvalidParameter(f"budget must be BudgetFile(path).dataset(name), got {self.budget!r}")
        if estimator.get_params(deep=False)["budget"] is not None:
            raise InvalidParameter("a trial is not charged by itself: give the budget to PrivateSearch, which is")
        schema = estimator.get_params(deep=False)["schema"]
        if not isinstance(schema, Schema):
            raise InvalidParameter("PrivateSearch: the estimator needs its schema, schema=Schema.from_public(...)")
        settings = [dict(each) for each in ParameterGrid(self.param_grid)]
        for name in {name for each in settings for name in each} & {"epsilon", "delta", "schema", "bounds", "budget"}:
            raise InvalidParameter(f"{name} cannot be searched for: it is what the price of the search follows from")
        known = CLASSIFIER_SCORES if schema.classes is not None else REGRESSOR_SCORES
        scoring = known[-1 if schema.classes is not None else 0] if self.scoring is None else self.scoring
        if scoring not in known:
            raise InvalidParameter(f"scoring must be one of {', '.join(known)}, got {scoring!r}")
        best = best_of(self.n_trials, self.shape)
        pure = "delta" not in estimator.get_params(deep=False)
        each = epsilon_of_runs(self.epsilon, best) if pure else rho_of_runs(self.epsilon, self.delta, best)
        score = _Score(scoring, schema, each, BasicComposition if pure else ZeroConcentratedDP)
        trials = [self._trial(setting, score) for setting in settings]
        events = dict.fromkeys(trial.planned_event() for trial in trials)
        run = Parallel((Composed(score.events()), *events))
        event = Selected(run, *best, float(self.epsilon), 0.0 if pure else float(self.delta))
        (BasicComposition if pure else ZeroConcentratedDP)().check(event)
        return _Plan(best, score, tuple(zip(settings, trials, strict=True)), event)

    def _trial(self, setting: dict[str, Any], score: _Score) -> PrivateEstimator:
        """The estimator with one setting, and with as much epsilon as a trial may cost."""
        trial: PrivateEstimator = clone(self.estimator).set_params(
            **setting, verbose=0
        )  # lines would tell of every trial
        if score.unit is BasicComposition:
            return trial.set_params(epsilon=score.each)
        trial.set_params(delta=self.delta)
        low, high = 0.0, self.epsilon
        for _ in range(40):  # the largest epsilon at which a trial costs no more than it may
            middle = (low + high) / 2.0
            cost = ZeroConcentratedDP().cost(trial.set_params(epsilon=middle).planned_event())
            low, high = (middle, high) if cost <= score.each else (low, middle)
        return trial.set_params(epsilon=low)

    @contextmanager
    def _charged(self, planned: Event) -> Iterator[RandomBytes]:
        """Charge all of it before a row is looked at."""
        if self.budget is None:
            yield SecureRandom()
            return
        delta = planned.delta if isinstance(planned, Selected) else 0.0
        with self.budget.reserve(planned, what=type(self).__name__, delta=delta) as charge:
            yield SecureRandom()
            charge.settle(planned)

    def _statement(self, plan: _Plan, of_trial: PrivacyStatement) -> PrivacyStatement:
        """For the search as a whole; the trial's own is about a single one that had been fixed beforehand."""
        event = plan.event
        trial = "each trial's model, on the rows that are not for scores" + (
            f" (epsilon {plan.score.each:.4g})" if event.delta == 0.0 else f" ({plan.score.each:.3g}-zCDP)"
        )
        stages = (
            Stage(
                "selection",
                "the best of a random number of trials",
                words=f"In each trial one of {len(plan.trials)}, drawn at random; {plan.best.mean:.3g} trials on "
                "average. Their number was drawn in secret and is not told.",
            ),
            Stage("trials", trial),
            Stage("scores", f"noise on the sum of {plan.score.name} over rows that serve no model, as dear as a trial"),
        )
        return replace(
            of_trial,
            epsilon=event.epsilon,
            delta=event.delta,
            event=event,
            stages=stages,
            accountant="private selection (Papernot and Steinke 2022, theorem 2)",
            chance_beyond=0.0 if event.delta == 0.0 else chance_beyond(event.epsilon, plan.delta),
            audit=None,
            assumed_of_parties=(*of_trial.assumed_of_parties, NOT_TOLD),
            not_covered=(*(what for what in NOT_COVERED if what != PARAMETERS_TRIED), OTHERS_TRIED, HOW_LONG),
            facts={"settings": len(plan.trials), "mean number of trials": plan.best.mean, "scoring": plan.score.name},
        )


def rows_of(given: Any, side: Bools) -> Any:
    """Some rows of a table, or of labels, as what it is."""
    rows = np.flatnonzero(side)
    if hasattr(given, "iloc"):
        return given.iloc[rows]
    if isinstance(given, list | tuple):
        return [given[row] for row in rows.tolist()]
    return given.take(rows) if type(given).__module__.startswith("pyarrow") else given[rows]


class _Score:
    """How a model is scored: a sum over rows, each of which adds between 0 and 1, and their number; both with noise.

    One row more moves the sum by at most 1 and the number by 1. Of what a trial may cost (`each`, an epsilon or a rho),
    SIZE_SHARE is for the number.
    """

    def __init__(self, name: str, schema: Schema, each: float, unit: type[Accountant]) -> None:
        self.name, self.each, self.unit = name, each, unit
        self._schema = schema
        self._shares = ((1.0 - SIZE_SHARE) * (1.0 - 2.0**-36), SIZE_SHARE * (1.0 - 2.0**-36))

    def release(self, model: PrivateEstimator, rows: tuple[Any, Any], random: RandomBytes) -> tuple[int, int]:
        """The noisy sum and the noisy number of rows."""
        given = fit_rows(*rows, self._schema)
        ensemble = model.ensemble_
        predicted = ensemble.predictions(ensemble.raw_scores(given.table))
        units = np.rint(np.clip(self.of_rows(predicted, given.labels), 0.0, 1.0) * SCORE_UNIT).astype(np.int64)
        exact = (int(units[given.counts].sum()), int(np.count_nonzero(given.counts)) * SCORE_UNIT)
        noisy = [self._with_noise(np.array([of]), k, random).values[0] for k, of in enumerate(exact)]
        return int(noisy[0]), int(noisy[1])

    def of_rows(self, predicted: Floats, labels: Floats) -> Floats:
        """Each row's score, from 0 to 1."""
        scores: Floats
        if self._schema.label_bounds is not None:
            low, high = self._schema.label_bounds
            off = np.clip(np.abs(predicted - labels) / (high - low), 0.0, 1.0)
            scores = 1.0 - (off**2 if self.name == "neg_mean_squared_error" else off)
            return scores
        own = labels.astype(np.int64)
        if self.name == "accuracy":
            scores = (predicted.argmax(axis=1) == own).astype(np.float64)
            return scores
        truth = np.arange(predicted.shape[1]) == own[:, None]
        scores = 1.0 - ((predicted - truth) ** 2).sum(axis=1) / 2.0
        return scores

    def events(self) -> tuple[Event, ...]:
        """What both releases cost: as much for no number as for one."""
        nothing, unused = np.zeros(0, np.int64), SecureRandom.from_seed(bytes(32))
        if self.unit is ZeroConcentratedDP:  # the event counts coordinates
            return tuple(self._with_noise(np.zeros(1, np.int64), part, unused).event for part in range(2))
        return tuple(self._with_noise(nothing, part, unused).event for part in range(2))

    def shown(self, noisy_sum: int, noisy_size: int) -> float:
        """The mean score in its usual form, from noisy numbers."""
        mean = min(max(noisy_sum / max(noisy_size, SCORE_UNIT), 0.0), 1.0)
        if self.name == "accuracy":
            return mean
        if self._schema.label_bounds is None:
            return mean - 1.0
        width = self._schema.label_bounds[1] - self._schema.label_bounds[0]
        return (mean - 1.0) * (width**2 if self.name == "neg_mean_squared_error" else width)

    def _with_noise(self, exact: Any, part: int, random: RandomBytes) -> Released[Any]:
        cost = self.each * self._shares[part]
        if self.unit is BasicComposition:
            return discrete_laplace(exact, sensitivity=float(SCORE_UNIT), epsilon=cost, random=random)
        return discrete_gaussian(
            exact, sensitivity=float(SCORE_UNIT), sigma=SCORE_UNIT / math.sqrt(2.0 * cost), random=random
        )


class _Plan(NamedTuple):
    """What a search does, before a row is looked at."""

    best: BestOf
    score: _Score
    trials: tuple[tuple[dict[str, Any], PrivateEstimator], ...]
    event: Selected

    def delta(self, epsilon: float) -> float:
        """The privacy curve of the search, or slightly more: trials of Gaussian noise, with their samplers' share."""
        return delta_of_best(self.score.each, self.best, epsilon) + 0.05 * self.event.delta

    def run(self, learn: tuple[Any, Any], check: tuple[Any, Any], random: RandomBytes) -> _Trial:
        """One trial."""
        place = int.from_bytes(random.bytes(16), "little") * len(self.trials) >> 128
        params, configured = self.trials[place]
        model: PrivateEstimator = clone(configured)
        model.fit(*learn)
        cost = self.score.unit().cost(model.privacy_statement().event)
        if not cost <= self.score.each * (1.0 + 1e-9):
            raise ProtocolError(f"a trial cost {cost}, more than the {self.score.each} that were planned for")
        return _Trial(*self.score.release(model, check, random), params, model)
