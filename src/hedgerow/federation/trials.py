"""Cross-validation and search of parameters by parties together, and what every trial costs.

    tried = fed.cross_validate("vertical.homomorphic", cv=5, scoring="roc_auc", n_estimators=20)
    found = fed.tune("vertical.bucket_rr", {"max_depth": [3, 4], "learning_rate": [0.1, 0.3]}, epsilon=4, cache="kept")
    print(tried); print(found); found.run.model

Rows are dealt into folds once: where columns are split all parties use the same ones, which the label holder draws from
its labels, so the others learn which rows of theirs are in which fold. Where rows are split each owner deals its own.
A model is scored on rows that it was not trained on, by the parties together.

Every fold of every trial is a training of its own: what it releases is released, and a budget is charged for it. What
is stated as the cost of a trial is the sum over its folds, each as it was planned, or nothing where a kept transfer was
used again (`vertical.bucket_rr` with `cache`). Scores of held-out rows are exact numbers, which no epsilon covers.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold, ParameterGrid, ParameterSampler, StratifiedKFold

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.ensemble import predictions_from
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidInput, InvalidParameter, PrivacyWarning
from hedgerow.estimators.inputs import exact_array, seed_from
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.runtime.budgets import epsilon_of
from hedgerow.runtime.protocol import PartyData, find

if TYPE_CHECKING:
    from hedgerow.federation.federation import Federation

Rows = Mapping[str, Ints]
"""By party; where columns are split, the same for all."""


class Cost(NamedTuple):
    """What trainings cost the rows of one party, added up: infinite without a guarantee."""

    epsilon: float = 0.0
    delta: float = 0.0

    def plus(self, other: Cost) -> Cost:
        """Of both."""
        return Cost(self.epsilon + other.epsilon, self.delta + other.delta)

    def __str__(self) -> str:
        return "no guarantee" if math.isinf(self.epsilon) else f"epsilon {self.epsilon:g}, delta {self.delta:g}"


@dataclass(frozen=True, eq=False)
class Trial:
    """Parameters, and how models of them did on rows that they were not trained on."""

    params: Mapping[str, Any]
    scoring: str
    scores: Floats  # one for each fold; larger is better
    costs: Mapping[str, Cost]  # of all folds, by party; parties of whose rows nothing is released are left out
    free: Mapping[str, int]  # by party: in how many folds a kept transfer was used, which costs nothing
    bytes_sent: int  # by all parties, in all folds, with the scoring
    seconds: float
    runs: Sequence[Run] = field(default=(), repr=False)

    @property
    def score(self) -> float:
        """The mean over folds."""
        return float(np.mean(self.scores))

    def __str__(self) -> str:
        spread = float(np.std(self.scores))
        spent = "; ".join(f"{party}: {cost}" for party, cost in self.costs.items()) or "nothing released"
        kept = "".join(f"; {party}: {n} of {len(self.scores)} folds free, kept" for party, n in self.free.items() if n)
        return (
            f"{self.scoring} {self.score:.4f} (spread {spread:.4f} over {len(self.scores)} folds), "
            f"{self.bytes_sent:,} bytes, {self.seconds:.1f} s; {spent}{kept}"
        )


@dataclass(frozen=True, eq=False)
class Tuned:
    """All trials of a search, in order, and the training with the best parameters on all rows."""

    trials: Sequence[Trial]
    run: Run | None = None

    @property
    def best(self) -> Trial:
        """The first of those with the highest mean score."""
        return max(self.trials, key=lambda trial: trial.score)

    @property
    def best_params(self) -> dict[str, Any]:
        """What was varied, as it was in the best trial."""
        return dict(self.best.params)

    @property
    def costs(self) -> dict[str, Cost]:
        """What all trials cost together, by party; the training with the best parameters is not in it."""
        total: dict[str, Cost] = {}
        for trial in self.trials:
            for party, cost in trial.costs.items():
                total[party] = total.get(party, Cost()).plus(cost)
        return total

    def __str__(self) -> str:
        lines = [f"{'*' if trial is self.best else ' '} {dict(trial.params)}: {trial}" for trial in self.trials]
        spent = "; ".join(f"{party}: {cost}" for party, cost in self.costs.items())
        return "\n".join([*lines, f"all trials together: {spent or 'nothing released'}"])


# --- cross-validation ------------------------------------------------------------------------------------------------


def cross_validate(
    federation: Federation, protocol: str, cv: Any, scoring: Any, how: Mapping[str, Any], params: Mapping[str, Any]
) -> Trial:
    """Train on all folds but one and score that one, in turn."""
    plan = federation.plan(protocol, **params)
    _warn_if_spent(federation, plan, how, n_trials=1)
    folds = list(deal(federation, plan.data, cv, seed_from(plan.chosen.trees["random_state"])))
    return _tried(federation, protocol, folds, scoring, how, params)


def tune(
    federation: Federation,
    protocol: str,
    space: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    cv: Any,
    scoring: Any,
    n_trials: int | None,
    how: Mapping[str, Any],
    params: Mapping[str, Any],
    *,
    refit: bool,
) -> Tuned:
    """Cross-validate each choice of parameters on the same folds; with `n_trials`, so many that are drawn."""
    seed = seed_from(params.get("random_state"))
    choices = list(ParameterGrid(space) if n_trials is None else ParameterSampler(space, n_trials, random_state=seed))
    if not choices:
        raise InvalidParameter(f"there is nothing to choose from in {space!r}")
    twice = sorted({name for choice in choices for name in choice if name in params})
    if twice:
        raise InvalidParameter(f"{twice[0]} is to be searched, and is given as {params[twice[0]]!r} too; keep one")
    plans = [federation.plan(protocol, **params, **choice) for choice in choices]  # all of them are checked first
    _warn_if_spent(federation, plans[0], how, n_trials=len(choices))
    folds = list(deal(federation, plans[0].data, cv, seed))
    trials = [
        replace(_tried(federation, protocol, folds, scoring, how, {**params, **choice}), params=choice, runs=())
        for choice in choices
    ]
    found = Tuned(trials)
    return replace(found, run=federation.fit(protocol, **how, **params, **found.best_params)) if refit else found


def deal(federation: Federation, data: Mapping[str, PartyData], cv: Any, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Rows to learn from and rows held out, by party, fold by fold."""
    if federation.label_holder is not None:
        for learn, check in _dealt(data[federation.label_holder], cv, seed, federation.label_holder):
            yield dict.fromkeys(data, learn), dict.fromkeys(data, check)
        return
    by_owner = [list(_dealt(brought, cv, seed, name)) for name, brought in data.items()]
    for fold in zip(*by_owner, strict=True):
        yield tuple(dict(zip(data, rows, strict=True)) for rows in zip(*fold, strict=True))  # type: ignore[misc]  # two


def _dealt(brought: PartyData, cv: Any, seed: int, name: str) -> Iterator[tuple[Ints, Ints]]:
    if brought.labels is None or brought.blocks is not None:
        raise InvalidInput(f"{name}: cross-validation takes rows in memory, not files")
    n_rows = len(brought.labels)
    if isinstance(cv, int):
        if not 2 <= cv <= n_rows:
            raise InvalidParameter(f"cv must be between 2 and the number of rows of {name}, {n_rows}, got {cv}")
        enough = brought.classes is not None and np.bincount(brought.labels.astype(np.int64)).max() >= cv
        cv = (StratifiedKFold if enough else KFold)(cv, shuffle=True, random_state=seed)
    pairs: Iterable[Any] = cv.split(np.zeros((n_rows, 1)), brought.labels) if hasattr(cv, "split") else cv
    for learn, check in pairs:
        yield np.asarray(learn, np.int64), np.asarray(check, np.int64)


def _tried(
    federation: Federation,
    protocol: str,
    folds: Sequence[tuple[Rows, Rows]],
    scoring: Any,
    how: Mapping[str, Any],
    params: Mapping[str, Any],
) -> Trial:
    scores, runs, n_bytes, seconds = [], [], 0, 0.0
    costs: dict[str, Cost] = {}
    free: dict[str, int] = {}
    name = scoring or ("accuracy" if federation.task == "classification" else "r2")
    scorer = name if callable(name) else get_scorer(name)
    for learn, check in folds:
        learning, own = federation.with_rows(learn), _with_own_cache(params, learn)
        data = learning.plan(protocol, **own).data
        run = learning.fit(protocol, **how, **own)
        for party, (cost, was_free) in _costs(run, data).items():
            costs[party] = costs.get(party, Cost()).plus(cost)
            free[party] = free.get(party, 0) + was_free
        held = federation.with_rows(check).plan(protocol, **params).data
        raw, took = _raw(run, held, how)
        scores.append(_scored(run, raw, held, scorer))
        n_bytes += sum(meter.total().bytes_sent for meter in run.meters.values()) + took[0]
        seconds += run.seconds + took[1]
        runs.append(run)
    told = name if isinstance(name, str) else getattr(name, "__name__", "score")
    return Trial(dict(params), told, np.array(scores), costs, free, n_bytes, seconds, tuple(runs))


def _with_own_cache(params: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """A kept transfer is one of certain rows: each fold has a folder of its own, the same in every trial."""
    if params.get("cache") is None:
        return dict(params)
    digest = hashlib.sha256(b"".join(places.tobytes() for places in rows.values())).hexdigest()
    return {**params, "cache": str(Path(params["cache"]) / f"rows-{digest[:16]}")}


# --- what a fold costs -----------------------------------------------------------------------------------------------


def _costs(run: Run, data: Mapping[str, PartyData]) -> dict[str, tuple[Cost, bool]]:
    """By party, what its rows may have lost in a run, and whether that is nothing because a kept transfer was used."""
    spec = find(run.protocol)
    found = {}
    for party, brought in data.items():
        planned = spec.planned(run.job, party, brought)
        if planned is None:
            continue
        with_noise = any(event is not None for *_, event in run.ledgers[party].entries())
        is_free = spec.charges_itself(run.job, party) and not with_noise
        found[party] = (Cost() if is_free else Cost(epsilon_of(planned), planned.delta), is_free)
    return found


def _warn_if_spent(federation: Federation, plan: Any, how: Mapping[str, Any], *, n_trials: int) -> None:
    """Somebody who thinks of one epsilon should hear that it is spent in every fold."""
    spec, budget = plan.chosen.protocol, how.get("budget") or {}
    for party in federation.parties:
        planned = spec.planned(plan.job, party, plan.data[party])
        if planned is not None and party not in budget and math.isfinite(epsilon_of(planned)):
            trials = "" if n_trials == 1 else f" of each of {n_trials} trials"
            warnings.warn(
                f"every fold{trials} is a training that spends epsilon {epsilon_of(planned):g} of the rows of {party}, "
                "and the scores of held-out rows are exact; without budget= nothing keeps count of it",
                PrivacyWarning,
                stacklevel=4,
            )
            return


# --- scores ----------------------------------------------------------------------------------------------------------


class _Predicted(BaseEstimator):
    """What a model said about rows, as scikit-learn's scorers ask for it."""

    def __init__(self, predictions: Floats, raw: Floats, classes: Any = None) -> None:
        self.predictions, self.raw = predictions, raw
        if classes is not None:
            self.classes_ = exact_array(classes)

    def predict(self, _X: Any) -> Any:
        if not hasattr(self, "classes_"):
            return self.predictions
        return self.classes_[np.argmax(self.predictions, axis=1)]


class _PredictedClasses(ClassifierMixin, _Predicted):
    def predict_proba(self, _X: Any) -> Floats:
        return self.predictions

    def decision_function(self, _X: Any) -> Floats:
        return self.raw[:, 0] if self.raw.shape[1] == 1 else self.raw


class _PredictedNumbers(RegressorMixin, _Predicted):
    pass


def _raw(run: Run, held: Mapping[str, PartyData], how: Mapping[str, Any]) -> tuple[Floats, tuple[int, float]]:
    """Raw scores of rows that were held out, and what it took: bytes and seconds."""
    if not isinstance(run.model, VerticalModel):
        model = run.model.ensemble_
        tables = [read_table(brought.table, like=model.features, where=name) for name, brought in held.items()]
        return np.concatenate([model.raw_scores(table) for table in tables]), (0, 0.0)
    together = {name: how[name] for name in ("transport", "link", "deadline") if name in how}
    scoring = run.model.scoring({name: brought.table for name, brought in held.items()}, **together)
    return scoring.raw, (sum(meter.total().bytes_sent for meter in scoring.meters.values()), scoring.seconds)


def _scored(run: Run, raw: Floats, held: Mapping[str, PartyData], scorer: Any) -> float:
    model: Any = run.model
    loss = model.target.loss if isinstance(model, VerticalModel) else model.ensemble_.loss
    truth: list[Any] = []
    for brought in held.values():
        if brought.labels is not None and brought.classes is not None:
            truth += [brought.classes[int(code)] for code in brought.labels]
        elif brought.labels is not None:
            truth += brought.labels.tolist()
    counts = np.array([label is not None and label == label for label in truth])  # noqa: PLR0124 - NaN is not
    predictions = predictions_from(loss, raw)[counts]
    labels = [label for label, there in zip(truth, counts.tolist(), strict=True) if there]
    kind, classes = (_PredictedNumbers, None) if predictions.ndim == 1 else (_PredictedClasses, model.classes_.tolist())
    nothing = np.zeros((len(labels), 1))
    return float(scorer(kind(predictions, raw[counts], classes), nothing, exact_array(labels)))
