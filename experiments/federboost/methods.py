"""The methods: each does what a cell says and returns what was measured.

All grow the same trees with the same parameters; they differ in who has which columns, and in what is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.federboost.cells import Cell
from experiments.federboost.datasets import TREES, columns_of, load, round_edges, rows_of
from experiments.seeded_noise import noise_from
from hedgerow import BoostedTreesClassifier, Federation
from hedgerow.transport.emulate import Link

LEARNING_RATE = 0.3
EDGES_SHARE = 0.25
"""Of an element's epsilon, for private edges."""
WAN = Link(round_trip=0.1, bandwidth=20e6)

Measures = dict[str, float]


# --- area under the curve --------------------------------------------------------------------------------------------


def pooled_xgboost(cell: Cell) -> Measures:
    """XGBoost on all columns in one table."""
    import xgboost

    data, trees = load(cell.dataset), TREES[cell.dataset]
    train, test = rows_of(len(data.y), cell.split, cell.index)
    params = {
        "objective": "binary:logistic", "tree_method": "hist", "max_depth": trees.depth, "eta": LEARNING_RATE,
        "nthread": 1,
    }  # fmt: skip
    matrix = xgboost.DMatrix(data.X[train], data.y[train])
    booster = xgboost.train(params, matrix, trees.n_trees)
    return {"auc": _auc(data.y[test], booster.inplace_predict(data.X[test]))}


def pooled_engine(cell: Cell) -> Measures:
    """Our own trees on all columns in one table, up to 255 bins each."""
    return _engine(cell, np.concatenate(list(_shares(cell).values())))


def label_holder_alone(cell: Cell) -> Measures:
    """Our own trees on the label holder's columns: what joining the others is to be compared with."""
    return _engine(cell, next(iter(_shares(cell).values())))


def bucket_rr(cell: Cell) -> Measures:
    """`vertical.bucket_rr` among three parties, test rows scored by all of them together."""
    data = load(cell.dataset)
    train, test = rows_of(len(data.y), cell.split, cell.index)
    shares = _shares(cell)
    federation = Federation.vertical(
        {party: data.table(train, columns) for party, columns in shares.items()},
        labels=(next(iter(shares)), data.y[train].astype(np.int64)),
    )
    with noise_from(cell.secret):
        run = federation.fit("vertical.bucket_rr", **_boosting(cell), **_noise(cell))
    scores = run.model.decision_function({party: data.table(test, columns) for party, columns in shares.items()})
    return {"auc": _auc(data.y[test], scores), "seconds": run.seconds}


def _shares(cell: Cell) -> dict[str, Any]:
    return columns_of(load(cell.dataset).X.shape[1], cell.order)


def _boosting(cell: Cell) -> dict[str, Any]:
    trees = TREES[cell.dataset]
    return {"n_estimators": trees.n_trees, "max_depth": trees.depth, "learning_rate": LEARNING_RATE}


def _noise(cell: Cell) -> dict[str, Any]:
    """Epsilon of an element in all: private edges have their share of it."""
    epsilon = math.inf if cell.epsilon is None else cell.epsilon
    options: dict[str, Any] = {"epsilon": epsilon, "buckets": cell.buckets, "debias": cell.debias, "edges": cell.edges}
    if cell.edges == "private":
        own = EDGES_SHARE * epsilon
        options |= {"epsilon": epsilon - own, "edges_epsilon": own}
    elif cell.edges == "round":
        edges, options["schema"] = round_edges(cell.dataset)
        options["edges"] = edges
    return options


def _engine(cell: Cell, columns: Any) -> Measures:
    data = load(cell.dataset)
    train, test = rows_of(len(data.y), cell.split, cell.index)
    model = BoostedTreesClassifier(**_boosting(cell), early_stopping=False, n_jobs=1)
    model.fit(data.table(train, columns), data.y[train].astype(np.int64))
    return {"auc": _auc(data.y[test], model.decision_function(data.table(test, columns)))}


def _auc(y: Any, scores: Any) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, scores))


# --- time ------------------------------------------------------------------------------------------------------------


def training_time(cell: Cell) -> Measures:
    """Seconds, bytes and rounds of one training on rows of susy_30k, repeated as often as needed."""
    wanted = dict(cell.timing)
    data = load(cell.dataset)
    X = np.resize(data.X[:, : wanted["columns"]], (wanted["rows"], wanted["columns"]))
    y = np.resize(data.y, wanted["rows"]).astype(np.int64)
    shares = columns_of(wanted["columns"], cell.order, wanted["parties"])
    tables = {
        party: pa.table({data.columns[c]: np.ascontiguousarray(X[:, c]) for c in columns})
        for party, columns in shares.items()
    }
    federation = Federation.vertical(tables, labels=(next(iter(shares)), y))
    run = federation.fit(
        "vertical.bucket_rr",
        n_estimators=wanted["trees"],
        max_depth=4,
        learning_rate=LEARNING_RATE,
        transport=wanted["transport"],
        link=WAN if wanted["link"] == "WAN" else None,
        **_noise(cell),
    )
    totals = [meter["total"] for meter in run.traffic.values()]
    return {
        "seconds": run.seconds,
        "bytes": sum(total["bytes_sent"] for total in totals),
        "rounds": sum(run.rounds.values()),
    }


METHODS: dict[str, Callable[[Cell], Measures]] = {
    "XGBoost, pooled": pooled_xgboost,
    "engine, pooled": pooled_engine,
    "label holder alone": label_holder_alone,
    "bucket_rr": bucket_rr,
    "training time": training_time,
}
