"""The methods: each does what a cell says and returns what was measured.

The published ones and the pooled engine have the same bins and learning rate and grow trees of the same size. Where
epsilon is that of all that is released, each method has the trees that it is best with as far as we know: those of its
defaults, and for `noised_gradients` also few and shallow ones. `central.gaussian` follows its own rule.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from experiments.masked_xgboost.cells import (
    ALONE,
    BUCKETS,
    CENTRAL,
    ELGAMAL,
    FED_LDP,
    FEDERBOOST,
    HISTOGRAM,
    LABELS,
    LDP,
    MANY_TREES,
    NOISED,
    OU,
    PAILLIER,
    POOLED,
    RECORD,
    SETS,
    SHALLOW,
    SHARED,
    SMOOTH,
    VECTOR,
    WINNER,
    XGBOOST,
    Cell,
)
from experiments.masked_xgboost.datasets import FEATURE_HOLDER, LABEL_HOLDER, Split, public_schema, split
from experiments.seeded_noise import noise_from
from hedgerow import BoostedTreesClassifier, Federation
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import read_table
from hedgerow.federation.run import Run
from hedgerow.protocols.vertical.common.parts import LabelHolderPart

Measures = dict[str, Any]

LEARNING_RATE, BINS = 0.3, 16
DELTA_AP = 1e-3
"""Of one message, as in the paper."""
DELTA = 1e-5
"""Of all that is released."""
SHALLOW_DEPTH = 3
HISTOGRAMS = "vertical.private_histograms"
ENCRYPTED = "vertical.homomorphic"
MANY = {"n_estimators": 100, "learning_rate": 0.1}
"""Trees of the estimators' defaults."""
FEWEST_ROWS = 5_000
"""Below this many, in quick runs, all methods have the trees that the cell says."""


def measure(cell: Cell) -> Measures:
    """Do what a cell says."""
    if cell.method in {LABELS, SETS}:
        from experiments.masked_xgboost import attacking

        return attacking.on_labels(cell) if cell.method == LABELS else attacking.on_active_sets(cell)
    if cell.timed:
        return _timed(cell)
    here = split(cell.dataset, cell.index, cell.rows)
    own = {POOLED: _pooled, ALONE: _alone, CENTRAL: _central}
    return own.get(cell.method, _by_parties)(cell, here)


# --- accuracy --------------------------------------------------------------------------------------------------------


def _pooled(cell: Cell, here: Split) -> Measures:
    return _engine(cell, here, here.pooled(here.train), here.pooled(here.test))


def _alone(cell: Cell, here: Split) -> Measures:
    """The label holder's columns only: what the other party's must improve on."""
    return _engine(cell, here, here.tables(here.train)[LABEL_HOLDER], here.tables(here.test)[LABEL_HOLDER])


def _engine(cell: Cell, here: Split, X: pa.Table, X_test: pa.Table) -> Measures:
    model = BoostedTreesClassifier(**_trees(cell), early_stopping=False, n_jobs=1).fit(X, here.y)
    return _areas(here.y_test, model.staged_decision_function(X_test))


def _central(cell: Cell, here: Split) -> Measures:
    """One who has all columns, labels and rows: the reference for what the same (epsilon, delta) could give."""
    from hedgerow.protocols.central.gaussian.central import fit_gaussian
    from hedgerow.protocols.central.gaussian.training import GaussianSettings

    settings = GaussianSettings(cell.epsilon or math.inf, DELTA, seed=cell.index)
    random = SecureRandom.from_seed(cell.secret)
    model = fit_gaussian(here.pooled(here.train), here.y, public_schema(cell.dataset), settings, random).model
    table = read_table(here.pooled(here.test), like=model.features, where="test rows")
    return {"auc": _area(here.y_test, model.raw_scores(table)[:, 0])}


def _by_parties(cell: Cell, here: Split) -> Measures:
    run = fit(cell, here)
    part, tables = run.model.parts[LABEL_HOLDER], here.tables(here.test)
    if not isinstance(part, LabelHolderPart):
        return {"auc": _area(here.y_test, run.model.decision_function(tables)), "seconds": run.seconds}
    owner = run.model.parts[FEATURE_HOLDER]
    own = part.codes(part.read(tables[LABEL_HOLDER], LABEL_HOLDER))
    answers = owner.answers(owner.codes(owner.read(tables[FEATURE_HOLDER], FEATURE_HOLDER)))
    model, codes = part.ensemble, part.all_codes(own, {FEATURE_HOLDER: answers})
    staged = (model.raw_scores_binned(codes, n_iterations=n + 1)[:, 0] for n in range(model.n_iterations))
    return _areas(here.y_test, staged) | {"foreign": _foreign(model, part.n_own), "seconds": run.seconds}


def _foreign(model: Ensemble, n_own: int) -> float:
    """The share of splits that the feature holder won."""
    counts = model.importances("count")
    return float(counts[n_own:].sum() / max(counts.sum(), 1.0))


def _areas(y: NDArray[np.int64], staged: Iterator[Any]) -> Measures:
    curve = [_area(y, scores) for scores in staged]
    return {"auc": curve[-1], "curve": [round(area, 4) for area in curve]}


def _area(y: NDArray[np.int64], scores: Any) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, np.asarray(scores)))


# --- by the parties --------------------------------------------------------------------------------------------------


def _trees(cell: Cell) -> dict[str, Any]:
    return {
        "n_estimators": cell.trees, "max_depth": cell.depth, "learning_rate": LEARNING_RATE, "max_bins": BINS,
    }  # fmt: skip


def _published(score: str) -> Callable[[Cell], dict[str, Any]]:
    return lambda cell: {"epsilon": cell.epsilon, "delta": DELTA_AP, "per": "message", "score": score}


def _masked(reading: str) -> Callable[[Cell], dict[str, Any]]:
    return lambda cell: {
        "eps_ap": cell.epsilon, "delta_ap": DELTA_AP, "eps_pp": cell.eps_pp, "n_vectors": cell.vectors,
        "reading": reading, "accept_low_snr": True, "accept_known_leaks": True,
    }  # fmt: skip


def _histograms(**how: str) -> Callable[[Cell], dict[str, Any]]:
    """With its own defaults for trees, but where time is measured, and in quick runs; a policy takes no others."""
    own = {"n_estimators": None, "max_depth": None, "learning_rate": None, "max_bins": None}
    return lambda cell: {
        "epsilon": cell.epsilon, "delta": DELTA, "schema": public_schema(cell.dataset),
        **how, **({} if "policy" not in how and (cell.timed or cell.rows < FEWEST_ROWS) else own),
    }  # fmt: skip


def _buckets(cell: Cell) -> dict[str, Any]:
    """Every value of the feature holder's columns is randomised: they have an equal share of epsilon each."""
    n_columns = len(split(cell.dataset, cell.index, cell.rows).columns[FEATURE_HOLDER])
    return {"epsilon": (cell.epsilon or math.inf) / n_columns, "edges": "quantile", **MANY, "max_bins": None}


PROTOCOLS: dict[str, tuple[str, Callable[[Cell], dict[str, Any]]]] = {
    LDP: ("vertical.noised_gradients", _published("xgboost")),
    FED_LDP: ("vertical.noised_gradients", _published("first_order")),
    VECTOR: ("vertical.masked_gradients", _masked("vector")),
    RECORD: ("vertical.masked_gradients", _masked("record")),
    FEDERBOOST: (
        "vertical.bucket_rr",
        lambda cell: {"epsilon": cell.eps_pp, "buckets": BINS, "edges": "quantile", "max_bins": None},
    ),
    NOISED: ("vertical.noised_gradients", lambda cell: {"epsilon": cell.epsilon, "delta": DELTA}),
    SHALLOW: (
        "vertical.noised_gradients",
        lambda cell: {"epsilon": cell.epsilon, "delta": DELTA, "max_depth": min(cell.depth, SHALLOW_DEPTH)},
    ),
    MANY_TREES: ("vertical.noised_gradients", lambda cell: {"epsilon": cell.epsilon, "delta": DELTA, **MANY}),
    BUCKETS: ("vertical.bucket_rr", _buckets),
    WINNER: (HISTOGRAMS, _histograms(reveal="winner")),
    HISTOGRAM: (HISTOGRAMS, _histograms(reveal="histogram")),
    SMOOTH: (HISTOGRAMS, _histograms(policy="smooth_then_trees")),
    SHARED: ("vertical.secret_shared", lambda _: {}),
    ELGAMAL: (ENCRYPTED, lambda _: {}),
    OU: (ENCRYPTED, lambda _: {"scheme": "ou", "key_bits": 2048}),
    PAILLIER: (ENCRYPTED, lambda _: {"scheme": "paillier", "key_bits": 2048}),
}
"""Protocols and their parameters, beside those of the trees; one that is None takes a parameter away."""


def fit(cell: Cell, here: Split, *, method: str = "", **changes: Any) -> Run:
    """Train as a cell says; the noise is a function of the cell."""
    protocol, options = PROTOCOLS[method or cell.method]
    given = _trees(cell) | options(cell) | changes
    federation = Federation.vertical(here.tables(here.train), labels=(LABEL_HOLDER, here.y))
    with noise_from(cell.secret):
        return federation.fit(protocol, **{name: value for name, value in given.items() if value is not None})


# --- time and traffic ------------------------------------------------------------------------------------------------


def _timed(cell: Cell) -> Measures:
    """Seconds of one tree, and bytes of all parties for one node that was split."""
    here = split(cell.dataset, 0, cell.rows)
    if cell.method == XGBOOST:
        return {"seconds": _xgboost_seconds(cell, here) / cell.trees}
    run = fit(cell, here)
    sent = sum(meter["total"]["bytes_sent"] for meter in run.traffic.values())
    part = run.model.parts[LABEL_HOLDER]
    nodes = cell.trees * (2**cell.depth - 1)  # private_histograms splits all of them
    if isinstance(part, LabelHolderPart):
        nodes = sum(int((~tree.is_leaf).sum()) for tree in part.ensemble.trees)
    measured: Measures = {"seconds": run.seconds / cell.trees, "bytes": sent / max(nodes, 1), "nodes": nodes}
    measured["rows"] = len(here.train)
    if cell.method in {VECTOR, RECORD}:
        measured["candidates"] = run.model.parts[FEATURE_HOLDER].meta["n_candidates"]
    return measured


def _xgboost_seconds(cell: Cell, here: Split) -> float:
    import xgboost

    X = np.column_stack([column.to_numpy() for column in here.pooled(here.train).columns])
    params = {
        "objective": "binary:logistic", "tree_method": "hist", "max_depth": cell.depth, "eta": LEARNING_RATE,
        "max_bin": BINS, "nthread": 2,
    }  # fmt: skip
    start = time.perf_counter()
    xgboost.train(params, xgboost.DMatrix(X, here.y), cell.trees)
    return time.perf_counter() - start
