"""Other people's libraries, each used as its documentation says, with its default settings and our public bounds.

DP-EBM (interpret-core) runs in our own environment. diffprivlib 0.6.6 cannot be imported beside scikit-learn 1.9, and
DP-XGBoost 0.2.10 needs numpy 1 and a compiler: these run in environments of their own, whose interpreters are named by
HEDGEROW_DIFFPRIVLIB_PYTHON and HEDGEROW_DP_XGBOOST_PYTHON. Rows go there and scores come back in files (`peer_child`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hedgerow.schema import CategoricalColumn, NumericColumn, Schema

Floats = NDArray[np.float64]
Peer = Callable[[pa.Table, NDArray[np.int64], pa.Table, Schema, float, float, int], tuple[Floats, float]]
"""(X, y, X_test, schema, epsilon, delta, seed) -> scores of X_test, seconds of training."""


# --- DP-EBM ----------------------------------------------------------------------------------------------------------


def dp_ebm(
    X: pa.Table, y: NDArray[np.int64], X_test: pa.Table, schema: Schema, epsilon: float, delta: float, seed: int
) -> tuple[Floats, float]:
    """interpret's DPExplainableBoostingClassifier, told the kinds and bounds of all columns."""
    from interpret.privacy import DPExplainableBoostingClassifier

    model = DPExplainableBoostingClassifier(
        epsilon=epsilon,
        delta=delta,
        feature_types=["continuous" if isinstance(c, NumericColumn) else "nominal" for c in schema.columns],
        privacy_bounds={i: (c.low, c.high) for i, c in enumerate(schema.columns) if isinstance(c, NumericColumn)},
        n_jobs=1,
        random_state=seed,
    )
    rows, test_rows = _objects(X, schema), _objects(X_test, schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        model.fit(rows, y)
        seconds = time.perf_counter() - start
        probabilities: Floats = model.predict_proba(test_rows)[:, 1]
    return probabilities - 0.5, seconds


def _objects(X: pa.Table, schema: Schema) -> NDArray[np.object_]:
    """Numbers and text in one matrix. DP-EBM takes no gaps: in text they are a level, in numbers 0 or a bound."""
    out = np.empty((X.num_rows, len(schema.columns)), dtype=object)
    for place, column in enumerate(schema.columns):
        gap: Any = "?"
        if isinstance(column, NumericColumn):
            gap = min(max(0.0, column.low), column.high)
        out[:, place] = X.column(column.name).fill_null(gap).to_pylist()
    return out


# --- in environments of their own ------------------------------------------------------------------------------------


def in_child(what: str, variable: str, encode: Callable[[pa.Table, Schema], dict[str, Floats]]) -> Peer:
    """A peer that `peer_child.py` trains, under the interpreter that the environment variable names."""

    def run(
        X: pa.Table, y: NDArray[np.int64], X_test: pa.Table, schema: Schema, epsilon: float, delta: float, seed: int
    ) -> tuple[Floats, float]:
        del delta  # both peers are pure
        python = os.environ[variable]
        child = str(Path(__file__).with_name("peer_child.py"))
        with tempfile.TemporaryDirectory() as folder:
            arrays = encode(X, schema)
            np.savez(Path(folder) / "rows.npz", **arrays, y=y, X_test=encode(X_test, schema)["X"])
            command = [python, child, folder, what, json.dumps({"epsilon": epsilon, "seed": seed})]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own script, and an interpreter that the user names
            if done.returncode:
                raise RuntimeError(f"{what} failed under {variable}: {done.stderr[-2000:]}")
            scores: Floats = np.load(Path(folder) / "scores.npy")
        return scores, float(json.loads(done.stdout.splitlines()[-1])["seconds"])

    return run


def as_codes(X: pa.Table, schema: Schema) -> dict[str, Floats]:
    """One column each: numbers as they are, levels by their place in the schema; gaps at the lowest value."""
    columns, low, high = [], [], []
    for column in schema.columns:
        if isinstance(column, CategoricalColumn):
            values, bounds = _places(X, column), (-1.0, len(column.levels) - 1.0)
        else:
            values, bounds = _numbers(X, column), (column.low, column.high)
        columns.append(np.clip(np.nan_to_num(values, nan=bounds[0]), *bounds))
        low.append(bounds[0])
        high.append(bounds[1])
    return {"X": np.column_stack(columns), "low": np.array(low), "high": np.array(high)}


def scaled(X: pa.Table, schema: Schema) -> dict[str, Floats]:
    """Numbers scaled to [-1, 1] by their bounds, gaps in the middle; a column of 0 and 1 for each level.

    So a row's norm is at most the root of the number of columns that the schema has.
    """
    columns: list[Any] = []
    for column in schema.columns:
        if isinstance(column, CategoricalColumn):
            places = _places(X, column)
            columns += [(places == level).astype(np.float64) for level in range(len(column.levels))]
        else:
            values = 2.0 * (_numbers(X, column) - column.low) / (column.high - column.low) - 1.0
            columns.append(np.clip(np.nan_to_num(values, nan=0.0), -1.0, 1.0))
    return {"X": np.column_stack(columns), "norm": np.array(float(len(schema.columns)) ** 0.5)}


def _numbers(X: pa.Table, column: NumericColumn) -> Floats:
    return X.column(column.name).cast(pa.float64()).to_numpy()


def _places(X: pa.Table, column: CategoricalColumn) -> Floats:
    places = {level: place for place, level in enumerate(column.levels)}
    return np.array([places.get(level, -1) for level in X.column(column.name).to_pylist()], np.float64)


INTERPRETERS = {
    "diffprivlib forest": "HEDGEROW_DIFFPRIVLIB_PYTHON",
    "diffprivlib logistic": "HEDGEROW_DIFFPRIVLIB_PYTHON",
    "DP-XGBoost": "HEDGEROW_DP_XGBOOST_PYTHON",
}

PEERS: dict[str, Peer] = {
    "DP-EBM": dp_ebm,
    **{
        name: in_child(name, variable, scaled if name == "diffprivlib logistic" else as_codes)
        for name, variable in INTERPRETERS.items()
    },
}


def missing_peers() -> dict[str, str]:
    """Those that cannot be run here, and why."""
    missing = {
        name: f"{name} needs an environment of its own: set {variable} to its Python interpreter"
        for name, variable in INTERPRETERS.items()
        if not os.environ.get(variable)
    }
    if importlib.util.find_spec("interpret") is None:
        missing["DP-EBM"] = "DP-EBM needs interpret-core: pip install 'hedgerow[experiments]'"
    return missing
