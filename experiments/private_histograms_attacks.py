"""What curious parties find out from runs of vertical.private_histograms: least squares on all that was opened.

    HEDGEROW_DATA=folder python -m experiments.private_histograms_attacks     some minutes on two cores

First labels that are coins, of which columns say nothing: 600 rows, six columns. Then default_credit_card: a bureau
with the labels and five columns, a bank with the eighteen others. Noise is fresh, so figures vary a little.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from hedgerow import Federation, Schema, __version__
from hedgerow.attacks.registry import Context, attacked
from hedgerow.datasets import find_dataset

DELTA = 1e-5
REVEAL = ("winner", "histogram")


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def one_run(
    title: str, tables: dict[str, pd.DataFrame], labels: Any, schema: Schema, epsilon: float, reveal: str, n_trees: int
) -> list[dict[str, Any]]:
    """Train, attack, and say what came out; the first party has the labels."""
    holder = next(iter(tables))
    run = Federation.vertical(tables, labels=(holder, labels)).fit(
        "vertical.private_histograms",
        record=True,
        epsilon=epsilon,
        delta=DELTA,
        schema=schema,
        reveal=reveal,
        n_estimators=n_trees,
        max_depth=3,
        learning_rate=0.3,
        max_bins=32,
    )
    rows = []
    for outcome in attacked(Context(run, labels={holder: labels}, tables=tables)):
        rows.append({"data": title, "epsilon": str(epsilon), "reveal": reveal, **outcome.to_dict()})
        at_most = "-" if outcome.ceiling is None else f"{outcome.ceiling:.3f}"
        say(
            f"{title}, {reveal}, epsilon {epsilon:g}, {outcome.attacker}: AUC {outcome.value}, at most {at_most}: "
            f"{outcome.verdict}; {outcome.found}"
        )
    return rows


def coins(epsilon: float, reveal: str, seed: int) -> list[dict[str, Any]]:
    """Labels that nobody can know but from the sums they are in."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(600, 6)), columns=list("abcdef"))
    tables = {"bank": table[["a", "b", "c"]], "shop": table[["d", "e", "f"]]}
    schema = Schema.from_public(bounds=dict.fromkeys(table.columns, (-3.0, 3.0)), classes=[0, 1])
    return one_run("coins", tables, rng.integers(0, 2, 600), schema, epsilon, reveal, 30)


def credit(epsilon: float, reveal: str) -> list[dict[str, Any]]:
    """Bounds are read off the file: they are taken for public here."""
    table = pq.read_table(find_dataset("default_credit_card")).to_pandas()
    payments = [name for name in table.columns if name.startswith(("PAY_", "BILL_AMT"))]
    label = table.columns[-1]
    others = [name for name in table.columns[:-1] if name not in payments and name != "ID"]
    X = table[[*others, *payments]].astype(np.float64)
    bounds = {name: (float(X[name].min()), float(X[name].max())) for name in X.columns}
    tables = {"bureau": X[others], "bank": X[payments]}
    schema = Schema.from_public(bounds=bounds, classes=[0, 1])
    return one_run("default_credit_card", tables, table[label].to_numpy().astype(int), schema, epsilon, reveal, 20)


def main() -> None:
    """All runs, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=0, help="another one repeats the coins with other rows")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    chosen = parser.parse_args()
    settings = [(epsilon, reveal) for epsilon in (1.0, 4.0, math.inf) for reveal in REVEAL]
    rows = [row for epsilon, reveal in settings for row in coins(epsilon, reveal, chosen.seed)]
    rows += [row for epsilon, reveal in settings for row in credit(epsilon, reveal)]
    if chosen.json is not None:
        document = {"hedgerow": __version__, "seed": chosen.seed, "rows": rows}
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
