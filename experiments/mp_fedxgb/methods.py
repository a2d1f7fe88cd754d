"""The methods: each does what a cell says and returns what was measured.

All grow trees with the paper's lambda = 1 and gamma = 0.5. The paper's gain has a factor 1/2 and the engine's has none,
so its `min_split_gain` is 1. Scores begin at 0, as in the published program (the paper does not say).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from experiments.mp_fedxgb.cells import ELGAMAL, MASKED, MINIMAL, OU, PAILLIER, PAPER, PHE, Cell
from experiments.mp_fedxgb.costs import first_design, full_tree
from experiments.mp_fedxgb.datasets import (
    PARTIES,
    SIZES,
    Floats,
    Ints,
    as_tables,
    in_buckets,
    load,
    repeated_columns,
    rows_of,
)
from hedgerow import BoostedTreesClassifier, Federation
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.table import read_table
from hedgerow.federation.run import Run
from hedgerow.runtime.protocol import names

Measures = dict[str, Any]

LAMBDA, GAMMA = 1.0, 0.5
N_TIE_ORDERS = 30
PUBLISHED = "vertical.mp_fedxgb"
ENCRYPTED, LIKE_SHARES = "vertical.homomorphic", {"min_child_weight": 0.0}
PROTOCOLS: dict[str, tuple[str, dict[str, Any]]] = {
    MINIMAL: ("vertical.secret_shared", {}),
    PAPER: (PUBLISHED, {"accept_known_leaks": True}),
    MASKED: (PUBLISHED, {"accept_known_leaks": True, "first_layer_mask": True}),
    ELGAMAL: (ENCRYPTED, LIKE_SHARES),
    OU: (ENCRYPTED, {"scheme": "ou", "key_bits": 2048, **LIKE_SHARES}),
    PAILLIER: (ENCRYPTED, {"scheme": "paillier", "key_bits": 2048, **LIKE_SHARES}),
}
"""Protocols and their parameters, beside those of the trees."""


def published_is_there() -> bool:
    """Whether this version has the published protocol."""
    return PUBLISHED in names()


# --- accuracy --------------------------------------------------------------------------------------------------------


class _Split(NamedTuple):
    X: Floats
    y: Ints
    X_test: Floats
    y_test: Ints


def xgboost_exact(cell: Cell) -> Measures:
    """XGBoost on all columns in one table, trying all values as splits: its default when the paper was written."""
    return _xgboost(cell, "exact")


def xgboost_hist(cell: Cell) -> Measures:
    """XGBoost on all columns in one table, with histograms: its default now."""
    return _xgboost(cell, "hist")


def _xgboost(cell: Cell, tree_method: str) -> Measures:
    import xgboost

    data = _split(cell, bucketed=False)
    params = {
        "objective": "binary:logistic", "tree_method": tree_method, "max_depth": cell.depth, "eta": cell.learning_rate,
        "gamma": GAMMA, "lambda": LAMBDA, "base_score": 0.5, "nthread": 1,
    }  # fmt: skip
    booster = xgboost.train(params, xgboost.DMatrix(data.X, data.y), cell.trees)
    scores = booster.predict(xgboost.DMatrix(data.X_test), output_margin=True)
    return _measures(data.y_test, scores, reorder=cell.split == "file")


def pooled_engine(cell: Cell) -> Measures:
    """Our own trees on all columns in one table: the same as those of the parties, and quick."""
    data = _split(cell)
    model = BoostedTreesClassifier(**_trees(cell), min_child_weight=0.0, early_stopping=False, n_jobs=1)
    model.fit(data.X, data.y)
    return _measures(data.y_test, model.decision_function(data.X_test))


def by_parties(cell: Cell) -> Measures:
    """Four parties and a dealer in memory; test rows are scored by the parties together."""
    data = _split(cell)
    run = fit(cell, data.X, data.y, transport="memory")
    scores = run.model.decision_function(as_tables(data.X_test))
    return _measures(data.y_test, scores, reorder=cell.split == "file")


def _split(cell: Cell, *, bucketed: bool = True) -> _Split:
    share = cell.buckets if bucketed and cell.buckets < 1 else None
    return _rows(cell.dataset, cell.split, cell.index, share, cell.as_they_are)


@lru_cache(maxsize=2)
def _rows(dataset: str, split: str, index: int, share: float | None, as_they_are: str) -> _Split:
    data = load(dataset)
    train, test = rows_of(data.y, split, index, *SIZES[dataset])
    X = data.X if share is None else in_buckets(data.X, train, share)
    left = [data.columns.index(column) for column in as_they_are.split(",") if column]
    X[:, left] = data.X[:, left]
    return _Split(X[train], data.y[train], X[test], data.y[test])


def _trees(cell: Cell) -> dict[str, Any]:
    return {
        "n_estimators": cell.trees, "max_depth": cell.depth, "learning_rate": cell.learning_rate,
        "l2_regularization": LAMBDA, "min_split_gain": 2.0 * GAMMA, "base_score": 0.0,
        "max_bins": 255 if cell.buckets < 1 else int(cell.buckets),
    }  # fmt: skip


def fit(cell: Cell, X: Floats, y: Ints, *, transport: str, **changes: Any) -> Run:
    """Train as a cell says, on these rows."""
    protocol, own = PROTOCOLS[cell.method]
    if protocol not in names():
        raise NotImplementedError(f"{protocol} is not in this version, so there is no {cell.method!r}")
    federation = Federation.vertical(as_tables(X), labels=(PARTIES[0], y))
    return federation.fit(protocol, transport=transport, **_trees(cell) | own | changes)


def _measures(y: Ints, scores: Floats, *, reorder: bool = False) -> Measures:
    """At the threshold 1/2; with `reorder` also how far the AUC goes if equal scores are put in a random order."""
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

    chosen = np.asarray(scores) > 0
    measured = {
        "acc": float(accuracy_score(y, chosen)),
        "f1": float(f1_score(y, chosen)),
        "auc": float(roc_auc_score(y, scores)),
    }
    if reorder:
        rng = np.random.default_rng(0)
        _, ranks = np.unique(scores, return_inverse=True)
        orders = [float(roc_auc_score(y, ranks + rng.random(len(y)))) for _ in range(N_TIE_ORDERS)]
        measured |= {"auc_lowest": min(orders), "auc_highest": max(orders)}
    return measured


# --- time and traffic ------------------------------------------------------------------------------------------------


def timed(cell: Cell) -> Measures:
    """Seconds, bytes of all parties and rounds of one training, without starting processes.

    And processor seconds, where all parties are in this one.
    """
    X, y = _rows_and_columns(cell)
    if cell.transport == "memory":  # compile or load what is needed, which is not in the seconds either
        fit(replace(cell, trees=1), X[::100], y[::100], transport="memory")
    busy = time.process_time()
    run = fit(cell, X, y, transport=cell.transport)
    busy = time.process_time() - busy
    totals = [meter["total"] for meter in run.traffic.values()]
    return {
        "seconds": run.seconds,
        **({"processor": busy} if cell.transport == "memory" else {}),
        "bytes": sum(total["bytes_sent"] for total in totals),
        "rounds": sum(run.rounds.values()),
    }


def costs(cell: Cell) -> Measures:
    """What a training sends, by kind and for one tree, beside what the formula says of a full tree."""
    X, y = _rows_and_columns(cell)
    changes = {"min_split_gain": 0.0, "l2_regularization": LAMBDA}  # so that every node splits
    run = fit(replace(cell, method=MINIMAL), X, y, transport="memory", **changes)
    shape = shape_of(run.job, X, int(cell.buckets))
    formula = full_tree(shape, cell.depth)
    sent = Counter[tuple[str, str, str]]()
    for party, meter in run.traffic.items():
        for entry in meter["counts"]:
            sent[party, entry["peer"], entry["message"].split(".")[-1]] += entry["bytes_sent"]
    opened = sent["P2", "P3", "masked_words"] + sent["P2", "P3", "winner_share"]
    nodes = cell.trees * (2**cell.depth - 1)
    first = first_design(len(y), X.shape[1], int(cell.buckets))
    return {
        "candidates": shape.n_candidates,
        "rounds": run.rounds["training"] / cell.trees / cell.depth,
        "rounds_formula": formula.rounds / cell.depth,
        "rounds_first": first.rounds,
        "opened": opened / nodes,
        "opened_formula": formula.opened * cell.trees / nodes,
        "input": sent["P1", "P2", "level_input"] / nodes,
        "input_formula": formula.input * cell.trees / nodes,
        "dealt": sum(n for (_, _, kind), n in sent.items() if kind == "dealt") / nodes,
        "dealt_formula": formula.dealt * cell.trees / nodes,
        "first": first.opened,
    }


def shape_of(job: Any, X: Floats, max_bins: int) -> Any:
    """The public shape of a training on these columns, divided among the parties as always; none is missing."""
    from hedgerow.protocols.shares.scales import Scales
    from hedgerow.protocols.vertical.secret_shared.shape import Shape

    tables = [read_table(table) for table in as_tables(X).values()]
    n_bins = [[feature.n_value_bins for feature in BinMapper.fit(table, max_bins).features] for table in tables[1:]]
    cuts = tuple(sum(n - 1 for n in each) for each in n_bins)
    return Shape(len(X), cuts, cuts, Scales.of(job, len(X)))


def _rows_and_columns(cell: Cell) -> tuple[Floats, Ints]:
    data = load(cell.dataset)
    train, _ = rows_of(data.y, "file", 0, cell.rows, 0)
    return repeated_columns(data.X[train], cell.columns), data.y[train]


# --- what others have written ----------------------------------------------------------------------------------------


def equality(cell: Cell) -> Measures:
    """Trees of the parties beside those of the pooled engine."""
    from experiments.mp_fedxgb.equality import run

    return {"lines": run(cell.quick)}


def attack(cell: Cell) -> Measures:
    """What the published protocol's openings tell."""
    from experiments.mp_fedxgb.attacking import run

    return {"lines": run(cell.quick)}


def phe(cell: Cell) -> Measures:
    """Processor seconds of single operations."""
    from experiments.phe_operations import operations

    return dict(operations(cell.key_bits))


def _by_parties_or_timed(cell: Cell) -> Measures:
    return timed(cell) if cell.transport else by_parties(cell)


METHODS: dict[str, Callable[[Cell], Measures]] = {
    "XGBoost": xgboost_exact,
    "XGBoost, hist": xgboost_hist,
    "engine": pooled_engine,
    MINIMAL: _by_parties_or_timed,
    PAPER: _by_parties_or_timed,
    MASKED: _by_parties_or_timed,
    ELGAMAL: timed,
    OU: timed,
    PAILLIER: timed,
    PHE: phe,
    "costs": costs,
    "equality": equality,
    "attack": attack,
}
