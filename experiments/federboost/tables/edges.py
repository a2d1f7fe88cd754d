"""Where edges come from: from the data as they are (the paper), from the data with noise, or in round numbers."""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.show import table
from experiments.federboost.cells import Cell
from experiments.federboost.tables.common import DATASETS, Results, aucs, gain, mean, repeated, shown

EPSILONS = (1.0, 2.0, 4.0, 8.0)
HONEST = {"private": "noisy quantiles", "round": "round numbers"}


def private_edges_there() -> bool:
    """Whether this version has edges="private"."""
    from hedgerow.protocols.vertical.bucket_rr.spec import SPEC as PROTOCOL

    return "edges_epsilon" in PROTOCOL.options


def cells(*, quick: bool) -> list[Cell]:
    """Random splits, debiased; or one of them."""
    kinds = [edges for edges in HONEST if edges != "private" or private_edges_there()]
    if quick:
        return [Cell("adult", "bucket_rr", epsilon=4.0, edges=edges) for edges in kinds]
    out = []
    for dataset in DATASETS:
        for edges in kinds:
            for epsilon in (*EPSILONS, *((None,) if edges == "round" else ())):
                out += repeated("random", dataset=dataset, method="bucket_rr", epsilon=epsilon, edges=edges)
    return out


def report(results: Results, folder: Path, link: str) -> str:
    """One table: the same epsilon for an element, in all."""
    del folder, link
    rows = []
    for dataset in DATASETS:
        exact = [aucs(results["figure5"], dataset=dataset, epsilon=e) for e in (*EPSILONS, None)]
        rows.append([f"{dataset}, exact quantiles, as in the paper", *(shown(mean(v)) for v in exact)])
        for edges, words in HONEST.items():
            values = [aucs(results["edges"], dataset=dataset, epsilon=e, edges=edges) for e in (*EPSILONS, None)]
            if any(values):
                differences = [gain(one, other) for one, other in zip(values, exact, strict=True)]
                rows.append([f"{dataset}, {words}", *(shown(mean(v)) for v in values)])
                rows.append(["difference from exact quantiles", *(shown(d, signed=True) for d in differences)])
    return table(["epsilon", *(f"{e:g}" for e in EPSILONS), "no noise"], rows)
