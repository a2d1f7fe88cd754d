"""The paper's Tables 2 and 3 and Figure 6: seconds of training, in a local and in a wide-area network."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from experiments.central_dp.show import table
from experiments.federboost.cells import Cell
from experiments.federboost.tables.common import Results

LOCAL, WIDE = "LAN", "WAN"
REPETITIONS = 3
SUSY_ROWS = 290_000


def _cells(repetitions: int, *, debias: bool = True, **timing: Any) -> list[Cell]:
    what = tuple(timing.items())
    return [
        Cell("susy_30k", "training time", epsilon=4.0, debias=debias, seed=seed, timing=what)
        for seed in range(repetitions)
    ]


TABLE_2 = {"table": "2", "rows": 8_192, "columns": 11, "trees": 200, "parties": 3}
TABLE_3 = {"table": "3", "rows": 50_000, "columns": 15, "trees": 32, "parties": 3}
PAPER = {"2": "1.213", "3": "32.4", LOCAL: "at most 33", WIDE: "at most 691.77"}


def cells(*, quick: bool) -> list[Cell]:
    """Processes over gRPC; the wide-area network is emulated. Or the smallest one only."""
    if quick:
        return _cells(1, **TABLE_2, transport="memory", link=LOCAL)
    out = []
    for debias in (True, False):
        for workload in (TABLE_2, TABLE_3):
            out += _cells(REPETITIONS, debias=debias, **workload, transport="grpc", link=LOCAL)
        for link in (LOCAL, WIDE):
            for parties in (2, 4, 8):
                susy = {"table": "6", "rows": SUSY_ROWS, "columns": 18, "trees": 60, "parties": parties}
                out += _cells(REPETITIONS, debias=debias, **susy, transport="grpc", link=link)
    return out


def report(results: Results, folder: Path, link: str) -> str:
    """Medians."""
    del folder, link
    groups: dict[tuple[tuple[str, Any], ...], dict[bool, list[dict[str, float]]]] = {}
    for result in results["times"]:
        if dict(result.cell.timing)["transport"] == "grpc":
            groups.setdefault(result.cell.timing, {}).setdefault(result.cell.debias, []).append(result.measures)
    rows = []
    for timing, runs in groups.items():
        wanted = dict(timing)
        seconds = {debias: statistics.median(m["seconds"] for m in measured) for debias, measured in runs.items()}
        one = next(iter(runs.values()))[0]
        number = wanted["table"]
        where = f"Table {number}" if number in PAPER else f"Figure 6, SUSY, {wanted['link']}"
        rows.append([
            f"{where}: {wanted['rows']:,} x {wanted['columns']}, {wanted['trees']} trees",
            str(wanted["parties"]),
            PAPER.get(number, PAPER[wanted["link"]]),
            f"{seconds[True]:.2f}" if True in seconds else "",
            f"{seconds[False]:.2f}" if False in seconds else "",
            f"{one['rounds']:.0f}",
            f"{one['bytes'] / 1e6:.2f}",
        ])  # fmt: skip
    header = ["", "parties", "paper, s", "ours, debiased, s", "ours, not debiased, s", "rounds", "MB"]
    return table(header, rows)
