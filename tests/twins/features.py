"""One small training for every feature of the table: what it changes about rows, labels and parameters.

    case = Case.of("sample_weight", "subsample")        both at once
    trained(case, "vertical.homomorphic")               scores of its rows by the joint model
    pooled(case, "vertical.homomorphic")                the same by the plain engine, on one table

Columns have few values, so that bins are the same however a protocol finds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from hedgerow import (
    BoostedTreesClassifier,
    BoostedTreesRegressor,
    Federation,
    Schema,
)

N_ROWS = 160
HOLDERS = {"anna": ["a0", "a1"], "ben": ["b0", "b1"], "carla": ["c0"]}
NAMES = [name for names in HOLDERS.values() for name in names]
SMALL = {"max_iter": 2, "max_depth": 3, "learning_rate": 0.3, "max_bins": 32, "random_state": 7}
SMALL |= {"min_child_weight": 0.0}

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
    federation: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, *features: str, seed: int = 0) -> Case:
        """A training with these features."""
        rng = np.random.default_rng(seed)
        case = cls(params=dict(SMALL))
        numbers = {name: rng.integers(0, 9, N_ROWS).astype(np.float64) for name in NAMES}
        signal = numbers["a0"] - numbers["b0"] + 0.5 * numbers["c0"] * (numbers["b1"] > 4) + rng.normal(size=N_ROWS)
        numbers["b0"][rng.random(N_ROWS) < 0.1] = np.nan
        case.columns, case.labels = numbers, (signal > np.median(signal)).astype(np.int64)
        if {"squared", "poisson", "quantile"} & set(features):
            case.task, case.labels = "regression", np.clip(np.round(signal + 8), 0, 24)
        for feature in features:
            CHANGES[feature](case, rng)
        return case

    @property
    def tables(self) -> dict[str, pa.Table]:
        """By holder of columns."""
        return {party: pa.table({name: self.columns[name] for name in names}) for party, names in HOLDERS.items()}

    @property
    def table(self) -> pa.Table:
        """All columns in one."""
        return pa.table({name: self.columns[name] for name in NAMES})


def _three_classes(case: Case, rng: np.random.Generator) -> None:
    if case.task == "classification":
        case.labels = case.labels + (rng.random(N_ROWS) < 0.3)


def _loss(name: str, **more: Any) -> Any:
    def change(case: Case, _rng: np.random.Generator) -> None:
        case.params |= {"loss": name, **more}
        if name in ("squared_error", "poisson"):
            case.params |= {"label_range": (0.0, 24.0)}

    return change


def _weights(case: Case, rng: np.random.Generator) -> None:
    case.weight = rng.integers(1, 4, N_ROWS).astype(np.float64)


def _levels(case: Case, _rng: np.random.Generator) -> None:
    for name in ("a1", "b1"):
        case.columns[name] = np.array(["red", "green", "blue"])[(case.columns[name] % 3).astype(int)]


def _many_levels(case: Case, rng: np.random.Generator) -> None:
    for name in ("a1", "b1"):
        case.columns[name] = np.array([f"shop {k}" for k in rng.permutation(np.arange(N_ROWS * 2))[:N_ROWS]])
    del case


def _dates(case: Case, _rng: np.random.Generator) -> None:
    days = np.datetime64("2026-01-01", "D") + (case.columns["c0"]).astype("timedelta64[D]")
    case.columns["c0"], case.columns["a1"] = days, case.columns["a1"] > 4


def _params(**params: Any) -> Any:
    def change(case: Case, _rng: np.random.Generator) -> None:
        case.params |= params

    return change


CHANGES: dict[str, Any] = {
    "sample_weight": _weights,
    "classes": _three_classes,
    "squared": _loss("squared_error"),
    "poisson": _loss("poisson"),
    "quantile": _loss("absolute_error"),
    "levels": _levels,
    "dates": _dates,
    "subsample": _params(subsample=0.7),
    "colsample_bytree": _params(colsample_bytree=0.6),
    "colsample_bylevel": _params(colsample_bylevel=0.6),
    "max_features": _params(max_features=0.6),
    "monotonic_cst": _params(monotonic_cst={"a0": 1, "b0": -1}),
    "interaction_cst": _params(interaction_cst=[{"a0", "b0"}, {"a1", "b1", "c0"}]),
    "max_leaf_nodes": _params(max_leaf_nodes=5),
    "min_child_weight": _params(min_child_weight=3.5),
    "min_samples_leaf": _params(min_samples_leaf=20),
}


def federation_of(case: Case, protocol: str) -> Federation:
    """The parties, with their rows or columns."""
    if protocol.startswith("horizontal"):
        cuts = [range(50), range(50, 100), range(100, N_ROWS)]
        owners = {
            name: (case.table.take(list(rows)), case.labels[list(rows)])
            for name, rows in zip(HOLDERS, cuts, strict=True)
        }
        if case.weight is not None:
            owners = {
                name: (*pair, case.weight[list(rows)])  # type: ignore[misc]
                for (name, pair), rows in zip(owners.items(), cuts, strict=True)
            }
        return Federation.horizontal(owners, task=case.task)
    return Federation.vertical(
        case.tables, labels=("anna", case.labels), task=case.task, sample_weight=case.weight, **case.federation
    )


def trained(case: Case, protocol: str, **how: Any) -> np.ndarray:
    """The joint model's raw scores of the rows that it was trained on."""
    options = dict(OPTIONS[protocol])
    if protocol == "vertical.private_histograms":
        bounds = dict.fromkeys(NAMES, (0.0, 9.0))
        options["schema"] = Schema.from_public(bounds=bounds, classes=sorted(set(case.labels.tolist())))
    run = federation_of(case, protocol).fit(protocol, **case.params, **options, **how)
    rows = case.table if protocol.startswith("horizontal") else case.tables
    return _scores(case, run.model, rows)


def pooled(case: Case, protocol: str) -> np.ndarray:
    """The plain engine's raw scores, trained on one table."""
    like = {"gradient_bits": OPTIONS[protocol]["gradient_bits"]} if "gradient_bits" in OPTIONS[protocol] else {}
    kind = BoostedTreesClassifier if case.task == "classification" else BoostedTreesRegressor
    model = kind(**case.params, **like).fit(case.table, case.labels, case.weight)
    return _scores(case, model, case.table)


def _scores(case: Case, model: Any, rows: Any) -> np.ndarray:
    scores: np.ndarray = model.decision_function(rows) if case.task == "classification" else model.predict(rows)
    return scores
