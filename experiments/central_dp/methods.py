"""The methods: each trains on a problem and scores the problem's test rows.

Scores of a classifier are above 0 where it says class 1; those of a regressor are in units of the label.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from experiments.central_dp import peer_methods
from experiments.central_dp.objective import Task
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import read_table
from hedgerow.schema import Schema

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Training rows, what is public about them, the budget, and rows to score."""

    X: pa.Table
    y: NDArray[np.float64]
    schema: Schema
    task: Task
    epsilon: float | None
    delta: float
    secret: bytes
    X_test: pa.Table
    curve: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> NDArray[Any]:
        """Classes are whole numbers."""
        return self.y.astype(np.int64) if self.task == "classification" else self.y

    @property
    def seed(self) -> int:
        """For methods that take a number."""
        return int.from_bytes(self.secret[:4], "little") >> 1


@dataclass(frozen=True)
class Outcome:
    """Scores of the test rows, and the seconds of training (with binning, without reading the file)."""

    scores: Scores
    seconds: float
    curve: dict[int, Scores] = field(default_factory=dict)
    """Scores with only this many of the first trees."""
    facts: dict[str, float] = field(default_factory=dict)


# --- Hedgerow --------------------------------------------------------------------------------------------------------


def central(protocol: str, **always: Any) -> Callable[[Problem], Outcome]:
    """`central.dpboost` and its baselines; `always` are settings that make a method of its own."""

    def run(problem: Problem) -> Outcome:
        from hedgerow.protocols.central.dpboost.fit import fit_central
        from hedgerow.protocols.central.dpboost.settings import DPBoostSettings

        wishes = {**problem.settings, **always}
        count_filtered = wishes.pop("count_filtered", False)
        epsilon = math.inf if problem.epsilon is None else problem.epsilon
        settings = DPBoostSettings(protocol=protocol, epsilon=epsilon, **wishes)
        random = SecureRandom.from_seed(problem.secret)
        start = time.perf_counter()
        model = fit_central(problem.X, problem.labels, problem.schema, settings, random).model
        seconds = time.perf_counter() - start
        facts = filtered_share(model, problem, settings.gradient_bound) if count_filtered else {}
        return _outcome(model, problem, seconds, facts)

    return run


def gaussian(problem: Problem) -> Outcome:
    """`central.gaussian` with its default policy."""
    from hedgerow.protocols.central.gaussian.central import fit_gaussian
    from hedgerow.protocols.central.gaussian.training import GaussianSettings

    epsilon = math.inf if problem.epsilon is None else problem.epsilon
    settings = GaussianSettings(epsilon, problem.delta, seed=problem.seed, **problem.settings)
    random = SecureRandom.from_seed(problem.secret)
    start = time.perf_counter()
    model = fit_gaussian(problem.X, problem.labels, problem.schema, settings, random).model
    return _outcome(model, problem, time.perf_counter() - start)


def engine(problem: Problem) -> Outcome:
    """The library's ordinary classifier with its defaults: what no privacy at all would give."""
    from hedgerow import BoostedTreesClassifier

    start = time.perf_counter()
    model = BoostedTreesClassifier(n_jobs=1, early_stopping=False).fit(problem.X, problem.labels)
    seconds = time.perf_counter() - start
    return Outcome(model.decision_function(problem.X_test), seconds)


def constant(problem: Problem) -> Outcome:
    """No model at all: the commonest class, or the mean, of the training labels. Not private either."""
    mean = float(problem.y.mean())
    return Outcome(np.full(problem.X_test.num_rows, mean - 0.5 if problem.task == "classification" else mean), 0.0)


def light_gbm(problem: Problem) -> Outcome:
    """LightGBM with trees of the same size, as the paper's NP, on one thread."""
    import lightgbm

    wishes = problem.settings
    low, high = problem.schema.label_bounds or (0.0, 1.0)
    params = {
        "objective": "regression", "max_depth": wishes["max_depth"], "num_leaves": 2 ** wishes["max_depth"],
        "learning_rate": wishes["learning_rate"], "lambda_l2": wishes["l2"], "num_threads": 1, "verbose": -1,
    }  # fmt: skip
    X, X_test = (peer_methods.as_codes(table, problem.schema)["X"] for table in (problem.X, problem.X_test))
    start = time.perf_counter()
    data = lightgbm.Dataset(X, 2.0 * (problem.y - low) / (high - low) - 1.0, params=params)
    booster = lightgbm.train(params, data, wishes["n_trees"])
    seconds = time.perf_counter() - start
    scores = booster.predict(X_test, num_threads=1)
    return Outcome(scores if problem.task == "classification" else (scores + 1.0) / 2.0 * (high - low) + low, seconds)


def _outcome(model: Ensemble, problem: Problem, seconds: float, facts: dict[str, float] | None = None) -> Outcome:
    table = read_table(problem.X_test, like=model.features, where="X_test")
    curve = {trees: model.raw_scores(table, n_iterations=trees)[:, 0] for trees in problem.curve}
    return Outcome(model.raw_scores(table)[:, 0], seconds, curve, facts or {})


def filtered_share(model: Ensemble, problem: Problem, bound: float) -> dict[str, float]:
    """Share of training rows whose gradient is above the bound: before each tree (mean), and before the last.

    Looked up from outside, on the rows themselves; a private training never tells it.
    """
    low, high = problem.schema.label_bounds or (-1.0, 1.0)
    targets = 2.0 * problem.y - 1.0 if problem.task == "classification" else problem.y
    table = read_table(problem.X, like=model.features)
    shares = []
    for trees in range(model.n_iterations):
        gradients = (model.raw_scores(table, n_iterations=trees)[:, 0] - targets) * 2.0 / (high - low)
        shares.append(float(np.mean(np.abs(gradients) > bound)))
    return {"filtered, mean over trees": float(np.mean(shares)), "filtered, last tree": shares[-1]}


# --- by name ---------------------------------------------------------------------------------------------------------


def _peer(run: peer_methods.Peer) -> Callable[[Problem], Outcome]:
    def wrapped(problem: Problem) -> Outcome:
        if problem.epsilon is None or problem.task != "classification":
            raise ValueError("the peers are compared as private classifiers")
        labels = problem.labels
        scores, seconds = run(
            problem.X, labels, problem.X_test, problem.schema, problem.epsilon, problem.delta, problem.seed
        )
        return Outcome(scores, seconds)

    return wrapped


METHODS: dict[str, Callable[[Problem], Outcome]] = {
    **{name: central(name) for name in ("central.dpboost", "central.sequential", "central.parallel", "central.plain")},
    "central.dpboost with filtering": central("central.dpboost", filtering=True),
    "central.parallel without filtering": central("central.parallel", filtering=False),
    "central.gaussian": gaussian,
    "engine": engine,
    "constant": constant,
    "LightGBM": light_gbm,
    **{name: _peer(run) for name, run in peer_methods.PEERS.items()},
}
