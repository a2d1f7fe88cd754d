"""Table 3 of the paper: ACC, F1 and AUC of three trees, by XGBoost, by the parties, and with the first layer masked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from experiments.central_dp.show import summary, table
from experiments.mp_fedxgb.cells import MASKED, MINIMAL, Cell, Result
from experiments.mp_fedxgb.cells import PAPER as PUBLISHED
from experiments.mp_fedxgb.methods import N_TIE_ORDERS, published_is_there
from experiments.mp_fedxgb.tables.common import DATASETS, DEPTHS, Results, chosen, mean_and_spread, measured, signed

N_SPLITS = 10
N_MASKED_SPLITS = 5
"""Of the published protocol, which takes longer."""
WITHIN = 0.01
MEASURES = ("acc", "f1", "auc")
OLD_RATE = 0.1
"""The learning rate of XGBoost's own classifier when the paper was written; the parties have 1."""
COLUMNS = {"XGBoost": "XGBoost", "MP-FedXGB": MINIMAL, "MP-FedXGB*": MASKED}
"""The paper's column -> method."""


class Paper(NamedTuple):
    """A line of the paper's table: ACC, F1, AUC of each column."""

    xgboost: tuple[float, float, float]
    plain: tuple[float, float, float]
    masked: tuple[float, float, float]


PAPER = {
    ("give_me_some_credit", 3): Paper((0.9319, 0.1354, 0.8020), (0.9324, 0.1914, 0.8410), (0.9331, 0.1824, 0.8255)),
    ("give_me_some_credit", 4): Paper((0.9316, 0.1818, 0.8302), (0.9321, 0.2253, 0.8377), (0.9317, 0.2099, 0.8342)),
    ("give_me_some_credit", 5): Paper((0.9327, 0.2337, 0.8313), (0.9329, 0.2481, 0.8379), (0.9323, 0.1962, 0.8397)),
    ("adult", 3): Paper((0.8455, 0.6192, 0.8639), (0.8358, 0.5965, 0.8850), (0.8332, 0.5954, 0.8844)),
    ("adult", 4): Paper((0.8500, 0.6415, 0.8844), (0.8423, 0.6403, 0.8940), (0.8404, 0.6156, 0.8936)),
    ("adult", 5): Paper((0.8561, 0.6447, 0.9014), (0.8449, 0.6481, 0.8966), (0.8424, 0.6420, 0.8945)),
}


def cells(*, quick: bool) -> list[Cell]:
    """In the order of the file, and ten random splits; or the shallowest trees of one dataset."""
    splits = [("file", 0)] if quick else [("file", 0), *(("random", i) for i in range(N_SPLITS))]
    methods = [("XGBoost", OLD_RATE), ("XGBoost", 1.0), (MINIMAL, 1.0), (PUBLISHED, 1.0), (MASKED, 1.0)]
    return [
        Cell(dataset, method, split, index, depth, learning_rate=rate)
        for dataset in (("give_me_some_credit",) if quick else DATASETS)
        for split, index in splits
        for depth in (DEPTHS[:1] if quick else DEPTHS)
        for method, rate in methods
        if _is_wanted(method, split, index)
    ]


def _is_wanted(method: str, split: str, index: int) -> bool:
    """The published protocol has fewer splits, and without the mask only the first: it is to be like `minimal`."""
    if method not in {PUBLISHED, MASKED}:
        return True
    return published_is_there() and (split == "file" or (method == MASKED and index < N_MASKED_SPLITS))


def report(results: Results, folder: Path, link: str) -> str:
    """Beside the paper; then random splits; then XGBoost with the parties' learning rate."""
    del folder, link
    found = results["table3"]
    met = verdicts(found)
    near = f"the AUC is within {WITHIN:g} of the paper's in {sum(met)} of {len(met)} cells that were measured (of 18)"
    return "\n\n".join([
        f"**In the order of the file**, as in the published program: {near}",
        _beside_the_paper(found),
        _published(found),
        f"**{N_SPLITS} random splits** ({N_MASKED_SPLITS} for MP-FedXGB*), mean ± standard deviation",
        _random(found),
        "**What masking the first layer costs**, AUC with the mask less AUC without, the same random splits",
        _mask(found),
        "**XGBoost with the parties' learning rate of 1**, AUC",
        _same_rate(found),
    ])  # fmt: skip


def verdicts(found: list[Result]) -> list[bool]:
    """Of each cell in the order of the file: whether its AUC is near the paper's."""
    lines = [_line(found, *where, column) for where in PAPER for column in COLUMNS]
    return [abs(line.measures["auc"] - paper[2]) <= WITHIN for line, paper in lines if line is not None]


def _line(
    found: list[Result], dataset: str, depth: int, column: str
) -> tuple[Result | None, tuple[float, float, float]]:
    """What was measured in the order of the file, and what the paper has."""
    method = COLUMNS[column]
    rate = OLD_RATE if method == "XGBoost" else 1.0
    there = chosen(found, dataset=dataset, depth=depth, method=method, learning_rate=rate, split="file")
    return (there[0] if there else None), PAPER[dataset, depth][list(COLUMNS).index(column)]


def _beside_the_paper(found: list[Result]) -> str:
    rows = []
    for dataset, depth in PAPER:
        for column in COLUMNS:
            line, paper = _line(found, dataset, depth, column)
            row = [dataset, str(depth), column]
            if line is None:
                row += [text for value in paper for text in (f"{value:.4f}", "")] + ["", ""]
            else:
                m = line.measures
                for what, value in zip(MEASURES, paper, strict=True):
                    row += [f"{value:.4f}", f"{m[what]:.4f}"]
                row += [signed(m["auc"] - paper[2]), f"{m['auc_lowest']:.4f} to {m['auc_highest']:.4f}"]
            rows.append(row)
    header = ["", "depth", "", "ACC, paper", "ACC", "F1, paper", "F1", "AUC, paper", "AUC", "difference",
              f"AUC, equal scores in {N_TIE_ORDERS} random orders"]  # fmt: skip
    return table(header, rows)


def _published(found: list[Result]) -> str:
    """How far the published protocol without the mask is from `minimal`."""
    differences = [
        abs(there.measures[what] - same.measures[what])
        for there in chosen(found, method=PUBLISHED)
        for same in chosen(found, method=MINIMAL, split="file", dataset=there.cell.dataset, depth=there.cell.depth)
        for what in MEASURES
    ]
    if not differences:
        return ""
    n = len(differences) // len(MEASURES)
    return (
        f"MP-FedXGB here is `minimal`. The published protocol without the mask, in {n} of {len(PAPER)} trainings: ACC, "
        f"F1 and AUC differ from it by at most {max(differences):.4f}."
    )


def _random(found: list[Result]) -> str:
    rows = []
    for dataset, depth in PAPER:
        for place, (column, method) in enumerate(COLUMNS.items()):
            rate = OLD_RATE if method == "XGBoost" else 1.0
            wanted = {"dataset": dataset, "depth": depth, "method": method, "learning_rate": rate, "split": "random"}
            values = {what: measured(found, what, **wanted) for what in MEASURES}
            if not values["auc"]:
                continue
            paper = PAPER[dataset, depth][place][2]
            difference = summary(values["auc"]).mean - paper
            verdict = "yes" if abs(difference) <= WITHIN else "no"
            rows.append([dataset, str(depth), column, *(mean_and_spread(values[what]) for what in MEASURES),
                         f"{paper:.4f}", signed(difference), verdict])  # fmt: skip
    header = ["", "depth", "", "ACC", "F1", "AUC", "AUC, paper", "difference", f"within {WITHIN:g}"]
    return table(header, rows)


def _mask(found: list[Result]) -> str:
    """Mean ± standard error of differences split by split."""
    rows = []
    for dataset, depth in PAPER:
        wanted = {"dataset": dataset, "depth": depth, "split": "random", "learning_rate": 1.0}
        with_it, without = (
            {r.cell.index: r.measures["auc"] for r in chosen(found, method=method, **wanted)}
            for method in (MASKED, MINIMAL)
        )
        both = [with_it[index] - without[index] for index in with_it if index in without]
        if both:
            difference = summary(both)
            shown = f"{signed(difference.mean)} ± {difference.error:.4f}"
            rows.append([dataset, str(depth), shown, str(difference.n)])
    return table(["", "depth", "mean ± standard error", "splits"], rows)


def _same_rate(found: list[Result]) -> str:
    rows = []
    for dataset, depth in PAPER:
        row = [dataset, str(depth)]
        for split in ("file", "random"):
            for method, rate in (("XGBoost", OLD_RATE), ("XGBoost", 1.0), (MINIMAL, 1.0)):
                wanted = {"dataset": dataset, "depth": depth, "split": split, "method": method, "learning_rate": rate}
                row.append(mean_and_spread(measured(found, "auc", **wanted)))
        rows.append(row)
    of_split = [
        f"{name}, {words}"
        for words in ("file", "random splits")
        for name in (f"XGBoost, rate {OLD_RATE:g} (paper)", "XGBoost, rate 1", "MP-FedXGB, rate 1")
    ]
    return table(["", "depth", *of_split], rows)
