"""One small training for every feature of the table: what it changes about rows, labels and parameters.

    case = Case.of("sample_weight", "subsample")        both at once
    trained(case, "vertical.homomorphic")               scores of its rows by the joint model
    pooled(case, "vertical.homomorphic")                the same by the plain engine, on one table

Columns have few values, so that bins are the same however a protocol finds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import scipy.sparse

from hedgerow import (
    BoostedTreesClassifier,
    BoostedTreesRegressor,
    Federation,
    Run,
    Schema,
)
from hedgerow.engine import boosting

N_ROWS, MANY_ROWS = 160, 600
HOLDERS = {"anna": ["a0", "a1"], "ben": ["b0", "b1"], "carla": ["c0"]}
NAMES = [name for names in HOLDERS.values() for name in names]
SMALL = {
    "max_iter": 2,
    "max_depth": 3,
    "learning_rate": 0.3,
    "max_bins": 32,
    "random_state": 7,
    "min_child_weight": 0.0,
}

REGRESSIONS = frozenset({"squared", "poisson", "quantile"})
BY_NAME = frozenset({"levels", "many_levels", "dates", "monotonic_cst", "interaction_cst"})

OPTIONS: dict[str, dict[str, Any]] = {
    "horizontal.secure_sum": {},
    "vertical.bucket_rr": {"epsilon": math.inf, "edges": "quantile", "buckets": 32, "debias": False},
    "vertical.noised_gradients": {"epsilon": math.inf},
    "vertical.homomorphic": {},
    "vertical.masked_gradients": {"sigma1": 1.0, "sigma2": 1.0, "C": 0.0, "accept_known_leaks": True},
    "vertical.private_histograms": {"epsilon": math.inf},
    "vertical.secret_shared": {"gradient_bits": 12},
    "vertical.mp_fedxgb": {"accept_known_leaks": True},
}
"""Of each protocol, without noise wherever it can do without."""

LOSSLESS = frozenset(OPTIONS) - {"vertical.private_histograms", "vertical.mp_fedxgb"}
"""Protocols that train the pooled engine's trees, bit for bit."""


@dataclass
class Case:
    """Rows, labels, and what is asked of a training."""

    task: str = "classification"
    params: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)
    labels: np.ndarray = field(default_factory=lambda: np.empty(0))
    weight: np.ndarray | None = None
    validation: np.ndarray | None = None  # rows that are watched
    more_trees: int = 0  # in a second training that goes on from the first
    is_sparse: bool = False
    federation: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, *features: str, seed: int = 0) -> Case:
        """A training with these features."""
        rng = np.random.default_rng(seed)
        case, n_rows = cls(params=dict(SMALL)), MANY_ROWS if "many_levels" in features else N_ROWS
        numbers = {name: rng.integers(0, 9, n_rows).astype(np.float64) for name in NAMES}
        signal = numbers["a0"] - numbers["b0"] + 0.5 * numbers["c0"] * (numbers["b1"] > 4) + rng.normal(size=n_rows)
        numbers["b0"][rng.random(n_rows) < 0.1] = np.nan
        case.columns, case.labels = numbers, (signal > np.median(signal)).astype(np.int64)
        if REGRESSIONS & set(features):
            case.task, case.labels = "regression", np.clip(np.round(signal + 8), 0, 24)
        for feature in sorted(features, key=list(CHANGES).index):
            CHANGES[feature](case, rng)
        return case

    @property
    def n_rows(self) -> int:
        """Of all columns."""
        return len(self.labels)

    @property
    def tables(self) -> dict[str, Any]:
        """By holder of columns."""
        return {party: self._of(names) for party, names in HOLDERS.items()}

    @property
    def table(self) -> Any:
        """All columns in one."""
        return self._of(NAMES)

    def _of(self, names: list[str]) -> Any:
        if self.is_sparse:
            return scipy.sparse.csr_matrix(np.column_stack([self.columns[name] for name in names]))
        return pa.table({name: self.columns[name] for name in names})


def _three_classes(case: Case, rng: np.random.Generator) -> None:
    case.labels = case.labels + (rng.random(case.n_rows) < 0.3)


def _loss(name: str, **more: Any) -> Any:
    def change(case: Case, _rng: np.random.Generator) -> None:
        case.params |= {"loss": name, **more}
        if name in ("squared_error", "poisson"):
            case.params |= {"label_range": (0.0, 24.0)}

    return change


def _weights(case: Case, rng: np.random.Generator) -> None:
    case.weight = rng.integers(1, 4, case.n_rows).astype(np.float64)


def _class_weights(case: Case, _rng: np.random.Generator) -> None:
    case.params["class_weight"] = {int(label): 1.0 + label for label in set(case.labels.tolist())}


def _watched(case: Case, rng: np.random.Generator) -> None:
    case.validation = rng.random(case.n_rows) < 0.25
    case.params |= {"early_stopping": True, "n_iter_no_change": 1, "max_iter": 4, "learning_rate": 0.9}


def _two_trainings(case: Case, _rng: np.random.Generator) -> None:
    case.more_trees = 2


def _sparse(case: Case, rng: np.random.Generator) -> None:
    case.is_sparse = True
    for name in NAMES:
        case.columns[name][rng.random(case.n_rows) < 0.5] = 0.0


def _levels(case: Case, _rng: np.random.Generator) -> None:
    for name in ("a1", "b1"):
        case.columns[name] = np.array(["red", "green", "blue"])[(case.columns[name] % 3).astype(int)]


def _many_levels(case: Case, rng: np.random.Generator) -> None:
    for name in ("a1", "b1"):
        number = case.columns[name] if case.columns[name].dtype.kind == "f" else rng.integers(0, 9, case.n_rows)
        case.columns[name] = np.array([f"shop {int(k) * 60 + which % 60}" for which, k in enumerate(number)])


def _dates(case: Case, _rng: np.random.Generator) -> None:
    days = np.datetime64("2026-01-01", "D") + (case.columns["c0"]).astype("timedelta64[D]")
    case.columns["c0"], case.columns["a0"] = days, case.columns["a0"] > 4


def _params(**params: Any) -> Any:
    def change(case: Case, _rng: np.random.Generator) -> None:
        case.params |= params

    return change


CHANGES: dict[str, Any] = {  # those that change columns or labels first
    "classes": _three_classes,
    "levels": _levels,
    "many_levels": _many_levels,
    "sparse": _sparse,
    "dates": _dates,
    "sample_weight": _weights,
    "class_weight": _class_weights,
    "squared": _loss("squared_error"),
    "poisson": _loss("poisson"),
    "quantile": _loss("quantile", quantile=0.7),
    "subsample": _params(subsample=0.7),
    "colsample_bytree": _params(colsample_bytree=0.6),
    "colsample_bylevel": _params(colsample_bylevel=0.6),
    "max_features": _params(max_features=0.6),
    "monotonic_cst": _params(monotonic_cst={"a0": 1, "b0": -1}),
    "interaction_cst": _params(interaction_cst=[{"a0", "b0"}, {"a1", "b1", "c0"}]),
    "max_leaf_nodes": _params(max_leaf_nodes=5),
    "min_child_weight": _params(min_child_weight=3.5),
    "min_samples_leaf": _params(min_samples_leaf=20),
    "early_stopping": _watched,
    "warm_start": _two_trainings,
}
"""What each feature changes. Cross-validation changes nothing about one training, and has a test of its own."""


def fit_together(first: str, second: str) -> bool:
    """Whether one training can have both features: not two losses, for example."""
    both = {first, second}
    if len(both) < 2 or (both & REGRESSIONS and both & {"classes", "class_weight"}) or both <= REGRESSIONS:
        return False
    if "sparse" in both and both & BY_NAME:
        return False
    if "monotonic_cst" in both and both & {"dates", "classes", "quantile"}:
        return False  # quantiles of leaves keep to no order, and so on
    return both != {"levels", "many_levels"}


def federation_of(case: Case, protocol: str) -> Federation:
    """The parties, with their rows or columns."""
    if protocol.startswith("horizontal"):
        cuts = owners_rows(case)
        pairs: list[tuple[Any, ...]] = [(_rows(case.table, rows), case.labels[rows]) for rows in cuts]
        if case.weight is not None:
            pairs = [(*pair, case.weight[rows]) for pair, rows in zip(pairs, cuts, strict=True)]
        watched = None
        if case.validation is not None:
            watched = {name: case.validation[rows] for name, rows in zip(HOLDERS, cuts, strict=True)}
        return Federation.horizontal(dict(zip(HOLDERS, pairs, strict=True)), task=case.task, validation=watched)
    own = {"sample_weight": case.weight, "validation": case.validation, **case.federation}
    return Federation.vertical(case.tables, labels=("anna", case.labels), task=case.task, **own)


def owners_rows(case: Case) -> list[np.ndarray]:
    """Which rows are whose, where rows are divided."""
    return np.array_split(np.arange(case.n_rows), len(HOLDERS))


@contextmanager
def numbered_by_owner(case: Case, protocol: str) -> Iterator[None]:
    """Where rows are divided, draws of rows number them by owner: 2**32 numbers for each, as nobody knows how many."""
    if not protocol.startswith("horizontal"):
        yield
        return
    learned = np.ones(case.n_rows, np.bool_) if case.validation is None else ~case.validation
    pieces = np.array([[learned[rows].sum(), owner << 32] for owner, rows in enumerate(owners_rows(case))])
    with patch.object(boosting.Rows, "from_codes", partial(boosting.Rows.from_codes, pieces=pieces)):
        yield


def _rows(table: Any, rows: np.ndarray) -> Any:
    return table[rows] if scipy.sparse.issparse(table) else table.take(rows)


def options_for(case: Case, protocol: str) -> dict[str, Any]:
    """What a protocol is given beside parameters of trees."""
    options = dict(OPTIONS[protocol])
    if protocol == "vertical.bucket_rr" and any(len(set(case.columns[name].tolist())) > 255 for name in NAMES):
        options["buckets"] = 256
    if protocol == "vertical.private_histograms":
        texts = {
            name: sorted(set(case.columns[name].tolist())) for name in NAMES if case.columns[name].dtype.kind == "U"
        }
        called = {name: f"{party}.x{k}" for party, own in HOLDERS.items() for k, name in enumerate(own)}
        called = called if case.is_sparse else {name: name for name in NAMES}  # a sparse matrix has no names
        bounds = {called[name]: _bounds(case.columns[name]) for name in NAMES if name not in texts}
        about = {"label_bounds": (0.0, 24.0)} if case.task == "regression" else {"classes": _classes(case)}
        options["schema"] = Schema.from_public(bounds=bounds, levels=texts, may_be_missing=[called["b0"]], **about)
        if texts:  # grown trees ask about numbers only; the other policy sets parameters of trees by itself
            options["policy"] = "smooth_then_trees"
    return options


def _bounds(values: np.ndarray) -> tuple[Any, Any]:
    return (date(2026, 1, 1), date(2026, 1, 10)) if values.dtype.kind == "M" else (0.0, 9.0)


def _classes(case: Case) -> list[int]:
    return sorted(set(case.labels.tolist()))


def fitted(case: Case, protocol: str, **how: Any) -> Run:
    """The run, or the second of two where the first is gone on from."""
    federation, options = federation_of(case, protocol), options_for(case, protocol)
    if options.get("policy") == "smooth_then_trees":
        case = replace(case, params={name: case.params[name] for name in case.params.keys() - SMALL.keys()})
    run = federation.fit(protocol, **case.params, **options, **how)
    if not case.more_trees:
        return run
    more = {**case.params, "max_iter": case.more_trees}
    return federation.fit(protocol, init_model=run.model, **more, **options, **how)


def trained(case: Case, protocol: str, **how: Any) -> np.ndarray:
    """The joint model's raw scores of the rows that it was trained on."""
    run = fitted(case, protocol, **how)
    rows = case.table if protocol.startswith("horizontal") else case.tables
    return _scores(case, run.model, rows)


def pooled(case: Case, protocol: str) -> np.ndarray:
    """The plain engine's raw scores, trained on one table."""
    like: dict[str, Any] = {name: OPTIONS[protocol][name] for name in ("gradient_bits",) if name in OPTIONS[protocol]}
    like["many_levels"] = "hash"  # as federations do
    if protocol == "vertical.secret_shared":
        foreign = [*HOLDERS["ben"], *HOLDERS["carla"]]
        levels = [name for name in foreign if np.asarray(case.columns[name]).dtype.kind == "U"]
        like |= {"missing_unseen": "right", "one_hot_levels": levels or None}
    kind = BoostedTreesClassifier if case.task == "classification" else BoostedTreesRegressor
    learned = np.ones(case.n_rows, np.bool_) if case.validation is None else ~case.validation
    watched = _part(case, ~learned) if case.validation is not None else (None, None, None)
    names = ("X_val", "y_val", "sample_weight_val")
    with numbered_by_owner(case, protocol):
        model = kind(**case.params, **like).fit(*_part(case, learned), **dict(zip(names, watched, strict=True)))
        if case.more_trees:
            model.set_params(warm_start=True, max_iter=model.n_iter_ + case.more_trees)
            model.fit(*_part(case, learned), **dict(zip(names, watched, strict=True)))
    return _scores(case, model, case.table)


def _part(case: Case, rows: np.ndarray) -> tuple[Any, Any, Any]:
    which = np.flatnonzero(rows)
    return _rows(case.table, which), case.labels[which], None if case.weight is None else case.weight[which]


def _scores(case: Case, model: Any, rows: Any) -> np.ndarray:
    scores: np.ndarray = model.decision_function(rows) if case.task == "classification" else model.predict(rows)
    return scores
