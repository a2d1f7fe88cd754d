"""What Table 3 depends on and the paper does not say: learning rate, buckets, and which rows. With the pooled engine.

The parties' trees are the pooled engine's, so it answers for them, and more quickly.
"""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.show import table
from experiments.mp_fedxgb.cells import IN_BUCKETS, Cell
from experiments.mp_fedxgb.tables.common import DATASETS, DEPTHS, Results, mean_and_spread, measured
from experiments.mp_fedxgb.tables.table3 import OLD_RATE, PAPER

N_SPLITS = 5
RATES = (0.1, 0.3, 1.0)
BUCKETS: dict[float, str] = {
    IN_BUCKETS: "published rule, 1/10 of the rows",
    0.05: "published rule, 1/20 of the rows",
    10.0: "10 quantile bins",
    16.0: "16",
    32.0: "32",
    64.0: "64",
    255.0: "255",
}
AS_THEY_ARE = {
    "capital-gain,capital-loss": "but capital-gain and capital-loss as they are",
    "age,fnlwgt,education-num,hours-per-week": "but the other four numbers as they are",
}
"""Of adult, with the published rule for all other columns and a learning rate of 1: which of them cost AUC."""
XGBOOST = {"XGBoost": "XGBoost, exact", "XGBoost, hist": "XGBoost, hist"}


def cells(*, quick: bool) -> list[Cell]:
    """All combinations, in the order of the file and for some random splits."""
    splits = [("file", 0), *(("random", i) for i in range(0 if quick else N_SPLITS))]
    kinds = [("engine", buckets) for buckets in BUCKETS] + [(method, IN_BUCKETS) for method in XGBOOST]
    adult = [
        Cell("adult", "engine", split, index, depth, as_they_are=columns)
        for split, index in splits
        for columns in AS_THEY_ARE
        for depth in DEPTHS
    ]
    return ([] if quick else adult) + [
        Cell(dataset, method, split, index, depth, learning_rate=rate, buckets=buckets)
        for dataset in (("give_me_some_credit",) if quick else DATASETS)
        for split, index in splits
        for method, buckets in (kinds[:2] if quick else kinds)
        for depth in (DEPTHS[:1] if quick else DEPTHS)
        for rate in (RATES[-1:] if quick else RATES)
    ]


def report(results: Results, folder: Path, link: str) -> str:
    """AUC of one dataset and kind of split per table."""
    del folder, link
    parts = []
    for dataset in DATASETS:
        for split, words in (("file", "order of the file"), ("random", f"{N_SPLITS} random splits")):
            parts += [f"**{dataset}**, {words}, AUC", _table(results, dataset, split)]
    parts += ["**Which buckets cost AUC on adult**, learning rate 1", _which_buckets(results)]
    return "\n\n".join(parts)


def _which_buckets(results: Results) -> str:
    rows = []
    for columns, words in {"": "published rule for all columns", **AS_THEY_ARE}.items():
        row = [words]
        for split in ("file", "random"):
            wanted = {
                "dataset": "adult",
                "method": "engine",
                "split": split,
                "learning_rate": 1.0,
                "buckets": IN_BUCKETS,
            }
            for depth in DEPTHS:
                values = measured(results["sensitivity"], "auc", depth=depth, as_they_are=columns, **wanted)
                row.append(mean_and_spread(values))
        rows.append(row)
    return table(["", *(f"depth {depth}, {words}" for words in ("file", "random splits") for depth in DEPTHS)], rows)


def _table(results: Results, dataset: str, split: str) -> str:
    kinds = [("engine", buckets, f"trees of the parties, {words}") for buckets, words in BUCKETS.items()]
    kinds += [(method, IN_BUCKETS, words) for method, words in XGBOOST.items()]
    rows = []
    for method, buckets, words in kinds:
        row = [words]
        for depth in DEPTHS:
            for rate in RATES:
                wanted = {"dataset": dataset, "split": split, "depth": depth, "learning_rate": rate}
                values = measured(
                    results["sensitivity"], "auc", method=method, buckets=buckets, as_they_are="", **wanted
                )
                row.append(mean_and_spread(values))
        rows.append(row)
    for place, (words, paper_rate) in enumerate((("XGBoost", OLD_RATE), ("MP-FedXGB", 1.0))):
        values = {depth: f"{PAPER[dataset, depth][place][2]:.4f}" for depth in DEPTHS}
        found = [values[depth] if rate == paper_rate else "" for depth in DEPTHS for rate in RATES]
        rows.append([f"**paper, {words}**", *found])
    return table(["", *(f"depth {depth}, rate {rate:g}" for depth in DEPTHS for rate in RATES)], rows)
