"""Figure 5 of the paper: AUC over the number of buckets and over epsilon; with debiasing and without."""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.show import Line, Panel, plot, table
from experiments.federboost.cells import Cell, Result
from experiments.federboost.tables.common import (
    BUCKETS,
    DATASETS,
    EPSILONS,
    POOLED,
    Results,
    aucs,
    gain,
    mean,
    repeated,
    shown,
)

SPLITS = {"random": "five random splits", "file": "order of the file"}
SHORT = {
    "XGBoost, pooled": "XGBoost",
    "engine, pooled": "engine",
    "label holder alone": "alone",
    "bucket_rr": "no noise",
}
"""In pictures, where there is little room."""
WITH_BUCKETS = 4.0
"""Epsilon at which the number of buckets is varied a second time."""


def cells(*, quick: bool) -> list[Cell]:
    """Everything; or two datasets in the order of the file, one draw of noise."""
    datasets = ("default_credit_card", "adult") if quick else DATASETS
    buckets, epsilons = ((4, 16), (1.0, 4.0)) if quick else (BUCKETS, EPSILONS)
    out = []
    for dataset in datasets:
        for split in ("file",) if quick else tuple(SPLITS):
            for method in POOLED:
                out += repeated(split, dataset=dataset, method=method)
            for q in buckets:
                out += repeated(split, dataset=dataset, method="bucket_rr", buckets=q)
            for epsilon in epsilons:
                for debias in (True, False):
                    out += repeated(split, dataset=dataset, method="bucket_rr", epsilon=epsilon, debias=debias)
        for q in () if quick else buckets:
            for debias in (True, False):
                noisy = {"buckets": q, "epsilon": WITH_BUCKETS, "debias": debias}
                out += repeated("random", dataset=dataset, method="bucket_rr", **noisy)
    unique = {cell.key: cell for cell in out if not quick or cell.seed == 0}
    return list(unique.values())


def report(results: Results, folder: Path, link: str) -> str:
    """Two pictures, and tables of all values."""
    found = results["figure5"]
    plot([_over_buckets(found, dataset) for dataset in DATASETS], folder / "figure5_buckets.png", columns=2)
    plot([_over_epsilon(found, dataset) for dataset in DATASETS], folder / "figure5_epsilon.png", columns=2)
    parts = [
        f"![AUC against the number of buckets]({link}/figure5_buckets.png)",
        f"![AUC against epsilon, 16 buckets]({link}/figure5_epsilon.png)",
    ]
    for split, words in SPLITS.items():
        parts += [f"**What there is without noise**, {words}", _baselines(found, split)]
    for split, words in SPLITS.items():
        parts += [f"**Number of buckets, no noise**, {words}", _buckets(found, split, None)]
    parts += [f"**Number of buckets at epsilon {WITH_BUCKETS:g}**, {SPLITS['random']}"]
    parts += [_buckets(found, "random", WITH_BUCKETS)]
    for split, words in SPLITS.items():
        noise = "" if split == "random" else ", five draws of noise"
        parts += [f"**Epsilon, 16 buckets**, {words}{noise}", _epsilons(found, split)]
    return "\n\n".join(parts)


def _level(found: list[Result], dataset: str, method: str, ends: tuple[float, float]) -> Line | None:
    """A dashed line for what depends on neither axis."""
    value = mean(aucs(found, dataset=dataset, method=method))
    return None if value is None else Line(SHORT[method], list(ends), [value.mean] * 2, dashed=True)


def _curve(found: list[Result], label: str, axis: str, at: tuple[float, ...], **wanted: object) -> Line | None:
    points = {x: mean(aucs(found, **{**wanted, axis: x})) for x in at}
    there = {x: value for x, value in points.items() if value is not None}
    if not there:
        return None
    values = list(there.values())
    return Line(label, [float(x) for x in there], [v.mean for v in values], [v.error for v in values])


def _over_buckets(found: list[Result], dataset: str) -> Panel:
    curves = [
        _curve(found, "no noise", "buckets", BUCKETS, dataset=dataset),
        _curve(found, f"epsilon {WITH_BUCKETS:g}", "buckets", BUCKETS, dataset=dataset, epsilon=WITH_BUCKETS),
        _curve(found, f"epsilon {WITH_BUCKETS:g}, not debiased", "buckets", BUCKETS, dataset=dataset,
               epsilon=WITH_BUCKETS, debias=False),
    ]  # fmt: skip
    levels = [_level(found, dataset, method, (BUCKETS[0], BUCKETS[-1])) for method in POOLED]
    return Panel(dataset, "AUC", [line for line in curves + levels if line is not None], "buckets")


def _over_epsilon(found: list[Result], dataset: str) -> Panel:
    curves = [
        _curve(found, "debiased", "epsilon", EPSILONS, dataset=dataset),
        _curve(found, "not debiased", "epsilon", EPSILONS, dataset=dataset, debias=False),
    ]
    ends = (EPSILONS[0], EPSILONS[-1])
    levels = [_level(found, dataset, method, ends) for method in ("bucket_rr", *POOLED)]
    return Panel(dataset, "AUC", [line for line in curves + levels if line is not None])


def _baselines(found: list[Result], split: str) -> str:
    rows = []
    for dataset in DATASETS:
        pooled = aucs(found, dataset=dataset, method="engine, pooled", split=split)
        joint = aucs(found, dataset=dataset, split=split)
        values = [mean(aucs(found, dataset=dataset, method=method, split=split)) for method in POOLED]
        rows.append([dataset, *(shown(v) for v in values), shown(mean(joint)), shown(gain(joint, pooled), signed=True)])
    return table(["", *POOLED, "bucket_rr, 16 buckets", "against engine, pooled"], rows)


def _buckets(found: list[Result], split: str, epsilon: float | None) -> str:
    rows = []
    for dataset in DATASETS:
        for debias in (True,) if epsilon is None else (True, False):
            wanted = {"dataset": dataset, "split": split, "epsilon": epsilon, "debias": debias}
            name = dataset if epsilon is None else f"{dataset}, {'debiased' if debias else 'not debiased'}"
            rows.append([name, *(shown(mean(aucs(found, buckets=q, **wanted))) for q in BUCKETS)])
    return table(["buckets", *(str(q) for q in BUCKETS)], rows)


def _epsilons(found: list[Result], split: str) -> str:
    rows = []
    for dataset in DATASETS:
        with_it = [aucs(found, dataset=dataset, split=split, epsilon=e) for e in EPSILONS]
        without = [aucs(found, dataset=dataset, split=split, epsilon=e, debias=False) for e in EPSILONS]
        rows.append([f"{dataset}, debiased", *(shown(mean(v)) for v in with_it)])
        rows.append([f"{dataset}, not debiased", *(shown(mean(v)) for v in without)])
        better = [gain(one, other) for one, other in zip(with_it, without, strict=True)]
        rows.append(["difference", *(shown(v, signed=True) for v in better)])
    return table(["epsilon", *(f"{e:g}" for e in EPSILONS)], rows)
