"""What `train` and `demo` report: how good a model is on rows with known labels, and words in at most 80 columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hedgerow.cli.outcome import WIDTH
from hedgerow.cli.telling import say
from hedgerow.engine import boosting
from hedgerow.engine.dtypes import Floats
from hedgerow.estimators.inputs import encode_like, read_classes, read_targets
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor
from hedgerow.runtime.progress import duration

SCORE_NAMES = {
    "auc": "AUC (1 is perfect, 0.5 is chance)",
    "accuracy": "accuracy",
    "logloss": "log loss (smaller is better)",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "r2": "R2 (1 is perfect, 0 is the mean)",
}


def scores(
    model: BoostedTreesClassifier | BoostedTreesRegressor, X: Any, y: Any, weight: Floats | None
) -> dict[str, float]:
    """auc (of two classes), accuracy and logloss of a classifier; rmse, mae and r2 of a regressor."""
    if isinstance(model, BoostedTreesClassifier):
        return scores_of_shares(model.predict_proba(X), model.classes_, y, weight)
    predictions = model.predict(X)
    labels = read_targets(y, len(predictions))
    mean = np.average(labels, weights=weight)
    spread = np.average((labels - mean) ** 2, weights=weight)
    rmse = boosting.root_mean_squared_error(labels, predictions, weight)
    return {
        "rmse": rmse,
        "mae": boosting.mean_absolute_error(labels, predictions, weight),
        "r2": float(1 - rmse**2 / spread) if spread > 0 else float("nan"),
    }


def scores_of_shares(shares: Floats, classes: Any, y: Any, weight: Floats | None = None) -> dict[str, float]:
    """The scores of a classifier, from the probabilities [rows, classes] that it gives."""
    labels = encode_like(read_classes(y, len(shares)), classes, "the label column")
    found = {
        "accuracy": 1 - boosting.error_rate(labels, shares, weight),
        "logloss": boosting.log_loss(labels, shares, weight),
    }
    return {"auc": boosting.area_under_curve(labels, shares, weight), **found} if shares.shape[1] == 2 else found


# --- for people ------------------------------------------------------------------------------------------------------


def console() -> Console:
    """stdout, never wider than 80 columns, without colours where it is no terminal."""
    plain = Console()
    return plain if plain.width <= WIDTH else Console(width=WIDTH)


def print_training(result: dict[str, Any]) -> None:
    """The summary of `hedgerow train`."""
    out = console()
    stopped = " (the best, by early stopping)" if result["best_iteration"] is not None else ""
    what = f"A {result['kind']} for {result['label']!r}: {result['iterations']} iterations{stopped}"
    out.print(Text(f"{what} in {duration(result['seconds']['fit'])}.", style="bold"))
    rows = ", ".join(f"{count:,} {name}" for name, count in result["rows"].items())
    data = f"Rows: {rows}. " if rows else ""
    data += f"Columns: {result['columns']}, of which {result['categorical_columns']} categorical"
    if constant := result["constant_columns"]:
        data += f"; {len(constant)} constant and therefore unused: {', '.join(constant[:5])}"
    out.print(Text(f"{data}."))
    out.print()
    if result["scores"]:
        out.print(score_table(result["scores"]))
        out.print()
    out.print(importance_table(result["importances"], top=5))
    if "statement" in result:
        out.print()
        out.print(Text(result["statement"]))
    say(f"model written to {result['model']}")


def score_table(scores: dict[str, dict[str, float]]) -> Table:
    """One row per metric, one column per table of rows."""
    table = Table(box=None, pad_edge=False)
    table.add_column("score")
    for name in scores:
        table.add_column(name, justify="right")
    for metric in next(iter(scores.values())):
        table.add_row(SCORE_NAMES[metric], *(f"{values[metric]:.4f}" for values in scores.values()))
    return table


def importance_table(shares: dict[str, float], top: int) -> Table:
    """The columns that reduced the loss most, with a bar for each."""
    table = Table(box=None, pad_edge=False)
    table.add_column("columns that mattered most", max_width=40, no_wrap=True)
    table.add_column("share of gain", justify="right")
    table.add_column("")
    ranked = sorted(shares.items(), key=lambda item: -item[1])[:top]
    largest = max((share for _, share in ranked), default=0.0) or 1.0
    for name, share in ranked:
        table.add_row(Text(name), f"{share:.1%}", "█" * max(1, round(20 * share / largest)) if share > 0 else "")
    return table


def print_dry_run(result: dict[str, Any]) -> None:
    """What `hedgerow train --dry-run` found."""
    out = console()
    out.print(Text("The job can run; nothing was trained (--dry-run).", style="bold"))
    for name, file in result["files"].items():
        out.print(Text(f"{name}: {file['path']}, {file['rows']:,} rows, {len(file['columns'])} columns"))
    out.print(Text(f"label: {result['label']}; kind: {result['kind'] or 'from the label'}"))
    given = ", ".join(f"{key}={value!r}" for key, value in result["params"].items())
    out.print(Text(f"parameters: {given or 'the defaults'}"))
    for name, path in result["output"].items():
        out.print(Text(f"would write {name}: {path}"))


def protocol_table(result: dict[str, Any]) -> Table:
    """One row per way of training: how good, how long, how much was sent, what it is worth."""
    table = Table(box=None, pad_edge=False)
    for name, justify in [("how", "left"), ("AUC", "right"), ("time", "right"), ("MiB", "right"), ("rounds", "right")]:
        width = 28 if name == "how" else None  # the longest name of a protocol, with a comma
        table.add_column(name, justify=justify, no_wrap=name != "how", width=width)  # type: ignore[arg-type]  # one of rich's words
    table.add_column("verdict")
    auc = result["scores"]["test"]["auc"]
    table.add_row("one table", f"{auc:.4f}", duration(result["seconds"]["fit"]), "", "", "not protected")
    for entry in result["protocols"]:
        between_parties = bool(entry["parties"])
        table.add_row(
            entry["title"],
            f"{entry['scores']['test']['auc']:.4f}",
            duration(entry["seconds"]),
            f"{sum(entry['bytes_sent'].values()) / 2**20:.1f}" if between_parties else "",
            f"{sum(entry['rounds'].values())}" if between_parties else "",
            entry["worth"],
        )
    return table
