"""How much the private trainings really tell: lower bounds on epsilon for central.gaussian and central.dpboost.

    python -m experiments.central_dp_audit                      some minutes on one core
    python -m experiments.central_dp_audit --trials 100         a quick look
    python -m experiments.central_dp_audit --json audit.json    figures for the documentation

central.gaussian: the adversary knows every row but the canary and sees every noisy sum; likelihood ratio; bounds with
and without taking Gaussian DP for granted. central.dpboost: the adversary sees the model's score at the canary; one
tree of one level, so that all of epsilon is spent on the canary's own tree, and five trees of two levels.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow import __version__
from hedgerow.attacks.central.all_but_one import likelihood_ratio, watched_fit
from hedgerow.attacks.central.audit import AuditResult, Family, Train, lower_bound, run_trials
from hedgerow.attacks.central.canaries import canary_for
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.protocols.central.dpboost.fit import fit_central
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.schema import Schema

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-6
TWO_COLUMNS = Schema.from_public(bounds={"a": (0.0, 1.0), "b": (0.0, 1.0)}, classes=[0, 1])
ONE_COLUMN = Schema.from_public(bounds={"a": (0.0, 1.0)}, classes=[0, 1])


def noise(seed: int, trial: int) -> SecureRandom:
    """Fresh noise for each trial; another seed repeats the whole experiment with other noise."""
    return SecureRandom.from_seed(seed.to_bytes(16, "little") + trial.to_bytes(16, "little"))


def gaussian(epsilon: float, seed: int) -> Train:
    """Rows in one corner, the canary in the other."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 2)) / 2.0
    y = (rng.random(300) < 0.2 + 0.4 * (X[:, 0] > 0.25)).astype(np.int64)
    canary = canary_for(TWO_COLUMNS, X, y)

    def train(with_canary: bool, trial: int) -> float:
        random = noise(seed, trial)
        how: dict[str, Any] = {"with_canary": with_canary, "epsilon": epsilon, "delta": DELTA, "random": random}
        return likelihood_ratio(watched_fit(X, y, TWO_COLUMNS, canary, **how).seen)

    return train


def dpboost(epsilon: float, seed: int, n_trees: int, max_depth: int) -> Train:
    """Rows in the first bin, the canary alone in the last."""
    X, y = np.linspace(0.0, 0.05, 40)[:, None], np.arange(40) % 2
    canary = canary_for(ONE_COLUMN, X, y)
    tables = {True: canary.appended_to(X, y), False: (X, y)}
    settings = DPBoostSettings(
        epsilon=epsilon, n_trees=n_trees, trees_per_ensemble=n_trees, max_depth=max_depth, max_bins=8
    )

    def train(with_canary: bool, trial: int) -> float:
        model = fit_central(*tables[with_canary], ONE_COLUMN, settings, random=noise(seed, trial)).model
        return float(model.raw_scores(np.array([canary.values]))[0, 0])

    return train


def measure(name: str, epsilon: float, train: Train, n_trials: int, delta: float, families: list[Family]) -> list[Any]:
    """One audit, as rows of the table."""
    start = time.perf_counter()
    trials = run_trials(train, n_trials)
    seconds = time.perf_counter() - start
    rows = []
    for family in families:
        result: AuditResult = lower_bound(trials, delta=delta, family=family)
        rows.append({"training": name, "claimed": epsilon, "seconds": round(seconds, 1), **result.to_dict()})
        sys.stdout.write(
            f"{name:28} claimed {epsilon:4g}  at least {result.epsilon_lower:6.3f}  family {family:9}"
            f" {n_trials:6} trials of each kind, {seconds:5.0f} s{'   ALARM' if result.refutes(epsilon) else ''}\n"
        )
        sys.stdout.flush()
    return rows


def main() -> None:
    """All audits, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=500, help="trainings of central.gaussian in each world")
    parser.add_argument("--seed", type=int, default=0, help="another one repeats everything with other noise")
    parser.add_argument("--only", default="", help="trainings whose name has this in it")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    chosen = parser.parse_args()
    jobs: list[tuple[str, Callable[[float], Train], int, float, list[Family]]] = [
        ("central.gaussian", lambda e: gaussian(e, chosen.seed), chosen.trials, DELTA, ["gaussian", "any"]),
        ("central.dpboost, 1 tree", lambda e: dpboost(e, chosen.seed, 1, 1), 10 * chosen.trials, 0.0, ["any"]),
        ("central.dpboost, 5 trees", lambda e: dpboost(e, chosen.seed, 5, 2), 4 * chosen.trials, 0.0, ["any"]),
    ]
    rows = []
    for name, make, n_trials, delta, families in jobs:
        for epsilon in EPSILONS if chosen.only in name else ():
            rows += measure(name, epsilon, make(epsilon), n_trials, delta, families)
    if chosen.json is not None:
        document = {"hedgerow": __version__, "seed": chosen.seed, "rows": rows}
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
